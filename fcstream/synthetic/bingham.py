"""Private directions by the exponential mechanism on the sphere, drawn exactly by rejection.

Known limit: proposals are floating-point functions of the data's eigenvectors, so the set of doubles that can be drawn
depends on the data. The default release draws no such direction: it adds exact noise to integer moments instead.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..noise.samplers import Noise

_STEPS = 60


def envelope(gaps: NDArray[np.float64]) -> float:
    """Find the b in (0, q] with sum of 1 / (b + 2 gaps[i]) = 1.

    Privacy
    -------
    Rejection is correct for every b in that range, so rounding b does no harm.

    Source
    ------
    Specification 9.4; Kent, Ganeiber, Mardia 2018.
    """
    low, high = 0.0, float(len(gaps))
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if float(np.sum(1 / (middle + 2 * gaps))) > 1 else (low, middle)
    return high


def log_acceptance(x: NDArray[np.float64], gaps: NDArray[np.float64], b: float) -> NDArray[np.float64]:
    """Compute the log acceptance probability (k,) of unit vectors (k, q) in eigencoordinates.

    It is at most 0 for every b in (0, q].

    Privacy
    -------
    The probability is computed in floating point; the known limit in the module's docstring applies.

    Source
    ------
    Specification 9.4; Kent, Ganeiber, Mardia 2018.
    """
    q = len(gaps)
    squares = x * x
    bent = squares @ (1 + 2 * gaps / b)
    found: NDArray[np.float64] = -(squares @ gaps) + q / 2 * np.log(bent) + (q - b) / 2 + q / 2 * math.log(b / q)
    return found


def pvec(matrix: NDArray[np.float64], noise: Noise, draws: int = 1) -> NDArray[np.float64]:
    """Draw independent unit vectors (draws, q) with density proportional to exp(<matrix x, x>) on the sphere.

    Parameters
    ----------
    matrix : float64 (q, q)
        Symmetric.
    noise : Noise
    draws : int

    Privacy
    -------
    Protects against replacing the matrix by one that differs by E. One draw costs r**2 / 8-zCDP, where r is the largest
    less the smallest eigenvalue of E, because that bounds the range of its privacy loss. The draw is computed in
    floating point; the known limit in the module's docstring applies.

    Complexity
    ----------
    One eigendecomposition; a share of at least sqrt(2 / (e q)) of the proposals is accepted.

    Source
    ------
    Specification 9.4; proof 9.3; erratum 5.1; Boedihardjo et al. 2022, Algorithm 2 (PVEC); rejection from an angular
    central Gaussian: Kent, Ganeiber, Mardia 2018.
    """
    values, vectors = np.linalg.eigh(matrix)
    gaps = values[-1] - values
    q, b = len(gaps), envelope(gaps)
    shrink = 1 / np.sqrt(1 + 2 * gaps / b)
    tries, found = 8 * draws, np.empty((0, q))
    while len(found) < draws:
        x = noise.normals(tries * q).reshape(tries, q) * shrink
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        taken = 1.0 - noise.uniforms(tries) <= np.exp(log_acceptance(x, gaps, b))
        found = np.concatenate([found, x[taken]])
    return np.asarray(found[:draws] @ vectors.T, np.float64)


def proj(matrix: NDArray[np.float64], axes: int, noise: Noise) -> NDArray[np.float64]:
    """Draw orthonormal directions (axes, p), each by `pvec` in the complement of the earlier ones.

    Privacy
    -------
    The loss is `axes` times the loss of one `pvec`, by composition (proof 9.3).

    Source
    ------
    Specification 9.4; proof 9.3; erratum 5.1; Boedihardjo et al. 2022, Algorithm 3 (PROJ).
    """
    p = len(matrix)
    found = np.empty((0, p))
    for _ in range(axes):
        left = np.linalg.qr(np.concatenate([found, np.eye(p)]).T)[0][:, len(found) : p]
        x = left @ pvec(left.T @ matrix @ left, noise)[0]
        found = np.concatenate([found, (x / np.linalg.norm(x))[None, :]])
    return found
