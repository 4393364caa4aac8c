"""Why outliers cost nothing: friends, the core, and releases of one window with noise for the core or for the range."""

import matplotlib.pyplot as plt
import numpy as np

from fcstream import Noise, PrivacyLoss, SeededEntropy, ZCDPFilter, friend_counts, private_mean

RHO, DELTA, RADIUS, STEP = 0.25, 1e-9, 3.0, 0.001
LOW, HIGH = np.array([-40.0, 0.0]), np.array([80.0, 100.0])  # the public ranges
ORIGIN, SCALE = np.array([20.0, 45.0]), np.array([1.0, 5.0])  # as the template of `fcstream init` has them

rng = np.random.default_rng(1)
normal = rng.normal((21.0, 44.0), (0.4, 1.8), size=(600, 2))
faults = np.concatenate([rng.uniform(LOW, HIGH, size=(15, 2)), np.tile([75.0, 2.0], (15, 1))])  # wild ones, stuck ones
scaled = (np.concatenate([normal, faults]) - ORIGIN) / SCALE

core = ZCDPFilter(PrivacyLoss.charge(0.15, DELTA / 2))
kept = core.select_core(friend_counts(scaled, RADIUS, step=STEP), Noise(SeededEntropy(1))).mask


def released(seed: int, **method: object) -> np.ndarray:
    """Release the mean of the window once."""
    noise = Noise(SeededEntropy(seed))
    answer = private_mean(
        scaled, rho=RHO, delta=DELTA, size_hint=600, step=STEP, bounds=(-60.0, 60.0), noise=noise, **method
    )
    return np.array(answer.value) * SCALE + ORIGIN


everything = np.linalg.norm(np.maximum(HIGH - ORIGIN, ORIGIN - LOW) / SCALE)  # a ball that holds both ranges
by_core = np.array([released(seed, radius=RADIUS, outliers="leave_out") for seed in range(40)])
by_range = np.array([released(seed, method="ball", center=[0.0, 0.0], radius=everything) for seed in range(40)])

_, (left, right) = plt.subplots(1, 2, figsize=(8.0, 3.5))
points = scaled * SCALE + ORIGIN
left.plot(*points[~kept].T, "x", color="C1", markersize=6, label=f"not in the core: {(~kept).sum()}")
left.plot(*points[kept].T, "o", color="C0", markersize=2, label=f"in it: {kept.sum()}")
circle = np.linspace(0, 2 * np.pi, 100)
around = np.array([21.0, 44.0])
left.plot(
    around[0] + RADIUS * SCALE[0] * np.cos(circle),
    around[1] + RADIUS * SCALE[1] * np.sin(circle),
    color="0.5",
    linewidth=1,
)
left.annotate("friends of a record\nin the middle", (24, 38), (33, 22), arrowprops={"arrowstyle": "-", "color": "0.5"})
left.set_xlim(LOW[0] - 2, HIGH[0] + 2)
left.set_ylim(LOW[1] - 4, HIGH[1] + 30)
left.set_title("one window, in its public range", fontsize="medium", loc="left")
left.legend(loc="upper left", ncols=2, columnspacing=1, handletextpad=0.2, borderpad=0)

right.plot(*by_range.T, "o", color="C1", markersize=4, label="noise for the whole range")
right.plot(*by_core.T, "o", color="C0", markersize=4, label="noise for the core")
right.plot(*normal.mean(axis=0), "+", color="0.5", markersize=14, markeredgewidth=2, label="true mean, no faults")
right.set_title("40 releases, each at ρ = 0.25", fontsize="medium", loc="left")
right.legend(loc="upper left", borderpad=0)
right.set_ylim(41.0, 46.6)
right.set_xticks([21.0, 21.5, 22.0, 22.5])
for axes in (left, right):
    axes.set_xlabel("temperature (°C)")
    axes.set_ylabel("humidity (%)")
