"""Which apps are opened, hour by hour, as `fcstream plot` draws it, with seeded noise."""

import drawn
import numpy as np

rng = np.random.default_rng(1)
APPS = np.array(["maps", "mail", "camera", "music", "wallet", *(f"own build {i}" for i in range(200))], object)
START, HOUR = 1767225600000, 3_600_000
busy = 2 + np.sin((np.arange(24) - 8) * np.pi / 12)
hours = np.sort(rng.choice(24, 5000, p=busy / busy.sum()))
liking = np.array([40, 25, 10, 8, 6, *([0.02] * 200)])
opened = rng.choice(APPS, 5000, p=liking / liking.sum())
config = {
    "stream": {"name": "apps"},
    "features": [{"name": "app", "type": "text"}],
    "window": {"length": "1h", "start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"},
    "release": {"kind": "frequent", "rho": 0.1, "delta": 1e-9},
    "budget": {"rho": 0.1, "delta": 1e-9},
}
drawn.releases(drawn.run(config, START + hours * HOUR, opened[:, None]), width=9.5)
