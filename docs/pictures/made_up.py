"""What the made-up rides of a day hold, as `fcstream plot` draws it, with seeded noise."""

import drawn
import numpy as np

rng = np.random.default_rng(1)
START = 1714953600000
member = rng.random(40_000) < 0.6
helmet = rng.random(40_000) < np.where(member, 0.6, 0.15)
weather = rng.integers(0, 3, 40_000)
minutes = np.minimum(rng.gamma(2, np.where(member, 5, 11)), 600)
config = {
    "stream": {"name": "rides"},
    "lattice": {"step": 0.1},
    "features": [
        {"name": "member", "type": "boolean"},
        {"name": "helmet", "type": "boolean"},
        {"name": "weather", "type": "category", "levels": ["sun", "clouds", "rain"]},
        {"name": "minutes", "min": 0.0, "max": 600.0},
    ],
    "window": {"length": "1d", "start": "2024-05-06T00:00:00Z", "end": "2024-05-07T00:00:00Z"},
    "release": {"kind": "synthetic", "rho": 0.1, "size_hint": 40_000, "edges": {"minutes": [5, 10, 20, 40]}},
    "budget": {"rho": 0.1, "delta": 0.0},
}
points = np.stack([member, helmet, weather, minutes], axis=1).astype(float)
drawn.releases(drawn.run(config, START + np.arange(40_000) * 2000, points), width=9.5)
