"""Sensors in threads of their own push into one engine; a timer closes windows on the wall clock.

    python examples/embedding/sensor_threads.py [SECONDS]

All methods of an engine may be called from any thread. A release counts as published when the thread that got it calls
again, so whatever a call returns is published by the thread that called, what `push` returns too: with the clock
"broker" that is nothing but what could not be handed over before, since `advance` closes the windows. The ledger is in
memory, so that the example leaves nothing behind; use "sqlite:PATH" for anything real.
"""

import random
import sys
import threading
import time

from fcstream import Engine, Release

CONFIG = {
    "stream": {"name": "hall"},
    "lattice": {"step": 0.001},
    "features": [{"name": "temp_c", "min": -40.0, "max": 85.0, "origin": 20.0}],
    "window": {"length": "1s", "lateness": "200ms", "clock": "broker", "start": "now"},
    "release": {"kind": "mean", "radius": 3.0, "rho": 0.5, "delta": 1e-9, "size_hint": 300},
    "budget": {"rho": 0.5, "delta": 1e-6},
    "ledger": {"url": "memory:"},
}


def publish(releases: list[Release]) -> None:
    for release in releases:
        what = f"{release.value[0]:.2f} C" if release.value else f"refused ({release.reason})"
        print(release.window_open_ms, what, flush=True)


def sense(engine: Engine, stop: threading.Event, seed: int) -> None:
    """One sensor: a reading now and then, pushed as it comes."""
    rng = random.Random(seed)
    while not stop.wait(0.01):
        now = int(time.time() * 1000)
        publish(engine.push([now], [[21.0 + rng.gauss(0, 0.3)]], arrival_ms=now))


def main(seconds: float) -> None:
    stop = threading.Event()
    with Engine(CONFIG) as engine:
        sensors = [threading.Thread(target=sense, args=(engine, stop, seed)) for seed in range(4)]
        for sensor in sensors:
            sensor.start()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(0.1)
            publish(engine.advance(int(time.time() * 1000)))
        stop.set()
        for sensor in sensors:
            sensor.join()


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 5.0)
