"""A histogram of temperatures, hour by hour, as `fcstream plot` draws it, with seeded noise."""

import drawn
import numpy as np

rng = np.random.default_rng(1)
START, HOUR = 1767225600000, 3_600_000
hours = np.sort(rng.integers(0, 24, 6000))
points = (20 + 5 * np.sin((hours - 9) * np.pi / 12) + rng.normal(0, 1, len(hours)))[:, None]
config = {
    "stream": {"name": "rooms"},
    "lattice": {"step": 0.01},
    "features": [{"name": "temp_c", "min": -40.0, "max": 60.0}],
    "window": {"length": "1h", "start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"},
    "release": {"kind": "histogram", "feature": "temp_c", "edges": [14, 16, 18, 20, 22, 24, 26], "rho": 0.02},
    "budget": {"rho": 0.02, "delta": 0.0},
}
drawn.releases(drawn.run(config, START + hours * HOUR, points), width=9.5)
