"""The tests that every kind of release must pass, for pytest; `fcstream.testing` has the contract too."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from numpy.typing import NDArray

from ..accounting.losses import PrivacyLoss
from ..noise.replay import ReplayError, ReplayNoise, Tape
from ..noise.samplers import Noise, SeededEntropy
from .base import Mechanism


class OpenCharge:
    """A charge for tests of one release: it keeps what was started."""

    def __init__(self, loss: PrivacyLoss) -> None:
        self._loss, self._is_open, self.started = loss, False, PrivacyLoss()

    def use(self, needed: PrivacyLoss) -> None:
        self.open(needed)
        self.start(needed)

    def open(self, needed: PrivacyLoss) -> None:
        assert needed.fits(self._loss)
        assert not self._is_open
        self._is_open = True

    def start(self, stage: PrivacyLoss) -> None:
        self.started += stage
        assert self._is_open
        assert self.started.fits(self._loss)


def replay_release(mechanism: Mechanism, points: Any, extra: Any, seed: int, tape: Tape | None = None) -> Fraction:
    """Release a window, then one that also holds `extra`, with noise that hides the difference; return what it cost.

    Parameters
    ----------
    mechanism : Mechanism
    points, extra : ndarray
        Lattice points (n, d) and (m, d), or texts (n,) and (m,).
    seed : int
    tape : Tape, optional
        Says which draws need not be followed.

    Raises
    ------
    ReplayError
        Something other than released numbers tells the two windows apart, or the noise that hides the difference costs
        more rho than was started before it was drawn.
    """
    tape = tape or Tape()
    told: list[Any] = []
    for more, noise in (
        (False, ReplayNoise(tape, SeededEntropy(seed))),
        (True, ReplayNoise(tape, SeededEntropy(2**32 + seed))),
    ):
        charge = OpenCharge(mechanism.loss)
        tape.started = lambda charge=charge: charge.started.rho_nano  # type: ignore[misc]
        counter = mechanism.counter(points.shape[1] if points.ndim > 1 else 1, 1, noise)
        counter.add(0, points)
        if more:
            with noise.apart():
                counter.add(0, extra)
        told.append(replace(mechanism.release(counter.view([0]), charge, noise), state=None))  # type: ignore[arg-type]
        told.append(charge.started)
        if not more:
            tape.again()
    if repr(told[:2]) != repr(told[2:]):
        raise ReplayError(f"what is released of a window differs from what is released of its neighbor: {told}")
    return tape.check()


class MechanismContract:
    """Tests that every kind of release must pass. Override `mechanism` and `neighbors`.

    Noise is added to the integers that are drawn for it (``exact + noise.discrete_gaussian(variance, size)``, or one
    number by ``exact + noise.one_gaussian(variance)``), so that the test can follow it.
    """

    seeds = range(3)

    def mechanism(self) -> Mechanism:
        raise NotImplementedError

    def neighbors(self) -> Iterable[tuple[NDArray[Any], NDArray[Any]]]:
        """Return windows of lattice points (n, d), and for each the record (1, d) that only its neighbor has.

        Take strangers, records at the borders of ranges and radii, ties, and windows without records.
        """
        raise NotImplementedError

    def test_a_neighbor_costs_no_more_than_was_started(self) -> None:
        for points, extra in self.neighbors():
            for seed in self.seeds:
                mechanism = self.mechanism()
                assert replay_release(mechanism, points, extra, seed) * 10**9 <= mechanism.loss.rho_nano

    def test_no_second_source_of_noise_is_made(self, monkeypatch: Any) -> None:
        """Also seen: a release that draws nothing of its noise."""
        drawn: list[int] = []
        for points, _ in self.neighbors():
            mechanism, entropy = self.mechanism(), SeededEntropy(0)
            noise, words = Noise(entropy), entropy.words
            counter = mechanism.counter(points.shape[1] if points.ndim > 1 else 1, 1, noise)
            counter.add(0, points)
            mechanism.release(counter.view([0]), OpenCharge(mechanism.loss), noise)  # type: ignore[arg-type]

            def counted(count: int, words: Any = words) -> Any:
                drawn.append(count)
                return words(count)

            with monkeypatch.context() as patch:
                patch.setattr(entropy, "words", counted)
                patch.setattr(Noise, "__init__", _no_second_noise)
                mechanism.release(counter.view([0]), OpenCharge(mechanism.loss), noise)  # type: ignore[arg-type]
            assert drawn
            drawn.clear()


def _no_second_noise(*_: Any) -> None:
    raise AssertionError("a release makes a second Noise: what it draws may be what was drawn before")
