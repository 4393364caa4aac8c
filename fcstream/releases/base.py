"""What every release has in common: the mechanism interface, outcomes on the lattice, releases in the user's units."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..coins import BlockCounts, HiddenCounts
from ..errors import ConfigError
from ..friends import FriendCounts, WindowView
from ..ledgers.base import Charge
from ..noise import Noise
from ..sampled import Choice
from ..zcdp import PrivacyLoss

REASONS = ("too_few", "budget_exhausted", "interrupted", "no_radius")


@dataclass(frozen=True)
class Spread:
    """How far nearly all points lie from their center, in lattice steps; public or released.

    Attributes
    ----------
    reach : float
        Distance that holds nearly all points.
    across : float
        Bound of nearly all points along any one direction.
    """

    reach: float
    across: float

    @classmethod
    def public(cls, typical: float, dimension: int) -> Spread:
        """From a typical distance: for N(0, s**2 I) it is s sqrt(d), nearly all lie within 2.3 s more."""
        per_coordinate = typical / math.sqrt(dimension)
        return cls(typical + 2.3 * per_coordinate, 3 * per_coordinate)

    def radius(self, center_error: float) -> float:
        """Ball that holds nearly all points around a center known up to `center_error`.

        Noise in high dimension is nearly orthogonal to what points differ by, so errors add like squares but for the
        spread along one direction.
        """
        g, e = self.reach, center_error
        return min(g + e, math.sqrt(g * g + e * e + 2 * e * self.across))


@dataclass(frozen=True, slots=True)
class Track:
    """Where a window's points lie, for the next one to go on from; in lattice steps. All of it is released.

    Attributes
    ----------
    center : list of int
    sigma : float
        Noise deviation of the center per coordinate.
    reach, across : float
        See `Spread`.
    share : float or None
        Of the points within the ball when it was last found; None until a window has told.
    drift : bool
        The share has fallen: the next window starts cold.
    """

    center: list[int]
    sigma: float
    reach: float
    across: float
    share: float | None = None
    drift: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a mechanism says of one window, in lattice steps. All of it counts as released.

    Attributes
    ----------
    reason : str or None
        None if a value was released, else one of `REASONS`.
    value, sigma : float64 (d,) or None
        The value and the standard deviation of its noise.
    count : int or None
        Noisy number of points in the window.
    core_count : int or None
        Noisy number of points behind the value.
    spread : Spread or None
        How far the points behind the value lie from it.
    track : Track or None
        What the next window may go on from.
    """

    reason: str | None = None
    value: NDArray[np.float64] | None = None
    sigma: NDArray[np.float64] | None = None
    count: int | None = None
    core_count: int | None = None
    spread: Spread | None = None
    track: Track | None = None


@dataclass(frozen=True, slots=True)
class Forecast:
    """What public numbers say about a mechanism at a number of points that are all friends.

    Attributes
    ----------
    probability : float
        Of releasing a value.
    sigma : float
        Expected noise deviation per coordinate, in lattice steps (nan where it depends on what is not public).
    """

    probability: float
    sigma: float


class Mechanism(Protocol):
    """One kind of release. Immutable; everything in it is public.

    A mechanism must cost at most `loss` on every pair of windows that differ in one point, for every content, also an
    empty one, and must decide everything by public facts and values it counts as released.
    """

    @property
    def kind(self) -> str:
        """Of the release: ``mean``, ``count``."""

    @property
    def loss(self) -> PrivacyLoss:
        """What one release costs on every block it covers."""

    @property
    def radius_squared(self) -> int | None:
        """The friend counts it needs, in squared lattice steps; None for none."""

    @property
    def pairs(self) -> Choice:
        """Which pairs of points its core is found from."""

    def release(self, view: WindowView, charge: Charge, noise: Noise) -> Outcome:
        """Answer for one window; uses up the charge."""

    def forecast(self, size: int) -> Forecast:
        """What to expect at `size` points."""


Counter = FriendCounts | BlockCounts | HiddenCounts


def counter_for(mechanism: Mechanism, dimension: int, reach: int, noise: Noise) -> Counter:
    """What keeps the friend counts that a mechanism needs.

    Parameters
    ----------
    mechanism : Mechanism
    dimension : int
    reach : int
        See `FriendCounts`.
    noise : Noise
        Where the coins of sampled pairs come from.

    Privacy
    -------
    Coins are fresh for every window and are used for one release, which is why sampled pairs take tumbling windows.

    Source
    ------
    Design notes 1.5 to 1.7.
    """
    pairs, radius_squared = mechanism.pairs, mechanism.radius_squared
    if pairs.kind == "exact" or radius_squared is None:
        return FriendCounts(dimension, radius_squared, reach)
    if reach > 1:
        raise ConfigError("must be 'exact' for sliding windows: coins serve one release", "release.pairs")
    if pairs.kind == "blocks":
        return BlockCounts(dimension, radius_squared, pairs.blocks, pairs.partners, noise)
    return HiddenCounts(dimension, radius_squared, pairs.rate, noise)


@dataclass(frozen=True, slots=True)
class Release:
    """One published answer, in the user's units: a value, or a refusal with its reason.

    Attributes
    ----------
    stream, window_open_ms, window_close_ms
        Which window, ``[open, close)`` in Unix milliseconds.
    status : str
        ``released`` or ``refused``.
    reason : str or None
        Of a refusal: ``too_few``, ``budget_exhausted``, ``interrupted`` or ``no_radius``.
    kind : str
    value : list of float or None
        In the features' own units; a transformed feature in transformed units (see `transform`).
    sigma : list of float or None
        Standard deviation of the noise in `value`, per coordinate, same units.
    count, core_count : int or None
        Noisy number of points in the window, and behind the value.
    rho, delta : float
        What this answer cost.
    guarantee, spent : dict
        ``rho`` and ``delta``: the cap that holds for ever; what the window's most charged block has used of it.
    private : bool
        False if drawn from a seeded source: never publish such a release.
    features, transform : list of str or None
        Names and transforms of the coordinates of `value`.
    track : Track or None
        Of a tracking mean: what the next window goes on from, in lattice steps.
    """

    stream: str
    window_open_ms: int
    window_close_ms: int
    status: str
    reason: str | None
    kind: str
    value: list[float] | None
    sigma: list[float] | None
    count: int | None
    core_count: int | None
    rho: float
    delta: float
    guarantee: dict[str, float]
    spent: dict[str, float]
    private: bool
    features: list[str] | None = None
    transform: list[str] | None = None
    track: Track | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def to_bytes(self) -> bytes:
        """One line of JSON without the line's end."""
        line = msgspec.json.encode(self)
        return line if self.track is not None else line.removesuffix(b',"track":null}') + b"}"

    @classmethod
    def from_bytes(cls, line: bytes) -> Release:
        """The inverse of `to_bytes`."""
        return msgspec.json.decode(line, type=cls)
