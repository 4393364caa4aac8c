"""What a running total remembers of its epoch: the exact totals, and the noise of the windows so far."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from .factor import UNIT, Factor

_BLOCK = 4096  # windows whose noise lies in one array


class WindowState(msgspec.Struct, frozen=True, array_like=True):
    """What one window adds to the memory of an epoch; kept in the ledger until the epoch is over.

    Attributes
    ----------
    totals : str
        Exact totals since the epoch began, this window included, with spaces between them.
    noise : bytes
        The noise of this window's estimates, in units of 2**-bits: little-endian integers of `width` bytes.
    width : int
        4 or 8.

    Privacy
    -------
    NOT private: together with what was released it tells exact numbers. A ledger keeps it and shows it to nobody.

    Source
    ------
    Specification 5.13; ours.
    """

    totals: str
    noise: bytes
    width: int

    @classmethod
    def of(cls, totals: Iterable[int], noise: NDArray[np.int64]) -> WindowState:
        """Make the state of a window from exact totals and the noise of its estimates."""
        width = 4 if int(np.abs(noise).max(initial=0)) < 2**31 else 8
        return cls(" ".join(map(str, totals)), noise.astype(f"<i{width}").tobytes(), width)

    def sums(self) -> list[int]:
        """Return the exact totals (d,)."""
        return list(map(int, self.totals.split()))

    def drawn(self) -> NDArray[np.int64]:
        """Return the noise (d,) of this window's estimates."""
        return np.frombuffer(self.noise, f"<i{self.width}").astype(np.int64)

    def __repr__(self) -> str:
        return "<WindowState>"  # without its private content


_DECODER = msgspec.msgpack.Decoder(WindowState)


@dataclass(frozen=True, slots=True)
class Estimates:
    """What follows from the noisy numbers of an epoch up to a window; released.

    Attributes
    ----------
    total, window : list of Fraction (d,)
        The sums since the epoch began, and those of the last window.
    total_noise, window_noise : float
        Deviation of each of them.

    Privacy
    -------
    A function of the noisy numbers, so it costs nothing more than they do.

    Source
    ------
    Specification 5.13; proof 6.5.
    """

    total: list[Fraction]
    window: list[Fraction]
    total_noise: float
    window_noise: float


