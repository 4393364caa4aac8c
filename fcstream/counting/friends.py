"""Friend counts of the rows of an array."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..stream.lattice import Lattice
from .exact import FriendCounts


def friend_counts(points: NDArray[np.float64], radius: float, *, step: float) -> NDArray[np.int64]:
    """Count how many points lie within `radius` of each point, itself included.

    Parameters
    ----------
    points : array (n, d)
        Finite numbers whose absolute values are below 2**40 steps; rounded to the nearest multiple of `step`, half to
        even.
    radius : float
        Inclusive, in the units of the points; compared as floor((radius / step)**2) in exact integers.
    step : float
        Width of the lattice, > 0.

    Returns
    -------
    int64 (n,)

    Raises
    ------
    ConfigError
        The shape is wrong, a value is not finite or is out of range, or the radius is out of range.

    Notes
    -----
    The counts are exact and NOT private: publish nothing that is computed from them without noise.

    Examples
    --------
    >>> import fcstream
    >>> fcstream.friend_counts([[0.0, 0.0], [0.0, 1.0], [5.0, 5.0]], 1.0, step=0.001).tolist()
    [2, 2, 1]
    """
    lattice = Lattice(step)
    lattice_points = lattice.points(points)
    counter = FriendCounts(lattice_points.shape[1], lattice.radius_squared(radius))
    counter.add(0, lattice_points)
    return counter.view([0]).in_order()
