"""What a second process compiles, with no more imports than that needs: they take as long as compiling a kernel."""

from __future__ import annotations

import numpy as np

from ..accounting.losses import RHO_UNIT
from ..counting.exact import FriendCounts
from ..counting.tiles import LANES
from ..counting.views import Selection
from ..noise.samplers import Noise, SeededEntropy
from ..releases.averages import BallAverage

NOTHING = Selection(((np.zeros((1, 1, LANES)), np.zeros(LANES, np.bool_)),), 0, 1)
"""One tile without points."""


def compile_sums() -> None:
    """Compile, or load, sums of points in a ball, which take longest, and what draws their noise."""
    BallAverage.split(RHO_UNIT, 1).release(NOTHING, np.zeros(1), 1, Noise(SeededEntropy(0)))


def compile_exact_counts() -> None:
    """Compile, or load, the counting of friends in windows that are not small."""
    many = FriendCounts(12, 100)
    many.add(0, np.zeros((1000, 12)))
    many.view([0])


def compile_counts() -> None:
    """Compile, or load, all counting of friends: exact, within many radii, sampled."""
    from ..counting.multi_radius import MultiRadiusCounts
    from .speeds import measured_costs

    compile_exact_counts()
    several = MultiRadiusCounts(2, [1, 4])
    several.add(0, np.zeros((2, 2)))
    _ = several.view([0]).pairs, several.view([0]).at(0)
    measured_costs(2)
