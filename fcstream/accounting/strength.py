"""One scale for guarantees in words: by the epsilon of what is protected, at a delta that is stated beside it."""

from __future__ import annotations

from typing import NamedTuple


class Strength(NamedTuple):
    """A step of the scale.

    Attributes
    ----------
    most : float
        The largest epsilon of this step.
    word : str
        As in "the guarantee is strong".
    meaning : str
        What that is, in a sentence.
    """

    most: float
    word: str
    meaning: str


SCALE = (
    Strength(1.0, "strong", "Nobody learns much about anybody, even with bad luck."),
    Strength(5.0, "fair", "Somebody who already suspects something may become surer."),
    Strength(20.0, "weak", "Against somebody who knows nearly everything else it protects little."),
    Strength(float("inf"), "nearly nothing", "As a bound by itself it says nearly nothing."),
)
"""The steps, from strong to weak."""
STRONG, FAIR, WEAK, _ = SCALE


def strength_of(epsilon: float) -> Strength:
    """Return the step of an epsilon."""
    return next(step for step in SCALE if epsilon <= step.most)