class EpochMemory:
    """The memory of one epoch, a window at a time.

    Estimates are rounded to multiples of 2**-bits. Then an estimate is the exact number plus an integer multiple of
    2**-bits that depends on the noise alone, so what has to be remembered of the past is the noise in the estimates and
    the exact totals.

    Parameters
    ----------
    factor : Factor
    size : int
        d, the number of sums.
    variance : Fraction
        Variance of every z.

    Attributes
    ----------
    opens : list of int
        When the windows opened that the totals contain, ascending.

    Privacy
    -------
    NOT private: it holds exact totals. `Estimates` are functions of the noisy numbers y alone (proof 6.5).

    Complexity
    ----------
    O(n d) for the window after n others, and 4 n d bytes.

    Source
    ------
    Specification 5.13; proof 6.5; ours.
    """

    def __init__(self, factor: Factor, size: int, variance: Fraction) -> None:
        self._factor, self._deviation = factor, math.sqrt(variance)
        self.bits = factor.fraction_bits(variance)
        self.opens: list[int] = []
        self._totals = [0] * size
        self._noise = [0] * size  # of the totals
        self._blocks: list[
            NDArray[Any]
        ] = []  # noise of the windows' estimates: int32, or int64 where that is too small
        self._largest = 0
        self._spread = np.zeros(0)

    def __len__(self) -> int:
        return len(self.opens)

    def __repr__(self) -> str:
        return f"<EpochMemory of {len(self)} windows>"  # without its private content

    @classmethod
    def recall(cls, factor: Factor, size: int, variance: Fraction, rows: Sequence[tuple[int, bytes]]) -> EpochMemory:
        """Make the memory from what earlier windows have stored: when each opened, and its state.

        Raises
        ------
        ValueError
            A row is no state of such a window.
        """
        memory = cls(factor, size, variance)
        try:
            if len(rows) > factor.windows:
                raise ValueError("more windows than an epoch has")
            states = [_decoded(body, size) for _, body in rows]
            for (open_ms, _), state in zip(rows, states, strict=True):
                memory._keep(open_ms, state.drawn())
            if states:
                memory._totals = states[-1].sums()
                memory._noise = np.sum([block.sum(axis=0) for block in memory._used()], axis=0).tolist()
        except (ValueError, msgspec.MsgspecError):
            raise ValueError("these rows are no memory of an epoch of this kind") from None  # without their content
        memory._spread = factor.spread_of_total(len(rows)) if rows else memory._spread
        return memory

    def next(self, numbers: Sequence[int], drawn: NDArray[np.int64]) -> tuple[Estimates, bytes]:
        """Return what is released of the next window, and the state to store with it; the memory does not change.

        Parameters
        ----------
        numbers : sequence of int (d,)
            The exact sums of the window.
        drawn : int64 (d,)
            Discrete Gaussian numbers z.
        """
        share = UNIT * int(self._factor.weights[len(self)])
        # At most 2**47 + 2**53 in absolute value before it is doubled: sigma is below 2**40, and 2**31 if bits > 0.
        carried = (drawn << self.bits) - self._past()
        noise = (2 * carried + share) // (2 * share)
        totals = [total + x for total, x in zip(self._totals, numbers, strict=True)]
        one = 1 << self.bits
        sums = zip(totals, self._noise, noise.tolist(), strict=True)
        spread = self._next_spread()
        estimates = Estimates(
            [Fraction(total * one + before + here, one) for total, before, here in sums],
            [Fraction(x * one + here, one) for x, here in zip(numbers, noise.tolist(), strict=True)],
            self._deviation * self._factor.noise_of(spread),
            self._deviation * self._factor.noise_of_window(len(self) + 1),
        )
        return estimates, msgspec.msgpack.encode(WindowState.of(totals, noise))

    def add(self, open_ms: int, body: bytes) -> None:
        """Take in a window whose state is stored."""
        self._spread = self._next_spread()
        state = _decoded(body, len(self._totals))
        noise = state.drawn()
        self._keep(open_ms, noise)
        self._noise = [a + b for a, b in zip(self._noise, noise.tolist(), strict=True)]
        self._totals = state.sums()

    def _keep(self, open_ms: int, noise: NDArray[np.int64]) -> None:
        """Keep the noise of a window's estimates."""
        place = len(self) % _BLOCK
        if place == 0:
            self._blocks.append(np.empty((min(_BLOCK, self._factor.windows - len(self)), len(noise)), np.int32))
        self._largest = max(self._largest, int(np.abs(noise).max(initial=0)))
        if self._largest >= 2**31 and self._blocks[-1].dtype == np.int32:
            self._blocks[-1] = self._blocks[-1].astype(np.int64)
        self._blocks[-1][place] = noise
        self.opens.append(open_ms)

    def _used(self) -> Iterator[NDArray[Any]]:
        """Yield the noise of the windows so far, an array of many after the other."""
        for first, block in zip(range(0, len(self), _BLOCK), self._blocks, strict=True):
            yield block[: len(self) - first]

    def _past(self) -> NDArray[np.int64]:
        """Return sum over u of c[n - u] w[u] noise[u] (d,), exactly."""
        from ..._kernels.sums import mix_rows

        n, found = len(self), np.zeros(len(self._totals), np.int64)
        factors = self._factor.coefficients[n:0:-1] * self._factor.weights[:n]
        if self._largest * self._factor.mass >= 2**63:  # hundreds of deviations out: such noise never comes
            raise ArithmeticError("the noise of an epoch does not fit 64 bits")
        for part, block in enumerate(self._used()):
            mix_rows(factors[part * _BLOCK :][: len(block)], block, found)
        return found

    def _next_spread(self) -> NDArray[np.float64]:
        spread = self._factor.step(len(self) + 1).copy()
        spread[: len(self._spread)] += self._spread
        return spread


def compile_mixing() -> None:
    """Compile what every close of a window needs, or read it from the cache.

    Privacy
    -------
    Reads no data.

    Source
    ------
    Specification 5.13; ours.
    """
    from ..._kernels.sums import mix_rows

    mix_rows(np.zeros(1, np.int64), np.zeros((1, 1), np.int32), np.zeros(1, np.int64))


def _decoded(body: bytes, size: int) -> WindowState:
    state = _DECODER.decode(body)
    if state.width not in (4, 8) or len(state.noise) != state.width * size or len(state.totals.split()) != size:
        raise ValueError("the state of a window of another kind")
    return state
