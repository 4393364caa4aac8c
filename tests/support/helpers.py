"""Small builders that tests share."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import random
import socket
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")

SAMPLE: dict[str, Any] = {
    "stream": {"name": "t", "time": "ts_ms", "time_unit": "ms", "unit": "event"},
    "lattice": {"step": 0.001},
    "features": [
        {"name": "a", "min": -40.0, "max": 80.0, "origin": 20.0},
        {"name": "b", "min": 0.0, "max": 100.0, "origin": 50.0, "scale": 2.0},
    ],
    "window": {
        "length": "10s",
        "clock": "eof",
        "start": "1970-01-01T00:00:00Z",
        "end": "1970-01-01T00:01:00Z",
    },
    "release": {
        "kind": "mean",
        "method": "recentered",
        "radius": 3.0,
        "spread": "histogram",
        "rho": 1.0,
        "delta": 1e-9,
        "size_hint": 300,
    },
    "budget": {"rho": 4.0, "delta": 1e-6},
    "ledger": {"url": "memory:"},
}


COUNTING: dict[str, Any] = {
    "stream": {"name": "live"},
    "lattice": {"step": 0.001},
    "features": [{"name": "a", "min": 0.0, "max": 40.0}],
    "window": {"length": "1s", "lateness": "2s", "clock": "broker", "backlog": "1d"},
    "release": {"kind": "count", "rho": 50.0},
    "budget": {"rho": 50.0, "delta": 0.0},
    "source": {},
    "sink": {"url": "jsonl:out.jsonl"},
    "ledger": {"url": "sqlite:ledger.db"},
}


def changed(base: dict[str, Any], sections: dict[str, dict[str, Any] | None]) -> dict[str, Any]:
    """A configuration with some keys of some sections changed (None removes a key, or a section)."""
    mapping = copy.deepcopy(base)
    for name, changes in sections.items():
        if changes is None:
            mapping.pop(name, None)
        else:
            section = mapping.get(name, {}) | changes
            mapping[name] = {key: value for key, value in section.items() if value is not None}
    return mapping


def counting_job(start_s: float, *changes: dict[str, Any], **sections: dict[str, Any] | None) -> str:
    """A configuration file: counts of records, all but exact, of every second since `start_s`; changed in turn."""
    start = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(start_s))
    mapping = COUNTING
    for each in ({"window": {"start": start}}, *changes, sections):
        mapping = changed(mapping, each)
    lines = []
    for name, section in mapping.items():
        for table in section if isinstance(section, list) else [section]:
            lines.append(f"[[{name}]]" if isinstance(section, list) else f"[{name}]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


def sample(**sections: dict[str, Any]) -> dict[str, Any]:
    """The sample configuration with some keys of some sections changed (None removes a key).

    A `recentered` mean finds a core and leaves records out, unless its `outliers` are told.
    """
    mapping = changed(SAMPLE, sections)
    if (release := mapping.get("release", {})).get("kind") == "mean" and release.get("method") == "recentered":
        release.setdefault("outliers", "leave_out")
    if mapping["window"]["clock"] != "eof":  # times in tests are long past, and all windows since the start are wanted
        mapping["window"].setdefault("backlog", "40000d")
    return mapping


def ledger_of(url: str) -> dict[str, str]:
    """The section of a ledger, with a user key where a server requires one."""
    os.environ.setdefault("FCSTREAM_TEST_USER_KEY", "0f" * 32)
    return {"url": url} if url.startswith(("sqlite:", "memory:")) else {"url": url, "user_key": USER_KEY}


USER_KEY = "env:FCSTREAM_TEST_USER_KEY"


def rows(n: int, seed: int = 0, center: tuple[float, float] = (20.5, 49.0)) -> np.ndarray:
    """Raw feature rows around a center, in the sample's units."""
    return np.random.default_rng(seed).normal(size=(n, 2)) * [0.3, 0.6] + center


def data_file(name: str) -> str:
    """A file of real data; skips without FCSTREAM_DATA, fails if the variable is set and the file is missing."""
    import pytest

    folder = os.environ.get("FCSTREAM_DATA")
    if not folder:
        pytest.skip("FCSTREAM_DATA does not name the folder with the real data sets")
    path = os.path.join(folder, name)
    assert os.path.exists(path), f"{path} is missing"
    return path


def service(name: str, probe: Callable[[], T]) -> T:
    """What `probe` returns when a server answers; skips if not, and fails with FCSTREAM_REQUIRE_SERVICES=1."""
    import pytest

    try:
        return probe()
    except Exception as error:
        reason = f"{name} does not answer: {type(error).__name__}: {error}"
    if os.environ.get("FCSTREAM_REQUIRE_SERVICES") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def exact_counts(points: np.ndarray, radius_squared: int) -> np.ndarray:
    """`naive.friend_counts` in 64-bit integers, which must suffice: for more points than the twin can look at."""
    far = 2**27  # as a difference in one coordinate: a stranger whatever the radius
    rows = points.astype(np.int64)
    widest = min(far, int(np.ptp(rows, axis=0).max())) if len(rows) else 0
    assert widest**2 * rows.shape[1] < 2**63
    counts = [int(((np.clip(rows - row, -far, far) ** 2).sum(axis=1) <= radius_squared).sum()) for row in rows]
    return np.array(counts, np.int64)


class Paid:
    """A charge that lets every stage start, and remembers what was started."""

    def __init__(self) -> None:
        self.stages: list[Any] = []

    def open(self, needed: Any) -> None:
        pass

    def use(self, needed: Any) -> None:
        self.stages.append(needed)

    def start(self, stage: Any) -> None:
        self.stages.append(stage)


def open_sockets():
    """The sockets that this process has open."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the descriptor of the listing itself
            found.add(os.readlink(f"/proc/self/fd/{number}"))
    return {name for name in found if name.startswith("socket:")}


def free_port():
    """A port that nobody listens at, below those that systems give to outgoing connections: one that `bind` chooses
    may be taken by any connection before the server that it is for has started."""
    while True:
        port = random.SystemRandom().randrange(12_000, 32_000)
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port
