"""Friendship that is not the distance of two points: tuples, matrices, bits, a user's own function.

Every predicate is a frozen value; `PredicateCounts` counts friends under it, incrementally and exactly.
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
