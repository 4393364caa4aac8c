"""
An engine inside another process
================================

Push readings as they come, and publish what comes back.

Windows of ten seconds on the wall clock of a broker (here: a loop that pretends to be one). The ledger is in memory, so
that the example leaves nothing behind; use "sqlite:PATH" for anything real.
"""

import numpy as np

from fcstream import Engine, Release

CONFIG = {
    "stream": {"name": "embedded"},
    "lattice": {"step": 0.001},
    "features": [{"name": "temp_c", "min": -40.0, "max": 85.0, "origin": 20.0}],
    "window": {"length": "10s", "clock": "broker", "lateness": "2s", "start": "2026-01-01T00:00:00Z"},
    "release": {"radius": 3.0, "rho": 0.25, "delta": 1e-9, "size_hint": 1000},
    "budget": {"rho": 1.0, "delta": 1e-6},
    "ledger": {"url": "memory:"},
}
START = 1767225600000  # 2026-01-01T00:00:00Z in milliseconds


def publish(releases: list[Release]) -> None:
    for release in releases:
        second = (release.window_open_ms - START) // 1000
        if release.reason:
            print(f"{second} s: refused ({release.reason})")
        else:
            print(f"{second} s: {release.value[0]:.3f} C, noise {release.sigma[0]:.3f}")


def main() -> None:
    rng = np.random.default_rng(1)
    with Engine(CONFIG, on_rejection=lambda rejections: print("rejected:", rejections[0].reason)) as engine:
        for tick in range(45):  # a second each
            now = START + 1000 * tick
            times = now + rng.integers(-500, 500, 100)
            readings = 21 + np.sin(tick / 10) + rng.normal(0, 0.3, (100, 1))
            publish(engine.push(times, readings, arrival_ms=now))
            publish(engine.advance(now))


if __name__ == "__main__":
    main()
