"""Sums of several columns beside OpenDP's: the noise of each at the same rho, from public ranges alone.

    python bench/sums.py [OPENDP_PYTHON]

OpenDP adds up each column by itself (clamped, exact sum, Gaussian noise) at rho / d; its scale is the smallest that its
own map allows; without its interpreter ours stand alone. Ours takes the better of two ways by public numbers, for all
columns together.
"""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np

from fcstream.config import Config

RHO = 0.1
RANGES = {
    "one speed": [(0, 100)],
    "flights: delays, air time, distance": [(-60, 1500), (-90, 1500), (0, 700), (0, 5000)],
    "ten percentages": [(0, 100)] * 10,
    "ten temperatures in kelvin": [(250, 320)] * 10,
    "a hundred, far from zero": [(990, 1010)] * 100,
    "ten differences around zero": [(-1, 1)] * 10,
}
OPENDP = """
import json, sys
import opendp.prelude as dp
dp.enable_features("contrib")
found = []
rho, ranges = json.load(sys.stdin)
for low, high in ranges:
    domain = dp.vector_domain(dp.atom_domain(bounds=(low, high), T="i32"))
    summed = dp.t.make_sum(domain, dp.symmetric_distance())
    def noisy(scale):
        return summed >> dp.m.then_gaussian(scale)
    found.append(dp.binary_search_param(noisy, d_in=1, d_out=rho / len(ranges), T=float))
print(json.dumps(found))
"""


def sigmas(ranges: list[tuple[int, int]]) -> list[float]:
    """Noise deviations of our sums, which depend on public numbers alone."""
    answer = Config.from_mapping(
        {
            "stream": {"name": "sums"},
            "lattice": {"step": 1.0},
            "features": [{"name": f"x{i}", "min": low, "max": high} for i, (low, high) in enumerate(ranges)],
            "window": {"length": "1d", "start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"},
            "release": {"kind": "sum", "rho": RHO},
            "budget": {"rho": RHO, "delta": 0.0},
        }
    ).job.answers[0]
    return list(answer.mechanism.predicted_sigmas(1000, answer.grid).values())


def main(opendp: str | None = None) -> None:
    for name, ranges in RANGES.items():
        ours = sigmas(ranges)
        if opendp is None:
            print(f"{name:36} ours {' '.join(f'{sigma:.0f}' for sigma in ours[:4])}")
            continue
        given = json.dumps([RHO, ranges])
        done = subprocess.run([opendp, "-c", OPENDP], input=given, capture_output=True, text=True, check=True)
        theirs = json.loads(done.stdout)
        ratio = np.sqrt(np.sum(np.square(ours)) / np.sum(np.square(theirs)))
        columns = " ".join(f"{a:.0f}/{b:.0f}" for a, b in list(zip(ours, theirs, strict=True))[:4])
        print(f"{name:36} ours {ratio:.2f} times OpenDP's (each: {columns})")


if __name__ == "__main__":
    main(*sys.argv[1:])
