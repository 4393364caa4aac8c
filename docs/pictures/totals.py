"""Running totals of visits over two epochs of half an hour, as `fcstream plot` draws them, with seeded noise."""

import drawn
import numpy as np

config = {
    "stream": {"name": "visits"},
    "window": {"length": "1m", "start": "2026-01-01T00:00:00Z", "end": "2026-01-01T01:00:00Z"},
    "release": {"kind": "total", "of": "count", "epoch": "30m", "rho": 0.5},
    "budget": {"rho": 0.5, "delta": 0.0},
}
minutes = np.sort(np.random.default_rng(1).triangular(0, 20, 60, 900)).astype(np.int64)
drawn.releases(drawn.run(config, 1767225600000 + minutes * 60_000, np.zeros((len(minutes), 0))))
