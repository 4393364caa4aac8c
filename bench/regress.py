"""What got slower between two commits: both run the same cases in turn, in one run.

    python bench/regress.py BASE [CHANGED] [--cases NAME...] [--rounds 7] [--least 1.05] [--instructions]

Each commit is checked out in a folder of its own; CHANGED is the working tree if it is left out. Every round starts a
process of each, the order turning, and a case tells the processor seconds of the least of some repetitions after a
first one that compiles. Printed are the medians and the median of the rounds' ratios; a case is worse if that ratio,
and three quarters of the rounds, are above `--least`: then the exit status is 1. `--instructions` counts instructions
with callgrind (valgrind) in place of times, in one round and some minutes a case, where times are too noisy; kernels
are then compiled beforehand, for a processor that valgrind knows. What one of the commits cannot run is told and left
out: cases use public names only.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
REPETITIONS = 5
SIMULATED = (
    {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma,+bmi,+bmi2,+lzcnt,+popcnt,+movbe,+f16c"}
    if platform.machine() == "x86_64"
    else {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
)
"""What kernels are compiled for where instructions are counted: valgrind knows no AVX-512."""
Work = Callable[[], object]


def _points(n: int, d: int, outliers: float = 0.0):
    import numpy as np

    draw = np.random.default_rng(1)
    points = draw.normal(0, 1, (n, d))
    points[: int(n * outliers)] *= 100
    return points


def _counts(n: int, d: int, outliers: float = 0.0) -> Work:
    import fcstream

    points = _points(n, d, outliers)
    return lambda: fcstream.friend_counts(points, 0.5 * d**0.5, step=0.01)


def _stream(kind: dict, length: str = "1s", keys: int = 0) -> dict:
    return {
        "stream": {"name": "regress"} | ({"key": "k", "keys": [f"k{i}" for i in range(keys)]} if keys else {}),
        "lattice": {"step": 0.01},
        "features": [{"name": name, "min": -20.0, "max": 20.0} for name in "ab"],
        "window": {"length": length, "start": "1970-01-01T00:00:00Z", "end": "1970-01-01T00:01:40Z"},
        "release": kind,
        "budget": {"rho": 1e3, "delta": 1e-3},
        "ledger": {"url": "memory:"},
    }


def _pushed(kind: dict, records: int, length: str, keys: int = 0) -> Work:
    import numpy as np

    import fcstream

    draw = np.random.default_rng(1)
    times, points = np.sort(draw.integers(0, 100_000, records)), draw.normal(0, 1, (records, 2))
    names = [f"k{i}" for i in draw.integers(0, keys, records)] if keys else None

    def work():
        engine = (fcstream.KeyedEngine if keys else fcstream.Engine)(_stream(kind, length, keys))
        engine.push(times, points, **({} if names is None else {"keys": names}))
        return engine.close()

    return work


def _start() -> Work:
    command = [sys.executable, "-c", "import fcstream.cli, fcstream.service.app; from fcstream import Engine"]
    return lambda: subprocess.run(command, check=True)


def _noise() -> Work:
    from fractions import Fraction

    from fcstream.noise.samplers import Noise, SeededEntropy

    noise = Noise(SeededEntropy(0))
    return lambda: noise.discrete_gaussian(Fraction(10**12), 100_000)


COUNT = {"kind": "count", "rho": 0.1}
MEAN = {"kind": "mean", "radius": 5.0, "rho": 0.5, "delta": 1e-9, "size_hint": 1000, "outliers": "leave_out"}
CASES: dict[str, Callable[[], Work]] = {
    "start": _start,
    "noise": _noise,
    "friends d=2": lambda: _counts(20_000, 2),
    "friends d=16": lambda: _counts(10_000, 16),
    "friends d=64": lambda: _counts(5_000, 64),
    "friends, outliers first": lambda: _counts(10_000, 16, 0.3),
    "windows of 1,000": lambda: _pushed(MEAN, 100_000, "1s"),
    "windows of 20": lambda: _pushed(COUNT, 2_000, "1s"),
    "100 keys": lambda: _pushed(COUNT, 20_000, "50s", 100),
}


def run_case(name: str, repetitions: int) -> None:
    """Print the least processor seconds of some repetitions; children's count too."""
    work = CASES[name]()
    work()
    spent = []
    for _ in range(repetitions):
        began = _used()
        work()
        spent.append(_used() - began)
    print(min(spent, default=0.0))


