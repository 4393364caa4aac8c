"""The visits of nine sites, a panel each, as `fcstream plot` draws them, with seeded noise."""

import drawn
import numpy as np

rng = np.random.default_rng(1)
START, HOUR = 1767225600000, 3_600_000
SITES = np.array(["Berlin", "Lisbon", "Madrid", "Oslo", "Paris", "Prague", "Rome", "Vienna", "Warsaw"], object)
liking = np.array([5, 2, 4, 1, 6, 2, 4, 3, 2])
sites = rng.choice(len(SITES), 9000, p=liking / liking.sum())
hours = rng.normal(12 + sites % 3, 3.5, 9000) % 24
order = np.argsort(hours)
config = {
    "stream": {"name": "visits", "key": "site", "keys": SITES.tolist()},
    "window": {"length": "1h", "start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"},
    "release": {"kind": "count", "rho": 0.02},
    "budget": {"rho": 0.02, "delta": 0.0},
}
times = START + (hours[order] * HOUR).astype(np.int64)
drawn.releases(drawn.run_keys(config, times, np.zeros((len(times), 0)), SITES[sites[order]]), width=9.5)
