"""Frequent texts: how many records a second are counted, and how many true texts are told beside a Laplace histogram.

    python bench/frequent.py

The rival adds Laplace noise of scale 1 / epsilon to every text that occurs and tells those above the threshold
1 + ln(1 / (2 delta)) / epsilon: at epsilon**2 / 2 = rho, which costs as much where answers add up, and at the epsilon
to which one (rho, 0) converts.
"""

from __future__ import annotations

import math
import time

import numpy as np

import fcstream
from fcstream.accounting.losses import epsilon_tight

RECORDS, VALUES, DELTA = 1_000_000, 100_000, 1e-9


def main() -> None:
    random = np.random.default_rng(1)
    texts = [f"value {i}" for i in np.minimum(random.zipf(1.2, RECORDS), VALUES)]
    start = time.perf_counter()
    distinct, counts = np.unique(texts, return_counts=True)
    sorting = time.perf_counter() - start
    for rho in (0.01, 0.1, 1.0):
        start = time.perf_counter()
        ours = fcstream.private_frequent(texts, rho=rho, delta=DELTA)
        seconds = time.perf_counter() - start
        print(
            f"rho {rho:g}: {len(ours.value or [])} of {len(distinct)} texts told; {RECORDS / seconds:.3g} records/s, "
            f"sorting them takes {sorting / seconds:.2g} times as long"
        )
        for what, epsilon in (("zCDP", math.sqrt(2 * rho)), ("epsilon", epsilon_tight(rho, DELTA))):
            least = 1 + math.log(1 / (2 * DELTA)) / epsilon
            told = counts + random.laplace(0, 1 / epsilon, len(counts)) >= least
            print(f"    Laplace at the same {what} ({epsilon:.2f}): {int(told.sum())}, from {least:.1f} on")


if __name__ == "__main__":
    main()