def _used() -> float:
    """Processor seconds of this process and of its children that have ended."""
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, whose))


class Commit(NamedTuple):
    """A commit's checkout, and where its compiled kernels are kept."""

    name: str
    tree: Path
    cache: Path

    def run(
        self, name: str, repetitions: int, prefix: Sequence[str] = (), more: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        own = {"PYTHONPATH": self.tree, "NUMBA_CACHE_DIR": self.cache, "PYTHONPYCACHEPREFIX": self.cache / "bytecode"}
        environment = os.environ | {name: str(path) for name, path in own.items()} | dict(more or {})
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environment["PYTHONHASHSEED"] = "0"  # else the same work takes other instructions in each process
        command = [*prefix, sys.executable, __file__, "--case", name, str(repetitions)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=self.cache)

    def seconds(self, name: str) -> float | None:
        """Processor seconds of a case; None if this commit cannot run it."""
        done = self.run(name, REPETITIONS)
        return float(done.stdout.split()[-1]) if done.returncode == 0 else None

    def instructions(self, name: str) -> float | None:
        """Millions of instructions of a case that is done twice, less those of one that is done once."""
        self.run(name, 0, more=SIMULATED)  # compiles, which takes valgrind minutes
        counting = ["valgrind", "--tool=callgrind", "--trace-children=yes", "--callgrind-out-file=/dev/null"]
        found: list[int] = []
        for repetitions in (0, 1):
            done = self.run(name, repetitions, counting, SIMULATED)
            told = re.findall(r"Collected : ([0-9]+)", done.stderr)  # of this process and of those that it started
            if done.returncode or not told:
                return None
            found.append(sum(map(int, told)))
        return (found[1] - found[0]) / 1e6


def checkout(commit: str | None, folder: Path) -> Commit:
    """Check a commit out; None is the working tree as it is."""
    (folder / "cache").mkdir(parents=True)
    if commit is None:
        return Commit("now", ROOT, folder / "cache")
    subprocess.run(["git", "worktree", "add", "--detach", "-q", folder / "tree", commit], cwd=ROOT, check=True)
    return Commit(commit, folder / "tree", folder / "cache")


def compare(base: Commit, changed: Commit, name: str, options: argparse.Namespace) -> bool:
    """Print a row; return whether the case got worse."""
    if options.instructions:
        pairs = [(base.instructions(name), changed.instructions(name))]
    else:
        base.run(name, 0), changed.run(name, 0)  # kernels are compiled
        pairs = []
        for turn in range(options.rounds):
            order = (base, changed) if turn % 2 == 0 else (changed, base)
            found = {commit.name: commit.seconds(name) for commit in order}
            pairs.append((found[base.name], found[changed.name]))
    if any(None in pair for pair in pairs):
        print(f"{name:24} {'left out: one of the commits cannot run it':>40}")
        return False
    ratios = [after / before for before, after in pairs]
    ratio = statistics.median(ratios)
    is_worse = ratio > options.least and sum(each > options.least for each in ratios) >= 0.75 * len(ratios)
    before, after = (statistics.median(pair[i] for pair in pairs) for i in (0, 1))
    unit, scale = ("M instructions", 1) if options.instructions else ("ms", 1000)
    print(f"{name:24} {scale * before:10.2f} {scale * after:10.2f} {unit} {ratio:6.2f}{'  WORSE' if is_worse else ''}")
    return is_worse


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base")
    parser.add_argument("changed", nargs="?")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--least", type=float, default=1.05)
    parser.add_argument("--instructions", action="store_true")
    options = parser.parse_args()
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.callback(subprocess.run, ["git", "worktree", "prune"], cwd=ROOT)
        commits = [checkout(commit, scratch / str(i)) for i, commit in enumerate((options.base, options.changed))]
        for commit in commits:
            if commit.tree != ROOT:
                stack.callback(subprocess.run, ["git", "worktree", "remove", "--force", commit.tree], cwd=ROOT)
        print(f"{'case':24} {commits[0].name[:10]:>10} {commits[1].name[:10]:>10}")
        worse = [name for name in options.cases if compare(*commits, name, options)]
    return 1 if worse else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--case"]:
        run_case(sys.argv[2], int(sys.argv[3]))
    else:
        sys.exit(main())
