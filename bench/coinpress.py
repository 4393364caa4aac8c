"""CoinPress, the mean of normal rows with covariance I: a rival, written from its description.

Biswas, Dong, Kamath, Ullman: CoinPress: Practical Private Mean and Covariance Estimation (NeurIPS 2020), the iterated
multivariate mean under zCDP. The paper replaces a row and knows n. To stand beside mechanisms for rows added or
removed, this port takes the sum of clipped offsets (sensitivity: the ball's radius, half of the paper's) and a noisy
count. All else is as published: a row lies within gamma of its mean but for 1%, and within
min(r + gamma, sqrt(r**2 + 6 r + gamma**2)) of a center that is r off (the authors' rule, tighter than the paper's first
one); the next r is gamma times the center's deviation per coordinate. All steps but the last share a quarter of rho.
"""

from __future__ import annotations

import math

import numpy as np

STEPS = (2, 4, 8, 20)
_COUNT_SHARE = 0.005
_BETA = 0.01


def _bound(d: int, tail: float) -> float:
    """Of a standard normal vector's norm, but for e**-tail (Laurent and Massart)."""
    return math.sqrt(d + 2 * math.sqrt(d * tail) + 2 * tail)


def coinpress(rows: np.ndarray, reach: float, rho: float, steps: int, rng: np.random.Generator) -> np.ndarray:
    """Private mean of rows (n, d) whose true mean lies within `reach` of 0."""
    n, d = rows.shape
    center, count = np.zeros(d), max(1.0, n + rng.normal(0, 1 / math.sqrt(2 * _COUNT_SHARE * rho)))
    rho *= 1 - _COUNT_SHARE
    gamma = _bound(d, math.log(1 / _BETA))
    shares = [rho / 4 / (steps - 1)] * (steps - 1) + [0.75 * rho]
    for share in shares:
        radius = min(reach + gamma, math.sqrt(reach**2 + 6 * reach + gamma**2))
        offsets = rows - center
        offsets *= np.minimum(1, radius / np.linalg.norm(offsets, axis=1))[:, None]
        sigma = radius / math.sqrt(2 * share) / count
        center = center + offsets.sum(axis=0) / count + rng.normal(0, sigma, d)
        reach = gamma * math.sqrt(1 / count + sigma**2)
    return center
