"""Noise for tests that replays a release on a neighbor: it keeps what noise was added to, and makes the same noisy
numbers of other exact ones.

    tape = Tape()
    one = mechanism.release(view, charge, ReplayNoise(tape, SeededEntropy(1)))
    two = mechanism.release(neighbor, charge, ReplayNoise(tape.again(), SeededEntropy(2)))
    assert one == two and tape.loss <= mechanism.loss.rho
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .samplers import Entropy, Noise

_NOTHING = Fraction(0)


class ReplayError(AssertionError):
    """A release draws, or uses noise, in a way that its record does not cover."""


@dataclass
class Draw:
    """One call of a sampler.

    Attributes
    ----------
    sampler : str
    settings : tuple
        Its variance, rate, threshold and so on, which may depend on public and released numbers alone.
    values : ndarray or int
        What was drawn.
    exact, before : dict
        For each place, what noise was added to: in this run, and in the one that was recorded.
    noisy : dict
        For each place, the sum.
    costs : object
        What a choice, or bits, were drawn from in the run that was recorded.
    moved : Fraction
        Shift of Laplace noise so far, in scales.
    started : int
        Billionths of rho that were started before.
    window : object
        What `Tape.window` was.
    loss : Fraction
        What the neighbor's draw cost.
    """

    sampler: str
    settings: tuple[Any, ...]
    values: Any
    started: int
    window: Any
    exact: dict[int, Any] = field(default_factory=dict)
    noisy: dict[int, Any] = field(default_factory=dict)
    before: dict[int, Any] = field(default_factory=dict)
    costs: Any = None
    moved: Fraction = _NOTHING
    loss: Fraction = _NOTHING


class Tape:
    """The draws of a release or of a stream, in their order: recorded once, and then replayed by `again`.

    Attributes
    ----------
    draws : list of Draw
    started : callable
        Returns the billionths of rho that were started so far.
    window : object
        What is released at the moment; each draw keeps it.
    grows : bool
        Whether a neighbor may draw more Gaussian numbers in one call: the last ones are then about what only it has,
        such as a text, and a delta pays for what they tell.
    unseen : set of str
        Samplers whose numbers may be used in ways that cannot be replayed, and cost what the caller knows.
    """

    def __init__(self, *, grows: bool = False, unseen: frozenset[str] = frozenset()) -> None:
        self.draws: list[Draw] = []
        self.started: Callable[[], int] = lambda: 0
        self.window: Any = None
        self.grows, self.unseen = grows, unseen
        self.at: int | None = None  # the next draw to replay

    def again(self) -> Tape:
        """Return itself, rewound to be replayed."""
        self.check_used()
        self.at = 0
        for draw in self.draws:
            draw.before, draw.exact = draw.exact, {}
        return self

    def next(self, sampler: str, settings: tuple[Any, ...], draw: Callable[[], Any]) -> Draw:
        """Return the next draw, made by `draw` unless it is replayed."""
        if self.at is None:
            self.draws.append(Draw(sampler, settings, draw(), self.started(), self.window))
            return self.draws[-1]
        if self.at == len(self.draws):
            raise ReplayError(f"the neighbor draws more: {sampler} with {settings}")
        found, self.at = self.draws[self.at], self.at + 1
        if (found.sampler, found.settings) != (sampler, settings):
            raise ReplayError(
                f"draw {self.at} is {sampler} with {settings}, and was {found.sampler} with {found.settings}: "
                "noise depends on more than what is released"
            )
        if self.started() != found.started:
            raise ReplayError(f"{self.started()} nano of rho were started before draw {self.at}, and {found.started}")
        return found

    def check_used(self) -> None:
        """Raise ReplayError unless each number of noise was added to one number."""
        for i, draw in enumerate(self.draws):
            if draw.sampler in ("discrete_gaussian", "discrete_laplace") and draw.sampler not in self.unseen:
                left = np.size(draw.values) - len(draw.noisy)
                if left > 0:
                    raise ReplayError(
                        f"{left} of {np.size(draw.values)} numbers of draw {i + 1} ({draw.sampler}) were added to "
                        "nothing: add the drawn numbers as they are to integers, or take one by `one_gaussian`"
                    )

    def check(self) -> Fraction:
        """Return the loss in rho of all draws, if no draw of a window came before what it costs was started.

        Raises
        ------
        ReplayError
        """
        if self.at != len(self.draws):
            raise ReplayError(f"the neighbor draws {self.at} times instead of {len(self.draws)}")
        totals: dict[Any, Fraction] = {}
        for i, draw in enumerate(self.draws):
            total = totals[draw.window] = totals.get(draw.window, _NOTHING) + draw.loss
            if draw.loss and total * 10**9 > draw.started:
                raise ReplayError(
                    f"draw {i + 1} ({draw.sampler}, {draw.settings}) brings the loss to {float(total):.6g}, but "
                    f"only {draw.started / 1e9:.6g} was started before it"
                )
        return sum(totals.values(), _NOTHING)


class DrawnInt(int):
    """A number of noise that has not been added to anything."""

    __array_ufunc__ = None  # so that scalars of NumPy leave the sum to it
    draw: Any
    place: int

    def __new__(cls, value: int, noise: ReplayNoise, draw: Draw, place: int) -> DrawnInt:
        made = super().__new__(cls, value)
        made.draw, made.place = (noise, draw), place
        return made

    def _sum(self, exact: Any, sign: int) -> Any:
        if isinstance(exact, DrawnInt):
            raise ReplayError("two numbers of noise are added to each other")
        noise, draw = self.draw
        return noise.add(draw, self.place, exact, sign)

    def __add__(self, other: Any) -> Any:
        return self._sum(other, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._sum(-other, 1)

    def __rsub__(self, other: Any) -> Any:
        return self._sum(other, -1)


class Drawn(np.ndarray):
    """Numbers of noise that have not been added to anything; what else is done to them leaves the record."""

    noise: Any = None
    draw: Any = None
    places: Any = None

    @classmethod
    def of(cls, values: NDArray[Any], noise: ReplayNoise, draw: Draw, places: NDArray[np.int64]) -> Drawn:
        made = np.asarray(values).view(cls)
        made.noise, made.draw, made.places = noise, draw, places
        return made

    def _like(self, values: Any, places: NDArray[np.int64]) -> Drawn:
        return Drawn.of(values, self.noise, self.draw, places)

    def __getitem__(self, key: Any) -> Any:
        found = np.asarray(self)[key]
        if np.ndim(found) == 0:
            return DrawnInt(int(found), self.noise, self.draw, int(self.places[key]))
        return self._like(found, self.places[key])

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def tolist(self) -> Any:
        return [self[i] if self.ndim == 1 else self[i].tolist() for i in range(len(self))]

    def reshape(self, *shape: Any, **kwargs: Any) -> Any:
        return self._like(np.asarray(self).reshape(*shape), self.places.reshape(*shape))

    def astype(self, *args: Any, **kwargs: Any) -> Any:
        return self._like(np.asarray(self).astype(*args, **kwargs), self.places)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **kwargs: Any) -> Any:
        drawn = [isinstance(one, Drawn) for one in inputs]
        if method != "__call__" or ufunc not in (np.add, np.subtract) or sum(drawn) != 1:
            plain = [np.asarray(one) if isinstance(one, Drawn) else one for one in inputs]
            return getattr(ufunc, method)(*plain, **kwargs)
        mine, other = inputs if drawn[0] else inputs[::-1]
        exact, sign = np.asarray(other), 1
        if ufunc is np.subtract:
            exact, sign = (-exact, 1) if drawn[0] else (exact, -1)
        shape = np.broadcast_shapes(exact.shape, mine.shape)
        if shape != mine.shape:
            raise ReplayError("one number of noise is added to two numbers")
        rows = zip(mine.places.ravel().tolist(), np.broadcast_to(exact, shape).ravel().tolist(), strict=True)
        sums = [mine.noise.add(mine.draw, place, own, sign) for place, own in rows]
        made = np.array(sums, np.result_type(exact, np.asarray(mine))).reshape(shape)
        if out is None:
            return made
        out[0][...] = made
        return out[0]


class ReplayNoise(Noise):
    """A sampler that records its draws on a tape, or replays them: then noisy numbers are those that were recorded.

    Privacy
    -------
    For tests alone. The tape holds exact numbers.

    Source
    ------
    Specification 2.5; proofs 1.5, 1.7. A shift of the noise by v - v' makes v' what v was. Of Gaussian noise, discrete
    or not, the shift costs (v - v')**2 / (2 variance) of rho, of Laplace noise (sum of |v - v'| / scale)**2 / 2 in one
    draw, of an exponential choice (rate range)**2 / 8, the range being that of the differences of costs.
    """

    def __init__(self, tape: Tape, entropy: Entropy) -> None:
        super().__init__(entropy)
        self.tape, self._source = tape, Noise(entropy)
        self._apart = False
        self._number: tuple[Draw, int] | None = None  # what the next uniform number completes

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """Draw for what only the neighbor has: neither recorded nor replayed."""
        self._apart = True
        try:
            yield
        finally:
            self._apart = False

    def add(self, draw: Draw, place: int, exact: Any, sign: int) -> Any:
        """Return the sum of an exact number and the drawn one of this place, and take down what it costs."""
        value = int(draw.values[place])
        if place in draw.exact:
            raise ReplayError(f"number {place} of a draw ({draw.sampler}, {draw.settings}) is added to two numbers")
        draw.exact[place] = exact
        if self.tape.at is None or place not in draw.noisy:
            found = exact + sign * value
            if self.tape.at is None:
                draw.noisy[place] = found
            return found
        moved = abs(Fraction(exact) - Fraction(draw.before[place]))
        if draw.sampler == "discrete_gaussian":
            draw.loss += moved**2 / (2 * draw.settings[0])
        else:
            draw.moved += moved / draw.settings[0]
            draw.loss = draw.moved**2 / 2
        return draw.noisy[place]

    def _vector(self, sampler: str, scale: Fraction | int, size: int) -> Any:
        sample = getattr(self._source, sampler)
        if self._apart:
            return sample(scale, size)
        exact = Fraction(scale)
        settings = (exact,) if self.tape.grows else (exact, size)
        draw = self.tape.next(sampler, settings, lambda: sample(scale, size))
        values = self._longer(draw.values, size, lambda more: sample(scale, more))
        if len(values) > len(draw.values):
            draw.values = values
        return Drawn.of(values, self, draw, np.arange(size))

    @staticmethod
    def _longer(values: NDArray[Any], size: int, sample: Callable[[int], NDArray[Any]]) -> NDArray[Any]:
        """Return as many values: those recorded, and new ones for what only the neighbor has."""
        return values[:size] if size <= len(values) else np.concatenate([values, sample(size - len(values))])

    def discrete_gaussian(self, variance: Fraction | int, size: int) -> NDArray[np.int64]:
        found: NDArray[np.int64] = self._vector("discrete_gaussian", variance, size)
        return found

    def discrete_laplace(self, scale: Fraction | int, size: int) -> NDArray[np.int64]:
        found: NDArray[np.int64] = self._vector("discrete_laplace", scale, size)
        return found

    def one_gaussian(self, variance: Fraction | int) -> int:
        found: int = self.discrete_gaussian(variance, 1)[0]
        return found

    def one_laplace(self, scale: Fraction | int) -> int:
        found: int = self.discrete_laplace(scale, 1)[0]
        return found

    def _random_bits(self, sampler: str, settings: tuple[Any, ...], size: int, sample: Callable[[int], Any]) -> Any:
        """Replay draws that say nothing of any record: those of the neighbor's own record come last, or alone."""
        at = self.tape.at
        if self._apart or (at is not None and [d.sampler for d in self.tape.draws[at : at + 1]] != [sampler]):
            return sample(size)
        return self._longer(self.tape.next(sampler, settings, lambda: sample(size)).values, size, sample)

    def bernoulli(self, numerators: NDArray[np.int64], denominator: int) -> NDArray[np.bool_]:
        settings: tuple[Any, ...] = (denominator, *{*numerators.tolist()})
        if "bernoulli" in self.tape.unseen:
            settings = ()
        elif len(settings) > 2:
            raise ReplayError("coins of a core are no zCDP: the caller knows what they cost")
        sample = lambda more: self._source.bernoulli(numerators[len(numerators) - more :], denominator)  # noqa: E731
        found: NDArray[np.bool_] = self._random_bits("bernoulli", settings, len(numerators), sample)
        return found

    def uniform_bits(self, bits: int, size: int) -> NDArray[np.int32]:
        found: NDArray[np.int32] = self._random_bits(
            "uniform_bits", (bits,), size, lambda more: self._source.uniform_bits(bits, more)
        )
        return found

    def uniform_integers(self, bound: int, size: int) -> NDArray[np.int64]:
        found: NDArray[np.int64] = self._random_bits(
            "uniform_integers", (bound,), size, lambda more: self._source.uniform_integers(bound, more)
        )
        return found

    def uniforms(self, size: int) -> NDArray[np.float64]:
        found: NDArray[np.float64] = self._random_bits("uniforms", (), size, self._source.uniforms)
        return found

    def normals(self, size: int) -> NDArray[np.float64]:
        found: NDArray[np.float64] = self._random_bits("normals", (), size, self._source.normals)
        return found

    def failures(self, rate: Fraction, size: int) -> NDArray[np.int64]:
        found: NDArray[np.int64] = self._random_bits(
            "failures", (rate,), size, lambda more: self._source.failures(rate, more)
        )
        return found

    def threshold_bits(self, counts: NDArray[np.int64], size: int, threshold: float, sigma: float) -> NDArray[np.bool_]:
        bits = self._source.threshold_bits(counts, size, threshold, sigma)
        if self._apart:
            return bits
        draw = self.tape.next("threshold_bits", (threshold, sigma), lambda: bits)
        centered = 2 * counts - size  # twice what noise is added to
        if self.tape.at is None:
            draw.costs = centered
            return bits
        own = _own_place(draw.costs, centered)
        others = np.arange(len(counts)) != own
        same = others if len(counts) == len(draw.values) else np.ones(len(draw.values), np.bool_)
        moved = (centered[others] - draw.costs[same]).astype(object)
        draw.loss = Fraction(int((moved**2).sum())) / (8 * Fraction(sigma) ** 2)
        bits[others] = draw.values[same]
        return bits

    def uniform_below(self, bound: int) -> int:
        if self._apart:
            return self._source.uniform_below(bound)
        pending, self._number = self._number, None
        if pending is not None:
            draw, number = pending
            if self.tape.at is None:
                if bound == int(draw.costs[0][draw.values[0]]):
                    draw.values = draw.values[0], self._source.uniform_below(bound)
                    return int(draw.values[1])
            else:
                return number
        return int(self.tape.next("uniform_below", (bound,), lambda: self._source.uniform_below(bound)).values)

    def exponential_choice(self, sizes: NDArray[np.int64], costs: NDArray[np.int64], rate: Fraction) -> int:
        if self._apart:
            return self._source.exponential_choice(sizes, costs, rate)
        total = int(sizes.sum())
        draw = self.tape.next(
            "exponential_choice", (total, rate), lambda: (self._source.exponential_choice(sizes, costs, rate), None)
        )
        ends = np.cumsum(sizes)
        if self.tape.at is None:
            draw.costs, self._number = (sizes, costs), (draw, 0)
            return int(draw.values[0])
        old_sizes, old_costs = draw.costs
        (index, offset), old_ends = draw.values, np.cumsum(old_sizes)
        places = np.union1d(ends, old_ends) - 1  # the last of every stretch on which both costs are one number
        places = places[places >= 0]
        moved = costs[np.searchsorted(ends, places, "right")] - old_costs[np.searchsorted(old_ends, places, "right")]
        draw.loss = (rate * (int(moved.max()) - int(moved.min()))) ** 2 / 8
        if offset is None:
            if len(sizes) != len(old_sizes) or (sizes != old_sizes).any():
                raise ReplayError("what an exponential choice is made from depends on more than what is released")
            return int(index)
        number = int(old_ends[index]) - int(old_sizes[index]) + offset
        chosen = int(np.searchsorted(ends, number, "right"))
        self._number = draw, number - int(ends[chosen]) + int(sizes[chosen])
        return chosen

    def exponential_answer(self, quick: Any, everything: Any, of_index: Any, rate: Fraction) -> Any:
        sizes, costs = everything()
        return of_index(self.exponential_choice(sizes, costs, rate))


def _own_place(before: NDArray[np.int64], now: NDArray[np.int64]) -> int:
    """Return where the item lies that only the neighbor has, or that is another one there; past the end if nowhere.

    Its own bit is free: whatever it is, the core has it or not. With one item more, it is where the rest fits best.
    """
    if len(now) == len(before):
        moved = np.abs(now - before)
        return int(moved.argmax()) if len(moved) and moved.max() > 2 else len(now)
    if len(now) != len(before) + 1:
        raise ReplayError(f"a core is drawn from {len(now)} items, and was from {len(before)}")
    upto = np.cumsum(np.append(0, (now[:-1] - before) ** 2))
    after = np.cumsum(np.append(0, (now[1:] - before)[::-1] ** 2))[::-1]
    return len(before) - int((upto + after)[::-1].argmin())
