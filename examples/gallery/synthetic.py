"""
Marginals of made-up rows
=========================

Pairs of columns of a synthetic table, and of private marginals, against those of the true one.
"""

# %%
# A table of codes: a district of five, the weather of three, and three yes-or-no columns, which depend on each other.

import matplotlib.pyplot as plt
import numpy as np

from fcstream import private_marginals, private_synthetic, synthetic_rows

rng = np.random.default_rng(6)
LEVELS = [5, 3, 2, 2, 2]
district = rng.choice(5, 30_000, p=[0.1, 0.15, 0.2, 0.15, 0.4])
weather = rng.choice(3, 30_000, p=[0.5, 0.3, 0.2])
member = rng.random(30_000) < np.where(weather == 2, 0.8, 0.5)
helmet = rng.random(30_000) < np.where(member, 0.6, 0.15)
late = rng.random(30_000) < np.where(district == 4, 0.3, 0.1)
table = np.stack([district, weather, member, helmet, late], axis=1).astype(np.int64)

# %%
# The same budget for both. Rows can be used for anything; if pairs are all that is wanted, ask for pairs.

made = private_synthetic(table, rho=0.05, levels=LEVELS, size_hint=30_000)
counted = private_marginals(table, rho=0.05, levels=LEVELS)
rows = np.array([np.array(column, int) for column in synthetic_rows(made).values()]).T
print(len(rows), "made-up rows, the first of them", rows[0].tolist())

# %%
# Each dot is a pair of values, such as rain together with a helmet. On the diagonal its share is right.


def shares(codes):
    """All two-way marginals, in the order of the release's tables."""
    pairs = [[int(name.removeprefix("x")) for name in names] for names in counted.parts["tables"]]
    cells = [np.histogram2d(*codes[:, pair].T, [np.arange(LEVELS[c] + 1) - 0.5 for c in pair])[0] for pair in pairs]
    return np.concatenate([table.ravel() for table in cells]) / len(codes)


exact, cells = shares(table), np.concatenate(counted.value) / counted.count
figure, panels = plt.subplots(1, 2, figsize=(9, 4.4), sharex=True, sharey=True, layout="constrained")
for axes, found, title in zip(panels, (shares(rows), cells), ("made-up rows", "private marginals"), strict=True):
    axes.loglog(exact, np.maximum(found, 1e-5), "o", markersize=4, alpha=0.7)
    axes.axline((0.01, 0.01), (0.1, 0.1), color="0.5", linewidth=1)
    axes.set(title=f"{title}: off by {np.sqrt(np.mean((found - exact) ** 2)):.5f}", xlabel="share of the true rows")
panels[0].set_ylabel("share of the private ones")
plt.show()
