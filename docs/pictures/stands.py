"""Centers of the stops of taxis in Vienna as a map, as `fcstream plot` draws it, with seeded noise."""

import drawn
import numpy as np

rng = np.random.default_rng(1)
START, HOUR = 1767225600000, 3_600_000
STANDS = np.array([[48.185, 16.376], [48.196, 16.338], [48.240, 16.385]])  # three stations
which = rng.integers(0, 3, 60_000)
points = STANDS[which] + rng.normal(0, (0.003, 0.004), (len(which), 2))
config = {
    "stream": {"name": "taxis"},
    "lattice": {"step": 1e-5},
    "features": [
        {"name": "lat", "min": 48.1, "max": 48.3, "origin": 48.2},
        {"name": "lon", "min": 16.2, "max": 16.5, "origin": 16.35},
    ],
    "window": {"length": "4h", "start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"},
    "release": {"kind": "centers", "k": 3, "ball": 0.25, "rho": 1.0, "delta": 1e-8, "size_hint": 10_000},
    "budget": {"rho": 1.0, "delta": 1e-6},
}
times = START + np.sort(rng.integers(0, 24 * HOUR, len(which)))
drawn.releases(drawn.run(config, times, points), width=6.4)
