"""Warm-up: compiles beforehand what windows need."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..arrays.functions import private_centers, private_mean, private_mixture, private_synthetic, private_variance
from ..counting.threads import threads
from ..counting.views import view_of_few
from ..noise.samplers import Noise, SeededEntropy
from ..releases.means.zooming import histogram
from ..releases.options import Options
from ..releases.totals.memory import compile_mixing
from ..runtime.compile_cache import watching_compilation
from .compiling import NOTHING, compile_counts, compile_sums

_WITHOUT_FRIENDS = {"count", "sum", "histogram", "quantiles", "frequent", "total"}
_LARGE = 2000  # windows of fewer points are compared by a kernel that is quickly compiled
_TWO = np.array([[-0.5, 0.0], [0.5, 0.0]])


def warm_up(*kinds: str) -> None:
    """Compile what windows need, or read it from the cache: some seconds once, then about one.

    Without it the first window pays. If nothing is compiled yet and there are two processors, a second process compiles
    the counting of friends meanwhile. Covered: noise, means, variances, centers, mixtures, synthetic tables, friends
    within one or many radii, sampled pairs. Left to their first use: covariances, predicates, and functions of your
    own.

    Parameters
    ----------
    *kinds : str
        Kinds of releases that are wanted; all if none is given. Counts, sums, histograms, quantiles, frequent values
        and totals take a second once; centers and mixtures a third of the time.
    """
    wanted, seeded = set(kinds), Noise(SeededEntropy(0))
    friends = not wanted or bool(wanted - _WITHOUT_FRIENDS)
    with _beside("compile_counts" if friends else None, seeded):
        if not wanted or "total" in wanted:
            compile_mixing()
        if friends:
            _warm_means(seeded)
        if not wanted or "synthetic" in wanted:
            private_synthetic(np.zeros((300, 3)), rho=100, levels=[2, 2, 3], noise=seeded)
    if friends:
        compile_counts()
    if not wanted or {"centers", "mixtures"} & wanted:
        _warm_centers(seeded)


def warm_first_window(releases: Iterable[Options]) -> None:
    """Compile what the first window of a mean or variance with a core needs, in two processes.

    Does nothing if the noise is compiled already. A run over files calls it: one after the other, as the first window
    would compile them, the kernels take half as long again, and twice as long for large windows.
    """
    cores = [each for each in releases if each.kind in ("mean", "variance") and _has_core(each)]
    if not cores:
        return
    is_large = any((each.size_hint or 0) >= _LARGE for each in cores)
    seeded = Noise(SeededEntropy(0))
    with _beside("compile_exact_counts" if is_large else "compile_sums", seeded) as is_helped:
        if is_helped:  # each kernel is left to one process
            seeded.threshold_bits(np.zeros(1, np.int64), 1, 0.0, 1.0)
            histogram(NOTHING, np.zeros(1), [1], Fraction(1), seeded)
            if is_large:
                compile_sums()
            else:
                view_of_few(np.zeros((1, 1)), 1.0)


def _has_core(options: Options) -> bool:
    return getattr(options, "method", "recentered") in ("recentered", "friendly")


@contextmanager
def _beside(function: str | None, noise: Noise) -> Iterator[bool]:
    """Compile the noise if the cache does not hold it, and run a function of `compiling` in another process meanwhile.

    That process is started only if the noise must be compiled, as in a fresh environment, and if there is a processor
    for it. What it compiles lies in the cache then. If it fails, this process compiles the same later.
    """
    started: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        if function is None or started or not sys.executable or threads() < 2:
            return
        program = f"from {__package__}.compiling import {function}; {function}()"
        nowhere = subprocess.DEVNULL
        # -P: a module that lies in the working folder is not imported.
        command = [sys.executable, "-P", "-c", program]
        started.append(subprocess.Popen(command, stdin=nowhere, stdout=nowhere, stderr=nowhere))

    try:
        with watching_compilation(start):
            noise.discrete_gaussian(Fraction(1), 1)
        yield bool(started)
    finally:
        for process in started:
            process.wait()


def _warm_means(noise: Noise) -> None:
    methods: tuple[Literal["recentered", "friendly", "ball"], ...] = ("recentered", "friendly", "ball")
    for method in methods:
        _warm_mean(noise, method)
    private_variance(
        np.zeros((300, 12)), radius=1, rho=10, delta=1e-6, size_hint=300, step=1e-3, bounds=(-1, 1), reach=1,
        noise=noise,
    )  # fmt: skip


def _warm_mean(noise: Noise, method: Literal["recentered", "friendly", "ball"]) -> None:
    center = [0.0] * 12 if method == "ball" else None
    private_mean(
        np.zeros((300, 12)), radius=1, rho=10, delta=0.0 if center else 1e-6, size_hint=300, step=1e-3, bounds=(-1, 1),
        method=method, center=center, noise=noise,
    )  # fmt: skip


def _warm_centers(noise: Noise) -> None:
    rows = np.repeat(_TWO, 1000, axis=0)
    known: Any = {"rho": 4, "delta": 1e-6, "size_hint": 2000, "step": 1e-4, "ball": 1, "oracle": _same, "noise": noise}
    for radius in ("histogram", "search"):
        private_centers(rows, 2, method="friendly", radius=radius, **known)
    private_centers(rows, 2, method="ktuples", **known)
    private_mixture(rows, 2, method="friendly", spread=0.1, **known)
    private_centers(rows, 2, method="tree", rho=4, step=1e-4, ball=1, noise=noise)


def _same(points: NDArray[np.float64], k: int, seed: int) -> NDArray[np.float64]:
    """An oracle that needs no library and takes no time."""
    return _TWO
