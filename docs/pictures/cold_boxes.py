"""The cold boxes of the first tutorial: hourly means beside the exact means of closed boxes."""

import math
import random
from collections import defaultdict

import drawn

random.seed(7)
START = 1714953600000  # 2024-05-06T00:00:00Z
times, points = [], []
closed = defaultdict(list)
for second in range(0, 24 * 3600, 2):
    day = math.sin(math.pi * (second / 3600 - 6) / 12)
    point = [random.gauss(4 + 0.5 * day, 0.4), random.gauss(12.6 - 0.1 * day, 0.1)]
    if random.random() < 0.01:
        point[0] = random.uniform(10, 25)
    else:
        closed[START + second // 3600 * 3_600_000].append(point)
    times.append(START + 1000 * second)
    points.append(point)

config = {
    "stream": {"name": "coldboxes"},
    "lattice": {"step": 0.001},
    "features": [
        {"name": "box_c", "min": -30.0, "max": 60.0, "origin": 4.0},
        {"name": "battery_v", "min": 8.0, "max": 16.0, "origin": 12.6, "scale": 0.25},
    ],
    "window": {"length": "1h", "start": "2024-05-06T00:00:00Z", "end": "2024-05-07T00:00:00Z"},
    "release": {"kind": "mean", "radius": 3.0, "rho": 0.1, "delta": 1e-9, "size_hint": 1800},
    "budget": {"rho": 0.1, "delta": 1e-6},
}
truth = [
    {"window_open_ms": opened, "value": [sum(column) / len(rows) for column in zip(*rows, strict=True)]}
    for opened, rows in closed.items()
]
drawn.releases(drawn.run(config, times, points), truth, width=9.5)
