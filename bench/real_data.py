"""Real telemetry through the examples' configurations: what comes out, how far it is from the truth, what it costs.

    FCSTREAM_DATA=... python bench/real_data.py [example ...]

Per example: windows released and refused (by reason); the median over windows of the released value's distance from the
non-private mean of the SAME core, beside the distance that the printed sigmas predict; separately the bias, the
distance between that core's mean and the mean of all valid records of the window; budget and wall time. Distances are
in scaled units (the configuration's `radius` is in the same). Nothing printed here is private: it is for benches.
"""

from __future__ import annotations

import collections
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from fcstream import Engine
from fcstream.config import Config
from fcstream.connectors import open_source
from fcstream.cores.filters import ZCDPFilter
from fcstream.releases.means.mean import RecentredMean
from fcstream.service.batch import run
from fcstream.testing import ListSink

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
NAMES = ("rooms_10m", "rooms_sliding", "machines_1h", "air_daily")


class Spy:
    """Remembers each window's true means, for comparison only."""

    def __init__(self) -> None:
        self.truths: list[tuple[np.ndarray | None, np.ndarray | None, int]] = []
        self._mask = np.empty(0, bool)

    def __enter__(self) -> Spy:
        self._select, self._release = ZCDPFilter.keep, RecentredMean.release
        spy = self

        def keep(core, counts, n_hat, noise):
            found = spy._select(core, counts, n_hat, noise)
            spy._mask = found.mask
            return found

        def release(mechanism, view, charge, noise):
            spy._mask = np.zeros(view.size, bool)  # stays so if the size stops the window
            outcome = spy._release(mechanism, view, charge, noise)
            points, arrival_order = view.points(), view.arrival_order()
            assert arrival_order is not None
            core = points[spy._mask[arrival_order]]  # keep bits are drawn in the order of arrival
            spy.truths.append(
                (core.mean(axis=0) if len(core) else None, points.mean(axis=0) if len(points) else None, len(points))
            )
            return outcome

        ZCDPFilter.keep, RecentredMean.release = keep, release
        return self

    def __exit__(self, *_: object) -> None:
        ZCDPFilter.keep, RecentredMean.release = self._select, self._release


def measure(name: str, folder: str) -> dict[str, object]:
    config = Config.load(EXAMPLES / f"{name}.toml")
    import msgspec

    from fcstream.config import LedgerSection

    job = config.job
    with tempfile.TemporaryDirectory() as scratch, Spy() as spy:
        config = msgspec.structs.replace(config, ledger=LedgerSection(url=f"sqlite:{scratch}/ledger.db"))
        assert config.source is not None
        scheme, _, file = config.source.url.partition(":")
        source = open_source(f"{scheme}:{folder}/{file}", job.schema)
        sink = ListSink()
        started = time.perf_counter()
        summary = run(Engine(config), source, sink)
        seconds = time.perf_counter() - started
    errors, sigmas, biases, worst = [], [], [], 0.0
    step = job.grid.lattice.step
    scales = np.array([f.scale for f in job.grid.features])
    origins = np.array([f.origin for f in job.grid.features])
    for release, (core, window, _size) in zip(sink.releases, spy.truths, strict=True):
        if release.value is None or core is None or window is None:
            continue
        value = (np.array(release.value) - origins) / scales
        errors.append(np.linalg.norm(value - core * step))
        sigmas.append(np.linalg.norm(np.array(release.sigma) / scales))
        biases.append(np.linalg.norm((core - window) * step))
        worst = max(worst, errors[-1] / sigmas[-1])
    sizes = [size for _, _, size in spy.truths if size]
    refused = collections.Counter(r.reason for r in sink.releases if r.reason)
    outage = [(r, t[2]) for r, t in zip(sink.releases, spy.truths, strict=True) if 0 < t[2] < 0.2 * np.median(sizes)]
    return {
        "windows": len(sink.releases),
        "with records": len(sizes),
        "median records": int(np.median(sizes)),
        "released": summary.released,
        "refused": dict(refused),
        "median error to the core's mean": f"{np.median(errors):.4f}",
        "median predicted by sigma": f"{np.median(sigmas):.4f}",
        "worst error in units of its own sigma": f"{worst:.1f}",
        "median bias of the core": f"{np.median(biases):.3f}",
        "radius": config.release.radius,
        "sparse windows (under a fifth of the median)": len(outage),
        "sparse windows released": sum(r.value is not None for r, _ in outage),
        "records": summary.records,
        "rejected": summary.rejected,
        "spent": str(summary.spent),
        "seconds": f"{seconds:.1f}",
    }


def main() -> None:
    folder = os.environ.get("FCSTREAM_DATA")
    if not folder:
        sys.exit("set FCSTREAM_DATA to the folder with the real data sets")
    for name in sys.argv[1:] or NAMES:
        print(f"{name}:")
        for key, value in measure(name, folder).items():
            print(f"  {key}: {value}")


if __name__ == "__main__":
    main()
