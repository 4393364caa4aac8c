"""Exact samplers fed by the operating system's CSPRNG; no other module draws random numbers.

Every sampler has two forms. The plain form needs only Python integers and `decimal`: it can be checked by reading,
decides the rare draws for which 64 bits are too few, and is enough for a small device. The compiled form
(`_kernels.noise`) reads the same words in the same order and returns the same values.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
from collections.abc import Callable, Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, Shown
from .intervals import T, by_cost, inverted, quick_index

MAX_VARIANCE = 2**80
SMALLEST_RATE = Fraction(1, 2**40)
"""Smallest probability of coins whose failures are skipped."""
MAX_BLOCKS = 2**24
"""Largest number of blocks of which a point draws one."""
TAIL_CUTOFF = 13.06
"""Number of standard deviations beyond which a normal tail is below 2**-128 and counts as 0."""
_FEW_VARIANCES = 256
FAR = 25.0
"""Candidates of an exponential choice that weigh less than exp(-25) together are seldom looked at."""
_PI = Decimal(
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798214808651"
)


class Entropy(Protocol):
    """Source of random words. `private` says whether releases drawn from it may be published."""

    private: bool

    def words(self, count: int) -> NDArray[np.uint64]: ...


class SystemEntropy:
    """Entropy from the operating system's CSPRNG (specification 2.4).

    No words are kept between calls, so a forked process does not repeat any.
    """

    private = True

    def words(self, count: int) -> NDArray[np.uint64]:
        return np.frombuffer(os.urandom(8 * count), np.uint64)


class SeededEntropy:
    """Repeatable words for tests and simulations; releases drawn from them are not private (specification 2.4)."""

    private = False

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Philox(seed)

    def words(self, count: int) -> NDArray[np.uint64]:
        words = np.asarray(self._generator.random_raw(count), np.uint64)
        words.flags.writeable = False  # like the system's words: compiled code has a version for each kind of array
        return words


class _WordReader:
    """Reader of single words: first the given words, then fresh ones."""

    def __init__(self, entropy: Entropy, given: NDArray[np.uint64] | None = None) -> None:
        self._entropy = entropy
        self._given: list[int] = [] if given is None else given.tolist()
        self._next = 0

    def __call__(self) -> int:
        if self._next == len(self._given):
            self._given = self._entropy.words(16).tolist()
            self._next = 0
        self._next += 1
        return self._given[self._next - 1]

    def rest(self) -> NDArray[np.uint64]:
        return np.array(self._given[self._next :], np.uint64)


Source = Callable[[], int]


def _uniform_below(bound: int, word: Source) -> int:
    """Draw a uniform integer in [0, bound), bound <= 2**63, by masked rejection with one word per attempt."""
    mask = (1 << (bound - 1).bit_length()) - 1
    while True:
        value = word() & mask
        if value < bound:
            return value


def _uniform_is_below(first_word: int, bounds: Iterator[tuple[Decimal, Decimal]], more: Source) -> bool:
    """Decide whether a uniform number in [0, 1) with these first 64 bits is below a real number.

    `bounds` yields ever closer lower and upper bounds of the real number, and `more` yields further words of bits.
    """
    digits, bits = first_word, 64
    for low, high in bounds:
        with localcontext() as context:
            context.prec = 400
            if Decimal(digits + 1) <= low * (1 << bits):
                return True
            if Decimal(digits) >= high * (1 << bits):
                return False
        digits, bits = (digits << 64) | more(), bits + 64
    raise AssertionError("the bounds never end")  # pragma: no cover


def _exp_bounds(exponent: Fraction) -> Iterator[tuple[Decimal, Decimal]]:
    """Yield ever closer decimal bounds of exp(-exponent)."""
    digits = 40
    while True:
        with localcontext() as context:
            context.prec = digits
            value = (-(Decimal(exponent.numerator) / Decimal(exponent.denominator))).exp()
            # decimal's exp is correctly rounded; the rounded exponent moves it by exponent * 10**(1 - digits).
            error = value * (Decimal(2) + Decimal(math.ceil(exponent))) * Decimal(10) ** (1 - digits)
            yield value - error, value + error
        digits += 30


def normal_tail(x: Fraction) -> Decimal:
    """Compute the upper tail of the standard normal at x, for 0 <= x < 14, to at least 60 significant digits.

    Source
    ------
    Specification 2.6; proof 3.9; upper tail = 1/2 - phi(x) * sum of x**(2k+1) / (2k+1)!! (all terms positive; Marsaglia
    2004), with enough guard digits for the cancellation: the tail is at least 1e-45 there.
    """
    with localcontext() as context:
        context.prec = 120
        value = Decimal(x.numerator) / Decimal(x.denominator)
        square = value * value
        term = total = value
        k = 1
        while term > total * Decimal(10) ** -118:
            k += 2
            term = term * square / k
            total += term
        density = (-square / 2).exp() / (2 * _PI).sqrt()
        return Decimal("0.5") - density * total


def laplace_draw(scale: Fraction, word: Source, more: Source | None = None) -> int:
    """Draw one exact discrete Laplace number: P(y) is proportional to exp(-|y| / scale).

    Privacy
    -------
    Added to an integer query of sensitivity s it is (s / scale)-DP. The draw is exact: no floating-point number decides
    it. Not covered: the run time, which depends on the value drawn.

    Source
    ------
    Specification 2.5; proof 1.5; Canonne, Kamath, Steinke 2020, Algorithm 2.
    """
    numerator, denominator = scale.numerator, scale.denominator
    more = more or word
    while True:
        u = _uniform_below(numerator, word)
        if not _uniform_is_below(word(), _exp_bounds(Fraction(u, numerator)), more):
            continue
        v = 0
        while _uniform_is_below(word(), _exp_bounds(Fraction(1)), more):
            v += 1
        y = (u + numerator * v) // denominator
        negative = word() & 1
        if negative and y == 0:
            continue
        return -y if negative else y


def gaussian_draw(variance: Fraction, word: Source, more: Source | None = None) -> int:
    """Draw one exact discrete Gaussian number: P(y) is proportional to exp(-y**2 / (2 variance)).

    Privacy
    -------
    Added to an integer query of l2 sensitivity s it is s**2 / (2 variance)-zCDP, vectors included. The draw is exact:
    no floating-point number decides it. Not covered: the run time, which depends on the value drawn.

    Source
    ------
    Specification 2.5; proof 1.5; Canonne, Kamath, Steinke 2020, Algorithm 3 and Theorem 14.
    """
    more = more or word
    scale = math.isqrt(variance.numerator // variance.denominator) + 1
    while True:
        y = laplace_draw(Fraction(scale), word, more)
        gap = abs(y) - variance / scale
        if _uniform_is_below(word(), _exp_bounds(gap * gap / (2 * variance)), more):
            return y


def geometric_draw(rate: Fraction, word: int, more: Source) -> int:
    """Draw the number of failures before the first success of coins with probability `rate`.

    The draw is exact. `word` and as many further words as the comparison needs are the leading bits of a uniform number
    U, and there are at least k failures if and only if U <= (1 - rate)**k.

    Privacy
    -------
    Coins choose pairs of records and must not depend on data. Their users state what they cost.

    Source
    ------
    Specification 2.5; inversion of the geometric law, with as many digits as the comparison needs.
    """
    bits, digits = 64, 40 + 2 * len(str(rate.denominator))  # 1 - rate may differ from 1 in its last digits only
    while True:
        with localcontext() as context:
            context.prec = digits
            stay = Decimal((1 - rate).numerator) / Decimal((1 - rate).denominator)
            slack = Decimal(10) ** (8 + len(str(rate.denominator)) - digits)
            bounds = []
            for end in (word + 1, word):
                if end == 0:
                    break
                value = (Decimal(end) / Decimal(2**bits)).ln() / stay.ln()
                bounds.append(
                    max(Decimal(0), value * (1 - slack) - slack) if end > word else value * (1 + slack) + slack
                )
            if len(bounds) == 2 and math.floor(bounds[0]) == math.floor(bounds[1]):
                return math.floor(bounds[0])
        word, bits, digits = (word << 64) | more(), bits + 64, digits + 40


def sampleable(scale: Fraction) -> Fraction:
    """Return a scale of Laplace noise that the sampler can use: the given one, or a slightly larger one.

    The sampler needs a numerator below 2**55.

    Raises
    ------
    ConfigError
        The scale is not in (0, 2**40].

    Privacy
    -------
    The result is a function of public numbers; a larger scale than the given one costs no more.

    Source
    ------
    Specification 2.5; proof 1.5; ours.
    """
    found = scale if scale.numerator < 2**55 else Fraction(math.ceil(scale * 2**12), 2**12)
    if not 0 < found <= 2**40:
        raise ConfigError(f"must be larger: it asks for noise of scale {float(scale):.3g}, above 2**40", "release.rho")
    return found


@functools.cache
def _kernels() -> Any:
    """Import the compiled samplers at first use; None where Numba is not installed, as on a small device."""
    try:
        from .._kernels import noise
    except ImportError:
        return None
    return noise


class Noise:
    """Sampler of exact noise from one source of entropy (specification 2.4, 2.5).

    Parameters
    ----------
    entropy : Entropy, optional
        The operating system's CSPRNG by default. `SeededEntropy` is for tests; releases drawn from it hold
        ``private: false``.
    """

    def __init__(self, entropy: Entropy | None = None) -> None:
        self._entropy = entropy or SystemEntropy()
        # What the compiled sampler is given for variances, by the identity of the object, which is kept for that.
        self._prepared: dict[int, tuple[object, Fraction, tuple[int, float]]] = {}

    @property
    def private(self) -> bool:
        return self._entropy.private

    @property
    def entropy(self) -> Entropy:
        """Source of the random words."""
        return self._entropy

    def discrete_gaussian(self, variance: Fraction | int, size: int) -> NDArray[np.int64]:
        """Draw `size` independent discrete Gaussian numbers of the given variance parameter (at most 2**80), int64.

        Privacy
        -------
        Added to an integer vector of l2 sensitivity s they are s**2 / (2 variance)-zCDP.

        Complexity
        ----------
        About eleven 64-bit words and 0.2 microseconds per draw.

        Source
        ------
        Specification 2.5; proof 1.5; Canonne, Kamath, Steinke 2020, Algorithm 3, with lazily compared uniforms.
        """
        known = self._prepared.get(id(variance))
        if known is not None and known[0] is variance:
            _, exact, settings = known
        else:
            exact = variance if isinstance(variance, Fraction) else Fraction(variance)
            numerator, denominator = exact.numerator, exact.denominator
            if not 0 < numerator <= MAX_VARIANCE * denominator:
                raise ConfigError("must be in (0, 2**80]", "variance", got=Shown(f"{float(exact):.3g}"))
            settings = math.isqrt(numerator // denominator) + 1, numerator / denominator
            if len(self._prepared) >= _FEW_VARIANCES:
                self._prepared.clear()
            self._prepared[id(variance)] = variance, exact, settings
        kernels = _kernels()
        if kernels is None:
            return self._plain(size, lambda word: gaussian_draw(exact, word))
        return self._fill(np.empty(size, np.int64), 12, kernels.discrete_gaussian, settings, gaussian_draw, exact)

    def discrete_laplace(self, scale: Fraction | int, size: int) -> NDArray[np.int64]:
        """Draw `size` independent discrete Laplace numbers, P(y) proportional to exp(-|y| / scale), int64.

        Privacy
        -------
        Added to an integer vector of l1 sensitivity s they are (s / scale)-DP.

        Source
        ------
        Specification 2.5; proof 1.5; Canonne, Kamath, Steinke 2020, Algorithm 2, with lazily compared uniforms.
        """
        exact = Fraction(scale)
        if not 0 < exact <= 2**40 or exact.numerator >= 2**55:
            raise ConfigError("must be in (0, 2**40] with a numerator below 2**55", "scale", got=exact)
        kernels = _kernels()
        if kernels is None:
            return self._plain(size, lambda word: laplace_draw(exact, word))
        settings = exact.numerator, exact.denominator
        return self._fill(np.empty(size, np.int64), 8, kernels.discrete_laplace, settings, laplace_draw, exact)

    def one_gaussian(self, variance: Fraction | int) -> int:
        """Draw one number as `discrete_gaussian` does: an int."""
        return int(self.discrete_gaussian(variance, 1)[0])

    def one_laplace(self, scale: Fraction | int) -> int:
        """Draw one number as `discrete_laplace` does: an int."""
        return int(self.discrete_laplace(scale, 1)[0])

    def bernoulli(self, numerators: NDArray[np.int64], denominator: int) -> NDArray[np.bool_]:
        """Draw independent coins, True with probability exactly numerators[i] / denominator (clipped to [0, 1]).

        Privacy
        -------
        The probabilities are exact rational numbers. The caller states what the coins cost.

        Source
        ------
        Specification 2.5; masked rejection on whole words; points at 0 or 1 use none.
        """
        if not 0 < denominator < 2**62:
            raise ConfigError("must be in (0, 2**62)", "denominator", got=denominator)
        return self._fill(np.empty(len(numerators), np.bool_), 2, _kernels().bernoulli, (numerators, denominator))

    def uniform_bits(self, bits: int, size: int) -> NDArray[np.int32]:
        """Draw independent uniform integers of `bits` <= 24 random bits each, int32 (size,)."""
        words = self._entropy.words((size + 1) // 2).view(np.uint32)[:size]
        return (words & np.uint32((1 << bits) - 1)).astype(np.int32)

    def uniform_integers(self, bound: int, size: int) -> NDArray[np.int64]:
        """Draw independent uniform integers in [0, bound), bound <= 2**62, int64 (size,).

        Source
        ------
        Specification 2.5; masked rejection, a word a try.
        """
        if not 1 <= bound <= 2**62:
            raise ConfigError("must be in [1, 2**62]", "bound", got=bound)
        mask, found, held = np.uint64((1 << (bound - 1).bit_length()) - 1), np.empty(size, np.int64), 0
        while held < size:
            values = (self._entropy.words(size - held) & mask).astype(np.int64)
            values = values[values < bound]
            found[held : held + len(values)] = values
            held += len(values)
        return found

    def uniforms(self, size: int) -> NDArray[np.float64]:
        """Draw independent multiples of 2**-53, uniform in [0, 1): float64 (size,).

        Privacy
        -------
        The numbers are rounded. Use them only for post-processing, and for draws whose users state the limits of
        floating point.

        Source
        ------
        Specification 2.5; the first 53 bits of a word.
        """
        return (self._entropy.words(size) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def normals(self, size: int) -> NDArray[np.float64]:
        """Draw independent standard normal numbers in floating point: float64 (size,).

        Privacy
        -------
        Never add them to data, because rounded noise reveals data. They are for the same draws as `uniforms`.

        Source
        ------
        Specification 2.5; Box and Muller 1958.
        """
        first, second = 1.0 - self.uniforms(size), self.uniforms(size)
        found: NDArray[np.float64] = np.sqrt(-2.0 * np.log(first)) * np.cos(2.0 * math.pi * second)
        return found

    def failures(self, rate: Fraction, size: int) -> NDArray[np.int64]:
        """Draw how often independent coins of probability `rate` fail before each success: int64 (size,).

        `rate` is in [2**-40, 1]. The numbers are exact geometric numbers, except that those above 2**62 become 2**62.

        Source
        ------
        Specification 2.5; inversion of a uniform number, decided from 64 bits with room for every rounding, else with
        exact arithmetic.
        """
        if not SMALLEST_RATE <= rate <= 1:
            raise ConfigError("must be in [2**-40, 1]", "rate", got=Shown(f"{float(rate):g}"))
        if rate == 1:
            return np.zeros(size, np.int64)
        stay = 1 - rate
        log_stay = math.log1p(-float(rate)) if rate <= Fraction(1, 2) else math.log(stay)
        words, found = self._entropy.words(size), np.empty(size, np.int64)
        _kernels().skips(words, log_stay, found)
        for i in np.flatnonzero(found < 0).tolist():
            found[i] = min(2**62, geometric_draw(rate, int(words[i]), _WordReader(self._entropy)))
        return found

    def threshold_bits(self, counts: NDArray[np.int64], size: int, threshold: float, sigma: float) -> NDArray[np.bool_]:
        """Draw independent bits that say if counts[i] - size / 2 + N(0, sigma**2) >= threshold, N a CONTINUOUS normal.

        Parameters
        ----------
        counts : int64 (n,)
        size : int
            The private n of the friend counts.
        threshold, sigma : float
            Doubles that are functions of released values only; they are used as exact numbers.

        Privacy
        -------
        Post-processing of a Gaussian mechanism with standard deviation `sigma`, except that probabilities have
        relative error below 2**-100 and those below 2**-128 count as 0: together 1e-15 of delta for n < 2**40 and
        sigma >= 1, charged as `fcstream.cores.filters.BIT_DELTA`.

        Source
        ------
        Specification 2.6; proof 3.9; ours: only the bit leaves, so the tail probability suffices.
        """
        n = len(counts)
        if n == 0:
            return np.empty(0, np.bool_)
        kernels = _kernels()
        bits = np.empty(n, np.uint8)
        words = self._entropy.words((n + 3) // 4).view(np.uint16)
        if kernels.threshold_bits(words, counts, size, threshold, sigma, TAIL_CUTOFF, bits):
            for i in np.flatnonzero(bits == 2).tolist():
                bits[i] = self._slow_bit(int(counts[i]), size, threshold, sigma, int(words[i]))
        return bits.view(np.bool_)

    def uniform_below(self, bound: int) -> int:
        """Draw an exactly uniform integer in [0, bound), bound <= 2**63."""
        if not 1 <= bound <= 2**63:
            raise ConfigError("must be in [1, 2**63]", "bound", got=bound)
        return _uniform_below(bound, _WordReader(self._entropy))

    def exponential_choice(self, sizes: NDArray[np.int64], costs: NDArray[np.int64], rate: Fraction) -> int:
        """Draw an index i with a probability exactly proportional to sizes[i] exp(-rate costs[i]).

        Parameters
        ----------
        sizes : int64 (n,)
            How many equal candidates each index stands for, >= 0; their sum is in [1, 2**62].
        costs : int64 (n,)
        rate : Fraction
            Positive.

        Privacy
        -------
        If one record moves the costs by amounts that differ by at most s, the draw has (rate s)-bounded range, so it is
        (rate s)**2 / 8-zCDP.

        Complexity
        ----------
        A pass over all indices, and a sort of those whose cost is near the smallest one; once in millions of draws, or
        where many candidates cost much, some 10 microseconds for each index within about 100 / rate of it.

        Source
        ------
        Specification 2.5; proof 1.7; exponential mechanism (McSherry and Talwar 2007), by inversion of a uniform number
        that is compared with rigorous bounds, more digits being computed until they decide. zCDP of bounded range:
        Cesar and Rogers 2021.
        """
        total = int(sizes.sum())
        if not (rate > 0 and total > 0):
            raise ConfigError("must hold a candidate, and the rate be positive", "sizes")
        # Nearly always it is one of those that cost little; all others together weigh little.
        most, least = min(math.ceil((FAR + math.log(total)) / float(rate)) + 1, 2**62), int(costs.min())
        order = by_cost(sizes, costs, np.flatnonzero(costs <= least + most))
        order = order if len(order) else by_cost(sizes, costs, np.arange(len(sizes)))
        near = sizes[order], costs[order] - costs[order[0]]
        beyond = math.exp(min(float(rate) * (int(costs[order[0]]) - least) - FAR, 700.0))

        def quick(drawn: int, bits: int) -> int | None:
            found = quick_index(drawn, bits, *near, rate, beyond)
            return None if found is None else int(order[found])

        return self.exponential_answer(quick, lambda: (sizes, costs), int, rate)

    def exponential_answer(
        self,
        quick: Callable[[int, int], T | None],
        everything: Callable[[], tuple[NDArray[np.int64], NDArray[np.int64]]],
        of_index: Callable[[int], T],
        rate: Fraction,
    ) -> T:
        """Return what belongs to the index that `exponential_choice` draws from everything() = sizes, costs.

        Parameters
        ----------
        quick : callable
            ``quick(drawn, bits)`` returns it for the uniform number drawn / 2**bits, or None where it is not certain.
        everything, of_index : callable
            Called only then: for sizes and costs, and for what belongs to an index.
        rate : Fraction

        Privacy
        -------
        As `exponential_choice`, if `quick` is certain.

        Source
        ------
        Specification 2.5; proof 1.7.
        """
        return inverted(_WordReader(self._entropy), quick, everything, of_index, rate)

    def _slow_bit(self, count: int, size: int, threshold: float, sigma: float, first16: int) -> bool:
        """Decide the bit of one point exactly, where its first 16 random bits are not enough."""
        x = (Fraction(threshold) - count + Fraction(size, 2)) / Fraction(sigma)
        if abs(x) > Fraction(TAIL_CUTOFF):
            return x < 0
        more = _WordReader(self._entropy)
        first = (first16 << 48) | (more() >> 16)
        near = math.ldexp(0.5 * math.erfc(float(abs(x)) * math.sqrt(0.5)), 64)
        if abs(first - near) > near * 1e-9 + 4096.0:  # covers the errors of x, of erfc and of `first` many times over
            return (first < near) == (x >= 0)
        # The error of 60 correct digits is far below the 2**-100 that is charged for, so they serve as the exact tail.
        tail = normal_tail(abs(x))
        return _uniform_is_below(first, itertools.repeat((tail, tail)), more) == (x >= 0)

    def _plain(self, size: int, draw: Callable[[Source], int]) -> NDArray[np.int64]:
        """Draw, more slowly, the values that the compiled sampler would draw from the same words."""
        reader = _WordReader(self._entropy)
        return np.array([draw(reader) for _ in range(size)], np.int64)

    def _fill(
        self,
        out: NDArray[Any],
        words_each: int,
        kernel: Callable[..., tuple[int, int, int]],
        settings: tuple[Any, ...],
        exact_draw: Callable[[Fraction, Source, Source], int | list[int]] | None = None,
        exact: Fraction | None = None,
    ) -> NDArray[Any]:
        """Run a kernel until `out` is full: ``kernel(words, number of draws that are done, *settings, out)``.

        It gets more words when it has used up its own, and exact arithmetic decides where 64 bits do not:
        ``exact_draw(exact, word, more)``.
        """
        done, n = 0, len(out)
        words = self._entropy.words(words_each * n + 32)
        while True:
            if words.flags.writeable:  # those that come later: compiled code has a version for each kind
                words = words[:]
                words.flags.writeable = False
            done, used, status = kernel(words, done, *settings, out)
            if status == 0:
                return out
            words = words[used:]
            if status == 2 and exact_draw is not None and exact is not None:
                reader = _WordReader(self._entropy, words)
                out[done] = exact_draw(exact, reader, lambda: int(self._entropy.words(1)[0]))
                words = reader.rest()
                done += 1
                if done == n:
                    return out
            else:
                words = np.concatenate([words, self._entropy.words(words_each * (n - done) + 64)])
