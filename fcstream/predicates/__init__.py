"""Friendship that is not the distance of two points: tuples, matrices, bits, a user's own function.

Here belong the rules, each a frozen value, and `PredicateCounts`, which counts friends under any of them,
incrementally and exactly. Friends by distance are counted in `fcstream.counting`.
"""

from .base import Predicate, PredicateCounts
from .bits import HammingBits, pack_bits
from .matrices import MatrixDistance
from .tuples import MatchTuples, MatchWithin, OrderedTuples
from .users import UserPredicate

__all__ = [
    "HammingBits",
    "MatchTuples",
    "MatchWithin",
    "MatrixDistance",
    "OrderedTuples",
    "Predicate",
    "PredicateCounts",
    "UserPredicate",
    "pack_bits",
]
