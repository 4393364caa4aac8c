"""How long members and others ride: true rows, made-up rows and private marginals, with seeded noise."""

import random

import drawn
import matplotlib.pyplot as plt
import numpy as np

from fcstream import synthetic_rows

random.seed(11)
START, EDGES = 1714953600000, [0, 5, 10, 20, 40, 600]
points = []
for number in range(40_000):  # as rides.py of the tutorial does
    second = number * 86_400 // 40_000
    center = random.choices([False, True], [60, 40])[0]
    rain = 28_800 < second < 43_200
    member = random.random() < (0.8 if rain else 0.5)
    helmet = random.random() < (0.6 if member else 0.15)
    minutes = random.gammavariate(2, 5 if member else 11) * (0.7 if center else 1)
    points.append([float(member), float(helmet), round(minutes, 1)])
points = np.array(points)
config = {
    "stream": {"name": "rides"},
    "lattice": {"step": 0.1},
    "features": [
        {"name": "member", "type": "boolean"},
        {"name": "helmet", "type": "boolean"},
        {"name": "minutes", "min": 0.0, "max": 600.0},
    ],
    "window": {"length": "1d", "start": "2024-05-06T00:00:00Z", "end": "2024-05-07T00:00:00Z"},
    "budget": {"rho": 0.1, "delta": 0.0},
}
asked = {"rho": 0.1, "size_hint": 40_000, "edges": {"minutes": EDGES[1:-1]}}
times = START + np.arange(len(points)) * 2000


def shares(member, minutes):
    """A row for others and one for members: the share of all rows in each part of the minutes."""
    return np.histogram2d(member, minutes, [[-0.5, 0.5, 1.5], EDGES])[0] / len(member)


made = drawn.run(config | {"release": {"kind": "synthetic", **asked}}, times, points)[0]
rows = synthetic_rows(made)
counted = drawn.run(config | {"release": {"kind": "marginals", "order": 2, **asked}}, times, points)[0]
table = counted.parts["tables"].index(["member", "minutes"])
tables = {
    "true rows": shares(points[:, 0], points[:, 2]),
    "made-up rows": shares(np.array(rows["member"], float), np.array(rows["minutes"])),
    "private marginals": np.array(counted.value[table]).reshape(2, 5) / counted.count,
}
figure, panels = plt.subplots(1, 2, sharey=True, figsize=(7.2, 3.6))
for axes, title, row in zip(panels, ("members", "others"), (1, 0), strict=True):
    for number, (label, table) in enumerate(tables.items()):
        axes.bar(np.arange(5) + 0.27 * (number - 1), table[row], 0.25, label=label)
    axes.set_xticks(range(5), ["0 to 5", "5 to 10", "10 to 20", "20 to 40", "more"], fontsize=9)
    axes.set(title=title, xlabel="minutes")
    axes.grid(visible=False, axis="x")
    axes.set_axisbelow(True)
panels[0].set_ylabel("share of all rides")
figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
