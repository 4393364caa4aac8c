"""How well a released number of records tells whether one person was there: real draws, once with and once without."""

from fractions import Fraction

import matplotlib.pyplot as plt
import numpy as np

from fcstream import Noise, SeededEntropy

DRAWS, WITHOUT = 200_000, 20


def draws(rho: str, records: int, seed: int) -> np.ndarray:
    """Publish a number of records many times: the count and its exact noise, of variance 1/(2 rho)."""
    return records + Noise(SeededEntropy(seed)).discrete_gaussian(1 / (2 * Fraction(rho)), DRAWS)


figure, panels = plt.subplots(1, 3, figsize=(8.0, 2.9))
for seed, (axes, rho) in enumerate(zip(panels, ("0.02", "0.25", "2"), strict=True)):
    values = np.arange(WITHOUT - 14, WITHOUT + 16)
    left, right = (
        np.array([(found == value).mean() for value in values])
        for found in (draws(rho, WITHOUT, 2 * seed), draws(rho, WITHOUT + 1, 2 * seed + 1))
    )
    right_guesses = 0.5 * np.maximum(left, right).sum()
    axes.bar(values - 0.2, left, width=0.4, color="0.5", label="20 people: Ana is not there")
    axes.bar(values + 0.2, right, width=0.4, color="C1", label="21 people: Ana is there")
    axes.set_title(f"ρ = {rho}: {right_guesses:.0%} right guesses", fontsize="medium", loc="left")
    axes.set_xlabel("published number")
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.axvline(WITHOUT + 0.5, color="C0", linewidth=1, linestyle=(0, (4, 3)))
handles, labels = panels[0].get_legend_handles_labels()
figure.legend(handles, labels, loc="outside lower center", ncols=2)
