"""Exact noise for devices: Gaussians of many deviations at once, and pure geo-privacy on a lattice.

The plain samplers need numpy only. Where Numba is installed, a compiled twin of each reads the same random words in the
same order and yields the same values.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from ..noise.samplers import Entropy, Noise, Source, _exp_bounds, _uniform_is_below, _WordReader, laplace_draw
from ..noise.samplers import _kernels as _noise_kernels
from ..stream.lattice import sqrt_up

MAX_DIMENSIONS = 10
"""The most dimensions of pure geo-privacy: 9% of the proposals are accepted there, and fewer beyond."""
_PREFIX = 31  # bits of a word that choose the bin
_BINS = 8
_CHUNK = 1 << 15
_LARGEST_VARIANCE = 2**44
_QUARTER = 16  # bits of a word's quarter; the first of a draw holds the sign and 15 digits
_ENDS_A_TABLE = 2**15


@functools.cache
def _kernels() -> Any:
    """The compiled twins, or None where Numba is not installed."""
    try:
        from .._kernels import local
    except ImportError:
        return None
    return local


@functools.lru_cache(maxsize=8)
def _bin_ends(digits: int) -> tuple[Decimal, ...]:
    """P(bin <= k) for k = 0, 1, ... with P(bin = k) proportional to exp(-k**2 / 2), correct to `digits` digits."""
    with localcontext() as context:
        context.prec = digits + 20
        weights, k = [Decimal(1)], 1
        while weights[-1] > Decimal(10) ** -(digits + 10):
            weights.append((Decimal(-k * k) / 2).exp())
            k += 1
        total, ends, below = sum(weights), [], Decimal(0)
        for weight in weights:
            below += weight
            ends.append(below / total)
        return tuple(ends)


@functools.cache
def _table() -> NDArray[np.int64]:
    return np.array([math.floor(end * (1 << _PREFIX)) for end in _bin_ends(40)[:_BINS]], np.int64)


def _bin(digits: int, more: Source) -> int:
    """The bin of a uniform number whose first 31 bits are given."""
    bits = _PREFIX
    while True:
        ends = _bin_ends(40 + bits // 3)
        with localcontext() as context:
            context.prec = 60 + bits
            slack = Decimal(10) ** -(38 + bits // 3)
            low, high = Decimal(digits) / (1 << bits), Decimal(digits + 1) / (1 << bits)
            for k, end in enumerate(ends):
                if high <= end - slack and (k == 0 or low >= ends[k - 1] + slack):
                    return k
        digits, bits = (digits << 64) | more(), bits + 64


def gaussian_bin_draw(variance: Fraction, approximate: float, word: Source, more: Source) -> int:
    """One exact discrete Gaussian draw: P(y) proportional to exp(-y**2 / (2 variance)).

    Parameters
    ----------
    variance : Fraction
    approximate : float
        The variance as a double, for proposals only. Public, and the same in the compiled twin.
    word, more : Source
        Words of entropy; `more` for digits that a comparison needs beyond the first word.

    Privacy
    -------
    Added to an integer vector that moves by at most s per unit of distance, in l2, it gives (s**2 / (2
    variance))-concentrated geo-privacy, for all pairs of values. The draw is exact: no floating-point number decides
    it. Not covered: the run time, which depends on the value drawn.

    Source
    ------
    Specification 11.3; proof 10.2; after Karney 2016, Sampling exactly from the normal distribution, Algorithm D: a bin
    k of one deviation with probability proportional to exp(-k**2 / 2), an integer of the bin with equal chances, kept
    with probability exp(-(y**2 / variance - k**2) / 2). Ours: the bin from a table, and rational bins for the integers.
    """
    deviation = math.sqrt(approximate)
    width = int(deviation) + 4
    while True:
        first = word()
        k = _bin((first >> 32) & 0x7FFFFFFF, more)
        product = (first & 0xFFFFFFFF) * width
        if product & 0xFFFFFFFF < (1 << 32) % width:
            continue
        y = max(0, int(k * deviation) - 1) + (product >> 32)
        if not k * k * variance <= y * y < (k + 1) ** 2 * variance:
            continue
        negative = first >> 63
        if y == 0 and negative:
            continue
        if _uniform_is_below(word(), _exp_bounds((y * y / variance - k * k) / 2), more):
            return -y if negative else y


@functools.lru_cache(maxsize=128)
def gaussian_ends(variance: Fraction, bits: int) -> tuple[int, ...]:
    """floor(2**bits P(|Y| <= m)) for m = 0, 1, ... until the last is 2**bits - 1; Y discrete Gaussian. Public.

    Source
    ------
    Specification 11.3; ours: weights by their ratios in integers of `bits` + 96 binary digits, rounded down; a bound of
    all that was lost tells whether every digit is right, and more digits are taken until it does.
    """
    places = bits + 96
    while True:
        with localcontext() as context:
            context.prec = places  # far more than `places` bits
            one = Decimal(1 << places)
            root = (-Decimal(variance.denominator) / Decimal(2 * variance.numerator)).exp()
            ratio, fall = int(root * one), int(root * root * one)
        # ratio = w(1) / w(0); every ratio of neighbors is the one before times `fall`, both wrong by at most 2 in the
        # last place. After j steps a ratio lacks at most 3 j + 2, a weight 3 (j + 1)**2, and what is never added
        # less than 4 (j + 2)**3.
        weight, sums = ratio, [1 << places]
        while weight:
            sums.append(sums[-1] + 2 * weight)
            ratio = ratio * fall >> places
            weight = weight * ratio >> places
        lost, total = 16 * (len(sums) + 2) ** 3, sums[-1]
        ends: list[int] = []
        for below in sums:
            end = (below << bits) // (total + lost)
            if end != min((1 << bits) - 1, ((below + lost) << bits) // total):
                break
            ends.append(end)
            if end == (1 << bits) - 1:
                return tuple(ends)
        places += 64


def gaussian_table_draw(variance: Fraction, quarter: Source) -> int:
    """One exact discrete Gaussian draw: P(y) proportional to exp(-y**2 / (2 variance)), for small variances.

    Parameters
    ----------
    variance : Fraction
    quarter : Source
        Quarters of words, 16 bits each: a sign and 15 digits of a uniform number, and more digits if these do not
        decide.

    Privacy
    -------
    The guarantee is that of `gaussian_bin_draw`. The draw is exact: integers decide it. Not covered: memory access and
    run time, which depend on the value drawn.

    Source
    ------
    Specification 11.3; proof 10.2; inversion, with as many digits as the comparison needs.
    """
    first = quarter()
    digits, bits = first & 0x7FFF, _QUARTER - 1
    while True:
        ends = gaussian_ends(variance, bits)
        y = bisect.bisect_left(ends, digits)
        if digits < ends[y]:
            return -y if first >> 15 else y
        digits, bits = (digits << _QUARTER) | quarter(), bits + _QUARTER


def gaussians(noise: Noise, numerator: int, denominators: NDArray[np.int64], per: int) -> NDArray[np.int64]:
    """Discrete Gaussians, `per` for each denominator, with variances numerator / denominators[i]: int64 (n, per).

    Tables serve where many draws share a small variance. The choice depends on public numbers only.

    Privacy
    -------
    The guarantee is that of `gaussian_bin_draw` for each row; all draws are independent.

    Complexity
    ----------
    About three words and 30 ns a draw; a quarter of a word and 2 ns, beside what words take, where many draws share a
    small variance, after 10 us for each unit of its deviation.

    Source
    ------
    Specification 11.3; proof 10.2; `gaussian_table_draw` and `gaussian_bin_draw`; Canonne, Kamath, Steinke 2020 for
    variances of 2**44 and more.
    """
    n = len(denominators)
    out = np.empty(n * per, np.int64)
    if n == 0 or per == 0:
        return out.reshape(n, per)
    if numerator <= 0 or int(denominators.min()) <= 0:
        raise ConfigError("must be positive: a question that costs nothing gets no answer", "variance")
    common = math.gcd(numerator, int(np.gcd.reduce(denominators)))
    numerator, denominators = numerator // common, denominators // common
    if numerator >= _LARGEST_VARIANCE * int(denominators.min()) or numerator >= 2**62:
        drawn = [noise.discrete_gaussian(Fraction(numerator, int(d)), per) for d in denominators.tolist()]
        return np.array(drawn, np.int64).reshape(n, per)
    shared = _shared(numerator, denominators, per)
    if shared is not None:
        _from_tables(noise, [Fraction(numerator, d) for d in shared[0]], shared[1], per, out)
        return out.reshape(n, per)
    _from_bins(noise, numerator, denominators, per, out)
    return out.reshape(n, per)


def _from_bins(noise: Noise, numerator: int, denominators: NDArray[np.int64], per: int, out: NDArray[np.int64]) -> None:
    """Fill out (n * per,) by `gaussian_bin_draw`, row i with variance numerator / denominators[i]."""
    entropy, kernels = noise.entropy, _kernels()
    if kernels is None:
        reader = _WordReader(entropy)
        for i in range(len(out)):
            out[i] = _one(numerator, int(denominators[i // per]), reader, reader)
        return
    table = _table()
    rows = max(1, _CHUNK // per)
    words = np.empty(0, np.uint64)
    for start in range(0, len(denominators), rows):
        part, target = denominators[start : start + rows], out[start * per : (start + rows) * per]
        done = 0
        while done < len(target):
            if len(words) < 64:
                words = np.concatenate([words, entropy.words(3 * min(len(target) - done, _CHUNK) + 256)])
            done, used, status = kernels.gaussians(words, done, numerator, part, table, target)
            words = words[used:]
            if status == 2:
                reader = _WordReader(entropy, words)
                target[done] = _one(numerator, int(part[done // per]), reader, lambda: int(entropy.words(1)[0]))
                words, done = reader.rest(), done + 1
            elif status == 1:
                words = np.concatenate([words, entropy.words(3 * min(len(target) - done, _CHUNK) + 256)])


def _shared(numerator: int, denominators: NDArray[np.int64], per: int) -> tuple[list[int], NDArray[np.int64]] | None:
    """Distinct denominators and which of them each row has, if every table entry serves twelve draws."""
    n = len(denominators)
    if denominators.min() == denominators.max():
        found, which = denominators[:1], np.zeros(n, np.int64)
    elif len(np.unique(denominators[:1024])) > 256:
        return None
    else:
        found, which = np.unique(denominators, return_inverse=True)
    sizes = [10 * (math.isqrt(numerator // d) + 2) for d in found.tolist()]
    if max(sizes) > _ENDS_A_TABLE or 12 * sum(sizes) > n * per:
        return None
    return found.tolist(), which


@functools.lru_cache(maxsize=128)
def _lookup(variance: Fraction) -> tuple[NDArray[np.uint16], NDArray[np.uint64]]:
    """For each 15 digits 2 m, m the first whose end is not below, plus 1 if they do not decide; 63-bit ends."""
    fine = np.array(gaussian_ends(variance, 4 * _QUARTER - 1), np.uint64)
    coarse = (fine >> np.uint64(3 * _QUARTER)).astype(np.int64)
    digits = np.arange(1 << (_QUARTER - 1))
    m = np.searchsorted(coarse, digits)
    return (2 * m + (coarse[m] == digits)).astype(np.uint16), fine


class _QuarterReader:
    """Reads quarters of words, those given first."""

    def __init__(self, entropy: Entropy, given: NDArray[np.uint16] | None = None) -> None:
        self._entropy = entropy
        self._rest: list[int] = [] if given is None else given[::-1].tolist()

    def __call__(self) -> int:
        if not self._rest:
            self._rest = self._entropy.words(16).view(np.uint16)[::-1].tolist()
        return self._rest.pop()

    def rest(self) -> NDArray[np.uint16]:
        return np.array(self._rest[::-1], np.uint16)


def _from_tables(
    noise: Noise, variances: list[Fraction], which: NDArray[np.int64], per: int, out: NDArray[np.int64]
) -> None:
    """Fill out (n * per,) by `gaussian_table_draw`, row i with variances[which[i]]."""
    entropy, kernels = noise.entropy, _kernels()
    if kernels is None:
        quarter = _QuarterReader(entropy)
        for i in range(len(out)):
            out[i] = gaussian_table_draw(variances[which[i // per]], quarter)
        return
    tables = [_lookup(variance) for variance in variances]
    starts = np.cumsum([0] + [len(fine) for _, fine in tables])
    lookup, fine = (np.concatenate([table[k] for table in tables]) for k in range(2))
    rows = max(1, _CHUNK // per)
    quarters = np.empty(0, np.uint16)
    for start in range(0, len(which), rows):
        part, target = which[start : start + rows], out[start * per : (start + rows) * per]
        done = 0
        while done < len(target):
            missing = len(target) - done + (len(target) - done) // 16 + 16 - len(quarters)
            if missing > 0:
                quarters = np.concatenate([quarters, entropy.words(missing // 4 + 1).view(np.uint16)])
            done, used, status = kernels.table_gaussians(quarters, done, part, starts, lookup, fine, target)
            quarters = quarters[used:]
            if status == 2:
                quarter = _QuarterReader(entropy, quarters)
                target[done] = gaussian_table_draw(variances[part[done // per]], quarter)
                quarters, done = quarter.rest(), done + 1


def _one(numerator: int, denominator: int, word: Source, more: Source) -> int:
    return gaussian_bin_draw(Fraction(numerator, denominator), float(numerator) / float(denominator), word, more)


def _falling_bounds(rate: Fraction, square: int, less: Fraction) -> Iterator[tuple[Decimal, Decimal]]:
    """Closer and closer bounds of exp(-(rate sqrt(square) - less)), whose exponent is at most 0."""
    digits = 40
    while True:
        with localcontext() as context:
            context.prec = digits
            root = Decimal(square).sqrt() * rate.numerator / rate.denominator
            other = Decimal(less.numerator) / Decimal(less.denominator)
            exponent = other - root
            slack = (root + other + 1) * Decimal(10) ** (4 - digits)
            value = exponent.exp()
            yield value * (1 - 2 * slack), min(Decimal(1), value * (1 + 2 * slack))
        digits += 30


def lattice_laplace_draw(rate: Fraction, dimension: int, word: Source, more: Source) -> list[int]:
    """One exact draw on the integer lattice: P(z) proportional to exp(-rate |z|), |z| the Euclidean length.

    Privacy
    -------
    Added to a lattice point it gives rate-geo-privacy per lattice step, with delta = 0, for all pairs of lattice
    points, because the sum of the weights is the same around every point. The draw is exact: no floating-point number
    decides it. Not covered: the run time, which depends on the value drawn.

    Source
    ------
    Specification 11.3; proof 10.2; erratum 3.10; ours. Proposals are discrete Laplace in every coordinate, of a
    rational scale t >= sqrt(dimension) / rate, kept with probability exp(-(rate |z|_2 - |z|_1 / t)), which is at most 1
    as |z|_1 <= sqrt(dimension) |z|_2. Drawing a radius and a direction in floating point (Liang and Yi, after Andres et
    al. 2013) leaks.
    """
    _check_dimension(dimension)
    scale = _proposal(rate, dimension)
    while True:
        z = [laplace_draw(scale, word, more) for _ in range(dimension)]
        if dimension == 1:
            return z
        square, plain = sum(x * x for x in z), sum(abs(x) for x in z)
        if _uniform_is_below(word(), _falling_bounds(rate, square, plain / scale), more):
            return z


def _check_dimension(dimension: int) -> None:
    if not 1 <= dimension <= MAX_DIMENSIONS:
        raise ConfigError(
            f"must be in [1, {MAX_DIMENSIONS}] for pure geo-privacy",
            "dimension",
            got=dimension,
            remedy="charge `rho` instead",
        )


@functools.lru_cache(maxsize=256)
def _proposal(rate: Fraction, dimension: int) -> Fraction:
    """Scale of the discrete Laplace proposals."""
    return 1 / rate if dimension == 1 else _coarse_up(sqrt_up(dimension) / rate)


def _coarse_up(value: Fraction) -> Fraction:
    """A fraction with few bits that is at least `value`, and relatively at most 2**-18 more."""
    shift = max(0, 20 - max(0, math.floor(value).bit_length()))
    if value < 1:
        shift += (math.ceil(1 / value)).bit_length()
    return Fraction(math.ceil(value * (1 << shift)), 1 << shift)


def lattice_laplace(noise: Noise, rate: Fraction, dimension: int, size: int) -> NDArray[np.int64]:
    """`size` draws of `lattice_laplace_draw`: int64 (size, dimension).

    Privacy
    -------
    The guarantee is that of `lattice_laplace_draw` for each row; all draws are independent.

    Source
    ------
    Specification 11.3; proof 10.2; `lattice_laplace_draw`.
    """
    _check_dimension(dimension)
    kernels, scale = _noise_kernels(), _proposal(rate, dimension)
    if kernels is None or dimension == 1 or scale.numerator >= 2**55:
        reader = _WordReader(noise.entropy)
        drawn = [lattice_laplace_draw(rate, dimension, reader, reader) for _ in range(size)]
        return np.array(drawn, np.int64).reshape(size, dimension)
    out = np.empty((size, dimension), np.int64)
    for start in range(0, size, _CHUNK):
        noise._fill(
            out[start : start + _CHUNK],
            12 * dimension,
            kernels.lattice_laplace,
            (scale.numerator, scale.denominator, float(rate)),
            lambda exact, word, more: lattice_laplace_draw(exact, dimension, word, more),
            rate,
        )
    return out
