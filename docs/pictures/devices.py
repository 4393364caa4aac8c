"""What one question costs scooters all over the city, with seeded noise."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LinearSegmentedColormap

from fcstream.local import Euclidean, LocalBudget, RangeCount, Rounds, Simulation
from fcstream.noise.samplers import Noise, SeededEntropy

city = Euclidean((0.0, 0.0), (20_000.0, 20_000.0), step=5.0, unit=1000.0)
places = np.random.default_rng(1).normal(10_000, 3000, (1000, 2)).clip(0, 20_000)
points = np.rint(places / 5).astype(np.int64)
fleet = Simulation({"place": (city, points)}, LocalBudget.concentrated(40).capacity, Noise(SeededEntropy(1)))
downtown = RangeCount.around("place", city, (10_000, 10_000), (4000, 3000))
downtown.run(fleet, "first", np.full(1000, 10 * 10**9), "PM1", Rounds(10))

figure, axes = plt.subplots(figsize=(7.2, 5.6))
gray_to_red = LinearSegmentedColormap.from_list("spent", ["#9aa3ad", "#d9a400", "#d1331f"])
dots = axes.scatter(*places.T / 1000, c=fleet.spent / 10**9, s=10, cmap=gray_to_red, vmin=0, vmax=10)
axes.add_patch(
    plt.Rectangle((8, 8.5), 4, 3, fill=False, color="C0", linewidth=2.5, label="the box that was asked about")
)
figure.colorbar(dots, label="spent of the 10 that were offered")
axes.set(xlabel="km", ylabel="km", aspect="equal", xlim=(0, 20), ylim=(0, 20))
axes.legend(loc="upper left")
