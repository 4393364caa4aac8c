"""Pictures in the plane of two features: which one lies across, and maps that are true to scale."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..reporting.series import ReleaseSeries

_LATITUDE = {"lat", "latitude"}
_LONGITUDE = {"lon", "lng", "long", "longitude"}
_MIN_COSINE = 0.05  # nearer to a pole nothing is true to scale


class Plane(NamedTuple):
    """Which feature lies across and which upward, by their place among the features."""

    across: int
    upward: int
    is_map: bool


def plane_of(series: ReleaseSeries) -> Plane | None:
    """Return the plane in which features lie: of longitude and latitude, or else of two features as configured.

    None for other features. Longitude and latitude are known by a word of their names: ``lat`` or ``latitude``, and
    ``lon``, ``lng``, ``long`` or ``longitude``, as in ``pickup_lat`` or ``startLongitude``.
    """
    first = series.first
    words = [_words(name) for name in first.features or ()]
    across, upward = (next((i for i, own in enumerate(words) if own & known), -1) for known in (_LONGITUDE, _LATITUDE))
    if min(across, upward) >= 0 and across != upward:
        transforms = first.transform or ["none"] * len(words)
        return Plane(across, upward, transforms[across] == transforms[upward] == "none")
    return Plane(0, 1, False) if len(words) == 2 else None


def true_to_scale(axes: Axes, latitudes: Sequence[float], adjustable: Literal["box", "datalim"] = "datalim") -> None:
    """Make a degree of longitude as wide as it is at the middle of some latitudes, compared with one of latitude.

    For that the axes show more of the plane (``datalim``), or become smaller (``box``).
    """
    if latitudes and max(map(abs, latitudes)) <= 90:
        middle = (min(latitudes) + max(latitudes)) / 2
        axes.set_aspect(1 / max(math.cos(math.radians(middle)), _MIN_COSINE), adjustable=adjustable)


def ground(axes: Axes, labels: Sequence[str], plane: Plane, title: str) -> None:
    """Prepare a picture of a plane: names of both axes, a grid, and a margin."""
    axes.set(xlabel=labels[plane.across], ylabel=labels[plane.upward])
    axes.set_title(title, loc="left")
    axes.grid(color="#E6E6E6", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.margins(0.08)


def _words(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}
