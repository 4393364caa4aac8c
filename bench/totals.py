"""How far running totals are off, beside other ways to the same totals at the same rho, and how long a close takes.

    python bench/totals.py [errors] [speed] [--opendp PYTHON]

errors      root mean square error of counts over an epoch of 1,440 windows at rho = 0.5, from 300 epochs drawn: of
            `kind = "total"`, of counts of single windows that are added up, of a binary tree (the continual counter of
            Chan, Shi and Song 2011 and of Dwork et al. 2010, with Gaussian noise), and of OpenDP's tree of intervals
            made consistent. PYTHON is an interpreter that has opendp (the `bench` extra); OpenDP 0.16 has no counter
            that goes along with a stream, so its tree is given the whole epoch at once and answers at the end. It pays
            for the number of levels where the root of it would do.
speed       one close at the end of an epoch of 100,000 windows and 100 bins, without the ledger: median and worst of
            20, and what a window's state takes in the ledger.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from fractions import Fraction

import msgspec
import numpy as np
from kernels import machine

from fcstream.noise.samplers import Noise
from fcstream.releases.totals.factor import factor
from fcstream.releases.totals.memory import EpochMemory, WindowState

WINDOWS, EPOCHS, RHO_NANO, THETA = 1440, 300, 500_000_000, Fraction(4, 5)
LONG, BINS = 100_000, 100
OPENDP = """
import json, sys
import numpy as np
import opendp.prelude as dp
dp.enable_features("contrib", "idealized-numerics")
windows, epochs, rho = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
best = None
for branches in (2, 4, 8, 16):
    space = dp.vector_domain(dp.atom_domain(T=int), size=windows), dp.l2_distance(T=int)
    tree = dp.t.make_b_ary_tree(*space, leaf_count=windows, branching_factor=branches)
    made = dp.binary_search_chain(lambda s: tree >> dp.m.then_gaussian(s, MO=dp.ZeroConcentratedDivergence),
                                  d_in=1, d_out=rho, bounds=(1e-3, 1e6))
    steady = dp.t.make_consistent_b_ary_tree(branching_factor=branches)
    errors = np.array([np.cumsum(steady(made([0] * windows)))[:windows] for _ in range(epochs)])
    square = np.sqrt((errors**2).mean(axis=0))
    found = {"branches": branches, "last": square[-1], "worst": square.max(),
             "mean": float(np.sqrt((errors**2).mean()))}
    best = found if best is None or found["mean"] < best["mean"] else best
print(json.dumps(best))
"""


def ours() -> np.ndarray:
    """Errors of totals (epochs, windows)."""
    found, noise = factor(WINDOWS, THETA), Noise()
    variance = found.variance(1, RHO_NANO)
    errors = np.empty((EPOCHS, WINDOWS))
    memory = EpochMemory(found, EPOCHS, variance)  # epochs side by side: as bins of a histogram, at the noise of one
    for window in range(WINDOWS):
        estimates, state = memory.next([0] * EPOCHS, noise.discrete_gaussian(variance, EPOCHS))
        errors[:, window] = [float(x) for x in estimates.total]
        memory.add(window, state)
    return errors


def added_up() -> np.ndarray:
    drawn = Noise().discrete_gaussian(Fraction(10**9, 2 * RHO_NANO), EPOCHS * WINDOWS)
    return np.cumsum(drawn.reshape(EPOCHS, WINDOWS).astype(float), axis=1)


def binary_tree() -> np.ndarray:
    """Each record is in one node of every level; a total is the sum of the nodes that its binary digits name."""
    levels = WINDOWS.bit_length()
    variance = Fraction(levels * 10**9, 2 * RHO_NANO)
    errors, noise, nodes = np.empty((EPOCHS, WINDOWS)), Noise(), np.zeros((levels, EPOCHS))
    for window in range(1, WINDOWS + 1):
        level = (window & -window).bit_length() - 1  # the node that is complete now, which takes in those below it
        nodes[:level] = 0
        nodes[level] = noise.discrete_gaussian(variance, EPOCHS)
        errors[:, window - 1] = nodes.sum(axis=0)
    return errors


def show_errors(python: str | None) -> None:
    for name, errors in (("running totals", ours()), ("binary tree", binary_tree()), ("added up", added_up())):
        square = np.sqrt((errors**2).mean(axis=0))
        mean = float(np.sqrt((errors**2).mean()))
        print(f"{name}: last total {square[-1]:.2f}, worst {square.max():.2f}, all {mean:.2f}")
    sigma = float(factor(WINDOWS, THETA).variance(1, RHO_NANO)) ** 0.5
    found = factor(WINDOWS, THETA)
    print(
        f"predicted of running totals: last {sigma * found.noise_of_total(WINDOWS):.2f}, worst "
        f"{sigma * found.largest_noise_of_total:.2f}, single window {sigma * found.largest_noise_of_window:.2f}"
    )
    if python is None:
        return
    command = [python, "-c", OPENDP, str(WINDOWS), str(EPOCHS), str(RHO_NANO / 1e9)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(f"opendp: {done.stderr.strip().splitlines()[-1]}")
        return
    tree = json.loads(done.stdout)
    print(
        f"OpenDP's tree with {tree['branches']} branches, after the epoch: last total {tree['last']:.2f}, worst "
        f"{tree['worst']:.2f}, all {tree['mean']:.2f}"
    )


def show_speed() -> None:
    found, noise = factor(LONG, THETA), Noise()
    variance = found.variance(1, RHO_NANO)
    rows = []
    drawn = np.random.default_rng(0).normal(0, 400, (LONG, BINS)).astype(np.int64)
    for window in range(LONG - 22):
        rows.append((window, msgspec.msgpack.encode(WindowState.of([window] * BINS, drawn[window]))))
    started = time.perf_counter()
    memory = EpochMemory.recall(found, BINS, variance, rows)
    print(f"a restart there decodes its memory in {time.perf_counter() - started:.1f} s")
    times, numbers = [], list(range(BINS))
    for window in range(LONG - 22, LONG - 1):
        started, began = time.perf_counter(), time.process_time()
        _, state = memory.next(numbers, noise.discrete_gaussian(variance, BINS))
        memory.add(window, state)
        times.append((1000 * (time.perf_counter() - started), 1000 * (time.process_time() - began)))
    taken, used = zip(*times[1:], strict=True)  # the first one loads the kernels
    wall, core = (f"{statistics.median(each):.1f} ms (worst {max(each):.1f})" for each in (taken, used))
    print(f"a close after {LONG - 1:,} windows of {BINS} bins: {wall}, of which the process computed {core}")
    print(f"its state takes {len(state)} bytes in the ledger; memory {4 * LONG * BINS / 1e6:.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["errors", "speed"])
    parser.add_argument("--opendp", metavar="PYTHON")
    given = parser.parse_args()
    print(machine())
    if "errors" in given.what:
        show_errors(given.opendp)
    if "speed" in given.what:
        show_speed()


if __name__ == "__main__":
    sys.exit(main())
