"""Laplace noise beside Gaussian noise at the same rho: sums of one column, and counts or bins of a histogram.

    python bench/laplace.py

Exact sums over the laws of the noise; nothing is drawn. Discrete Laplace noise costs what proof 1.6 says, which is the
least rho: the last line checks it against Renyi divergences that are summed up. A record moves a sum by up to 1,000
steps of its lattice. Ratios are Laplace over Gaussian, so below 1 Laplace wins: the deviation (sigma), the mean
absolute error, and half the width of an interval that holds 95%. For a count also the chance of no error, and the
interval's width in records.
"""

from __future__ import annotations

import math

import numpy as np

RHOS = (0.1, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0)
FINE = 1000
ORDERS = (1.0001, 1.01, 1.5, 2.0, 5.0, 20.0, 100.0)


def cost(scale: float, steps: int) -> float:
    """Least rho of discrete Laplace noise of this scale on an integer that moves by up to so many steps."""
    a = math.exp(-1 / scale)
    return (steps - 2 * a * (1 - a**steps) / (1 - a * a)) / scale


def scale_for(rho: float, steps: int) -> float:
    """The smallest scale that costs at most rho, by bisection."""
    low, high = 1e-3 * steps, 1e3 * steps
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if cost(middle, steps) <= rho else (middle, high)
    return high


def law(weights: np.ndarray) -> tuple[float, float, float, int]:
    """Deviation, mean absolute value, chance of 0 and the half width that holds 95%, of weights at -m, ..., m."""
    p, m = weights / weights.sum(), len(weights) // 2
    values = np.abs(np.arange(-m, m + 1))
    held = p[m] + 2 * np.append(0.0, np.cumsum(p[m + 1 :]))
    return (
        math.sqrt(float((p * values**2).sum())),
        float((p * values).sum()),
        float(p[m]),
        int(np.argmax(held >= 0.95)),
    )


def laws(rho: float, steps: int) -> tuple[tuple[float, float, float, int], tuple[float, float, float, int]]:
    """Of Laplace and of Gaussian noise that cost rho."""
    scale, variance = scale_for(rho, steps), steps**2 / (2 * rho)
    values = np.arange(-(most := math.ceil(60 * max(scale, math.sqrt(variance)))), most + 1)
    return law(np.exp(-np.abs(values) / scale)), law(np.exp(-(values**2) / (2 * variance)))


def excess() -> float:
    """The largest D_alpha / (alpha rho) over some scales, moves and orders; 1 if rho is what it costs."""
    worst = 0.0
    for scale in (0.3, 1.0, 2.0, 10.0, 50.0):
        for steps in (1, 2, 3, 7, 20):
            values = np.arange(-math.ceil(40 * scale), math.ceil(40 * scale) + steps + 1)
            p = np.exp(-np.abs(values) / scale)
            losses = (np.abs(values - steps) - np.abs(values)) / scale
            for order in ORDERS:
                grown = losses * (order - 1)
                moment = math.log(float((p / p.sum() * np.exp(grown - grown.max())).sum())) + float(grown.max())
                worst = max(worst, moment / (order - 1) / order / cost(scale, steps))
    return worst


def main() -> None:
    print(
        "rho | a sum: sigma, mean error, 95% | a count: sigma, mean error, no error (Gaussian), 95%: records (Gaussian)"
    )
    for rho in RHOS:
        fine, other = laws(rho, FINE)
        told = ", ".join(f"{fine[i] / other[i]:.2f}" for i in (0, 1, 3))
        ours, gauss = laws(rho, 1)
        count = ", ".join(f"{ours[i] / gauss[i]:.2f}" for i in (0, 1))
        print(f"{rho:g} | {told} | {count}, {ours[2]:.3f} ({gauss[2]:.3f}), {ours[3]} ({gauss[3]})", flush=True)
    print(f"largest D_alpha / (alpha rho): {excess():.6f}")


if __name__ == "__main__":
    main()
