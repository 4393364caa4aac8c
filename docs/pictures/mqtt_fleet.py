"""The scooters of the second tutorial, sixteen windows long: the budget lasts ten of them."""

import drawn
import numpy as np

START = 1767225600000  # 2026-01-01T00:00:00Z
rng = np.random.default_rng(3)
windows, riders = 16, 700
# Some riders come late to work.
present = rng.random((windows, riders)) < np.where(np.arange(riders) < 630, 1.0, 0.2)
window, rider = np.nonzero(present)
times = START + 2000 * window + rng.integers(0, 2000, window.size)
config = {
    "stream": {"name": "scooters", "unit": "user", "user": "rider"},
    "lattice": {"step": 0.02},
    "features": [{"name": "motor_c", "min": -40.0, "max": 150.0}],
    "window": {"length": "2s", "start": "2026-01-01T00:00:00Z", "end": "2026-01-01T00:00:32Z", "max_records": 2000},
    "release": {"kind": "mean", "radius": 20.0, "rho": 0.15, "delta": 1e-9, "size_hint": 650},
    "budget": {"rho": 1.5, "delta": 1e-6},
}
values = rng.normal(45 + np.sin(window / 3), 3)[:, None]
drawn.releases(drawn.run(config, times, values, [f"rider-{number:03}" for number in rider]))
