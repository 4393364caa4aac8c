"""Three answers about the same rooms in one picture, as `fcstream plot` draws them, with seeded noise."""

import drawn
import numpy as np

rng = np.random.default_rng(1)
START, HOUR = 1767225600000, 3_600_000
hours = np.sort(rng.integers(0, 24, 12_000))
points = np.stack([19 + 3 * np.sin((hours - 9) * np.pi / 12), np.full(len(hours), 48.0)], axis=1)
points += rng.normal(0, (0.6, 3.0), points.shape)
config = {
    "stream": {"name": "rooms"},
    "lattice": {"step": 0.01},
    "features": [{"name": "temp_c", "min": -40.0, "max": 80.0}, {"name": "rh_pct", "min": 0.0, "max": 100.0}],
    "window": {"length": "1h", "start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"},
    "release": [
        {"name": "damp", "kind": "count", "where": {"rh_pct": {"min": 50}}, "rho": 0.01},
        {"name": "warmth", "kind": "histogram", "feature": "temp_c", "edges": [16, 18, 20, 22], "rho": 0.02},
        {"name": "middle", "kind": "quantiles", "feature": "temp_c", "quantiles": [0.1, 0.5, 0.9], "rho": 0.2},
    ],
    "budget": {"rho": 0.3, "delta": 0.0},
}
drawn.releases(drawn.run(config, START + hours * HOUR, points))
