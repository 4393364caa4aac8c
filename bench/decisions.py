"""Small measurements that pages of docs/decisions/ rest on.

    python bench/decisions.py [sums] [threads] [decoding]

sums      how many row sums change when the same floats are added in another order; the same for lattice points.
threads   what Numba's own parallel loops do when two threads run them at once, and after a fork: children's exit codes.
decoding  a JSON record of six fields into checked values: msgspec, and `json` with the same checks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import timeit

import msgspec
import numpy as np
from kernels import machine

LINE = b'{"ts_ms": 1458000000123, "room": "a-12", "temp_c": 21.437, "humidity": 48.25, "co2": 612.0, "light": 0.5}'
LOOP = """
import os, threading
import numba
import numpy as np

@numba.njit(parallel=True, nogil=True)
def total(values):
    found = 0.0
    for i in numba.prange(len(values)):
        found += values[i]
    return found

values = np.ones(1_000_000)
total(values)
"""
TWO_THREADS = """
threads = [threading.Thread(target=lambda: [total(values) for _ in range(200)]) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""
FORK = """
child = os.fork()
if child == 0:
    total(values)
    os._exit(0)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0)
"""


class Reading(msgspec.Struct):
    ts_ms: int
    temp_c: float
    humidity: float
    co2: float
    light: float


def sums(n: int = 12_800) -> None:
    rows = np.random.default_rng(1).normal(20.0, 0.5, (n, 16))
    for name, points in (("floats", rows), ("lattice points, step 0.001", np.rint(rows / 0.001))):
        changed = sum(sum(row) != sum(reversed(row)) for row in points.tolist())
        print(f"{name}: {changed:,} of {len(rows):,} sums of 16 differ when added from the other end")


def threads() -> None:
    for layer in ("omp", "workqueue"):
        for name, rest in (("two threads", TWO_THREADS), ("a fork", FORK)):
            environment = os.environ | {"NUMBA_THREADING_LAYER": layer}
            done = subprocess.run([sys.executable, "-c", LOOP + rest], env=environment, capture_output=True)
            print(f"{layer}, {name}: {'works' if done.returncode == 0 else f'ends with {done.returncode}'}")


def decoding(number: int = 100_000) -> None:
    decode = msgspec.json.Decoder(Reading).decode

    def plain() -> None:
        found = json.loads(LINE)
        if not isinstance(found["ts_ms"], int):
            raise ValueError("ts_ms")
        for name in ("temp_c", "humidity", "co2", "light"):
            if not isinstance(found[name], float):
                raise ValueError(name)

    for name, action in (("msgspec", lambda: decode(LINE)), ("json and checks", plain)):
        best = min(timeit.repeat(action, number=number, repeat=5)) / number
        print(f"{name}: {1e6 * best:.2f} us a record")


if __name__ == "__main__":
    print(machine())
    for name in sys.argv[1:] or ["sums", "threads", "decoding"]:
        {"sums": sums, "threads": threads, "decoding": decoding}[name]()
