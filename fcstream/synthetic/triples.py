"""Products of three bits of three different attributes: which are taken, what one record moves, and their sums."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .codes import Codes
from .mixtures import ReleasedMoments

MAX_TRIPLES = 2300
"""Number of products that are taken at most: those of 25 Booleans."""
MAX_CHOSEN_BITS = 64
"""Of more bits nothing is chosen: so few of so many products tell less than the noise of pairs that they cost."""


@dataclass(frozen=True)
class Triples:
    """Products u_i u_j u_k of the bits of chosen sets of three attributes, one product for each choice of their bits.

    Parameters
    ----------
    codes : Codes
    sets : tuple of tuples of int
        Three different attributes each, ascending, none twice.

    Privacy
    -------
    A record, added or removed, moves the sums of all products together by the root of `squared`, whatever it holds.

    Source
    ------
    Specification 9.2; proof 9.1; ours.
    """

    codes: Codes
    sets: tuple[tuple[int, int, int], ...] = ()

    @classmethod
    def all_of(cls, codes: Codes) -> Triples:
        """Take all sets of three attributes if their products are at most `MAX_TRIPLES`, else none; public."""
        sums = [1, 0, 0, 0]
        for one in codes.attributes:
            for k in (3, 2, 1):
                sums[k] += one.bits * sums[k - 1]
        if sums[3] > MAX_TRIPLES:
            return cls(codes)
        return cls(codes, tuple(itertools.combinations(range(len(codes.attributes)), 3)))

    @classmethod
    def chosen(cls, codes: Codes, released: ReleasedMoments) -> Triples:
        """Take all sets if they are few, else those whose attributes hang together most in the released pairs.

        Of more than `MAX_CHOSEN_BITS` bits none is chosen.

        Three attributes hang together by the sum of the products of two of their three strengths. The strength of two
        attributes is what their squared covariances sum to beyond the noise, over their squared deviations: for
        Booleans the squared correlation. Sets come in the order of this number for each of their products, as long as
        all products are at most `MAX_TRIPLES`.

        Privacy
        -------
        Post-processing of `released`; the products that it chooses are paid for by whoever adds noise to them.

        Source
        ------
        Specification 9.2; proof 9.1; ours.
        """
        found = cls.all_of(codes)
        if found.sets or len(codes.attributes) < 3 or codes.bits > MAX_CHOSEN_BITS:
            return found
        strength = _strengths(codes, released)
        ascend = np.triu(np.ones(strength.shape, np.bool_), 1)
        a, b, c = np.nonzero(ascend[:, :, None] & ascend)  # in the order of `itertools.combinations`
        ab, bc, ac = strength[a, b], strength[b, c], strength[a, c]
        bits = np.array([one.bits for one in codes.attributes])
        needs = bits[a] * bits[b] * bits[c]
        worth = (ab * bc + bc * ac + ac * ab) / needs
        taken: list[tuple[int, int, int]] = []
        left = MAX_TRIPLES
        for k in np.argsort(-worth, kind="stable").tolist():
            if worth[k] <= 0 or left == 0:
                break
            if needs[k] <= left:
                taken.append((int(a[k]), int(b[k]), int(c[k])))
                left -= int(needs[k])
        return cls(codes, tuple(sorted(taken)))

    @cached_property
    def squared(self) -> int:
        """Squared l2 norm of the products of one record, the same for every record."""
        norms = [one.norm_squared for one in self.codes.attributes]
        return sum(norms[a] * norms[b] * norms[c] for a, b, c in self.sets)

    @cached_property
    def bits(self) -> NDArray[np.int64]:
        """The three bits of each product (T, 3)."""
        blocks = [range(block.start, block.stop) for block in self.codes.blocks]
        found = [bits for a, b, c in self.sets for bits in itertools.product(blocks[a], blocks[b], blocks[c])]
        return np.array(found, np.int64).reshape(-1, 3)

    def sums(self, counts: NDArray[np.int64], moments: NDArray[np.int64], size: int) -> NDArray[np.int64]:
        """Sum each product over the records (T,), of how often three bits are set together (T,), two (p, p), and n."""
        i, j, k = self.bits.T
        a, b, c = self.codes.shifts[self.bits].T
        ones = np.diag(moments)
        found = 8 * counts - 4 * (c * moments[i, j] + b * moments[i, k] + a * moments[j, k])
        found += 2 * (b * c * ones[i] + a * c * ones[j] + a * b * ones[k]) - a * b * c * size
        return np.asarray(found, np.int64)


def _strengths(codes: Codes, released: ReleasedMoments) -> NDArray[np.float64]:
    """Return how much every two attributes hang together in the released pairs, from 0 on: symmetric (A, A)."""
    starts, noise = np.array(codes.offsets), released.pair_sigma**2
    covariances = np.where(codes.apart, released.pairs - np.outer(released.means, released.means), 0.0)
    summed = np.add.reduceat(np.add.reduceat(covariances**2 - noise * codes.apart, starts, axis=0), starts, axis=1)
    shares = np.clip((released.means + codes.shifts) / 2, 0.0, 1.0)
    spread = np.add.reduceat(np.maximum(4 * shares * (1 - shares), released.mean_sigma), starts)
    return np.asarray(np.maximum(summed, 0.0) / np.outer(spread, spread))
