"""The interface of all mechanisms, outcomes on the lattice, and releases in the user's units."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..accounting.losses import PrivacyLoss
from ..cores.sampled_filters import PairSampling
from ..counting.exact import FriendCounts
from ..counting.sampled import BlockCounts, HiddenCounts
from ..errors import ConfigError
from ..ledgers.base import Charge
from ..noise.samplers import Noise
from ..stream.lattice import Grid
from .reasons import HINTS
from .shape import SHAPES, ResultShape

_LATER = (
    "track",
    "parts",
    "key",
    "unit",
    "name",
    "place",
    "window_open",
    "window_close",
    "interval",
    "key_share",
    "ledger",
    "shape",
)


@dataclass(frozen=True)
class Spread:
    """How far nearly all points lie from their center, in lattice steps; public or released (specification 5.4).

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
        """Make a spread from a typical distance, which is s sqrt(d) for N(0, s**2 I); nearly all lie 2.3 s further."""
        per_coordinate = typical / math.sqrt(dimension)
        return cls(typical + 2.3 * per_coordinate, 3 * per_coordinate)

    def radius(self, center_error: float) -> float:
        """Return the radius of a ball that holds nearly all points around a center known up to `center_error`.

        In high dimension the error of the center is nearly orthogonal to the points' offsets, so the squares of both
        add up, except for the spread of the points along the one direction of the error.
        """
        g, e = self.reach, center_error
        return min(g + e, math.sqrt(g * g + e * e + 2 * e * self.across))


@dataclass(frozen=True, slots=True)
class Track:
    """Where a window's points lie, from which the next window starts (specification 5.5); in lattice steps, released.

    Attributes
    ----------
    center : list of int
    sigma : float
        Noise deviation of the center per coordinate.
    reach, across : float
        See `Spread`.
    share : float or None
        Share of the points within the ball when the ball was last found; None before the first window.
    drift : bool
        Whether the share has fallen, so that the next window must find the points without this track.
    scales : list of int or None
        Learned scales of the features (specification 5.15), which the next window uses.
    age : int or None
        How many windows have used them.
    """

    center: list[int]
    sigma: float
    reach: float
    across: float
    share: float | None = None
    drift: bool = False
    scales: list[int] | None = None
    age: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a mechanism returns for one window, in lattice steps. All of it but `state` counts as released.

    Attributes
    ----------
    reason : str or None
        None if a value was released, else one of `fcstream.releases.reasons`.
    value, sigma : float64 (d,) or None
        The value and the standard deviation of its noise.
    interval : float64 (d, 2) or None
        ``[low, high]`` of each number, where the mechanism knows of errors besides the noise. None leaves it to the law
        of the noise (`fcstream.releases.intervals`).
    no_interval : dict or None
        What has no interval, although it has a value: ``value``, or the name of a part. Each with a word of
        `fcstream.releases.reasons.NO_INTERVAL`.
    count : int or None
        Noisy number of points in the window.
    core_count : int or None
        Noisy number of points behind the value.
    spread : Spread or None
        How far the points behind the value lie from it.
    track : Track or None
        Where the points lie, for the next window.
    parts : dict or None
        Further values of the kind, by name: JSON values, in the units in which they are published.
    state : bytes or None
        What later windows of the epoch need, of an `EpochMechanism`; private. The ledger keeps it.
    """

    reason: str | None = None
    value: NDArray[np.float64] | None = None
    sigma: NDArray[np.float64] | None = None
    count: int | None = None
    core_count: int | None = None
    spread: Spread | None = None
    track: Track | None = None
    parts: dict[str, Any] | None = None
    state: bytes | None = field(default=None, repr=False)
    interval: NDArray[np.float64] | None = None
    no_interval: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Forecast:
    """A prediction from public numbers for a window of a given number of points that are all friends.

    Attributes
    ----------
    probability : float
        Probability that a value is released.
    sigma : float
        Expected noise deviation per coordinate, in lattice steps (nan if it depends on anything that is not public).
    """

    probability: float
    sigma: float


class Counter(Protocol):
    """Keeps points of open panes for a mechanism: `FriendCounts`, `BlockCounts`, `MultiRadiusCounts`, or another one.

    Its `view` of a closing window is passed to `Mechanism.release` unchanged.
    """

    @property
    def panes(self) -> list[int]:
        """Panes that hold points, ascending."""

    def add(self, pane: int, points: NDArray[Any]) -> None:
        """Add lattice points (m, d) to a pane, or texts (m,) for a kind about texts; keeps a copy, not the array."""

    def drop(self, pane: int) -> None:
        """Drop a pane's points; does nothing if the pane is absent."""

    def view(self, panes: Iterable[int]) -> Any:
        """Return the view of the window that these panes make up; panes without points may be absent."""


@dataclass(frozen=True, slots=True)
class ReleaseValues:
    """An outcome in the user's units, as the fields of a `Release` hold it.

    `interval` is None where the law of the noise tells it; `no_interval` and intervals of parts are as in `Outcome`.
    """

    value: list[Any] | None
    sigma: list[Any] | None
    features: list[str] | None = None
    transform: list[str] | None = None
    parts: dict[str, Any] | None = None
    interval: list[Any] | None = None
    no_interval: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class PlanNotes:
    """Notes of a mechanism for a plan, from public numbers.

    Attributes
    ----------
    lines : tuple of str
        Sentences for the user.
    warnings : tuple of str
    facts : dict
        The same for programs: keys of ``fcstream plan --json``.
    stopped : PrivacyLoss or None
        Loss of a window that stops after its first stage.
    core : (PairSampling, PrivacyLoss) or None
        Which pairs of points are compared for a core, and what a core from sampled pairs would cost.
    case : str
        The records for which the forecast holds, as a phrase.
    chance : str
        If no public number shows how often windows release: what that depends on, as a phrase after "releases".
    """

    lines: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    stopped: PrivacyLoss | None = None
    core: tuple[PairSampling, PrivacyLoss] | None = None
    case: str = ""
    chance: str = ""


class Mechanism(ABC):
    """One kind of release, to inherit in frozen dataclasses. Immutable and hashable; everything in it is public.

    A mechanism must cost at most `loss` on every pair of windows that differ in one point, for every content, also an
    empty one. Its decisions may depend only on public facts and on values that it counts as released.

    By default a mechanism keeps the window's points without comparing them, releases its values as they are (not in a
    feature's units), and is changed to another loss or size hint by `dataclasses.replace`.

    Attributes
    ----------
    kind : str
        Kind of the release, such as ``mean`` or ``count``.
    loss : PrivacyLoss
        Loss of one release, charged to every block that its window covers.
    """

    if TYPE_CHECKING:  # fields or properties of each subclass

        @property
        def kind(self) -> str: ...

        @property
        def loss(self) -> PrivacyLoss: ...

    @abstractmethod
    def release(self, view: Any, charge: Charge, noise: Noise) -> Outcome:
        """Compute the outcome of one window from its counter's view; uses up the charge."""

    @abstractmethod
    def forecast(self, size: int) -> Forecast:
        """Predict the outcome of a window of `size` points."""

    @property
    def shape(self) -> ResultShape:
        """What the numbers of its releases are; known before any of them."""
        return SHAPES.get(self.kind) or ResultShape()

    @property
    def tracks(self) -> bool:
        """Whether a window starts from the `Track` of the window before it."""
        return False

    @property
    def false_release(self) -> float | None:
        """An upper bound, from public numbers, of the chance that a window without records releases a value.

        None if every window gets a value: a number of records, for instance, is meaningful for such a window too.
        """
        return None

    def counter(self, dimension: int, reach: int, noise: Noise) -> Counter:
        """Make the counter for the points of open panes; panes less than `reach` apart may share a window."""
        return FriendCounts(dimension, None, reach)

    def to_user_units(self, outcome: Outcome, grid: Grid) -> ReleaseValues:
        """Convert an outcome, also a refusal, to the user's units."""
        value, sigma = outcome.value, outcome.sigma
        return ReleaseValues(
            None if value is None else value.tolist(),
            None if sigma is None else sigma.tolist(),
            parts=outcome.parts,
            interval=None if outcome.interval is None else outcome.interval.tolist(),
            no_interval=outcome.no_interval,
        )

    def truth(self, points: NDArray[np.float64], grid: Grid) -> dict[str, Any] | None:
        """Return the numbers of a window of lattice points (n, d) without noise, by name as in the shape.

        In the user's units; None if it states no truth, or none for this window. They are exact, so publish nothing of
        them: they serve rehearsals on data that may be looked at.
        """
        return None

    def predicted_sigmas(self, size: int, grid: Grid) -> dict[str, float]:
        """Predict the noise deviations at `size` points, by name, in the user's units."""
        return {self.kind: self.forecast(size).sigma}

    def notes(self, size: int | None, grid: Grid) -> PlanNotes:
        """Return what a plan should say besides the forecast; `size` is the size hint if there is one."""
        return PlanNotes()

    def with_loss(self, loss: PrivacyLoss) -> Mechanism:
        """Return the same mechanism for another rho; each mechanism decides itself whether it uses the delta."""
        return self._with(loss=PrivacyLoss(loss.rho_nano, self.loss.delta_femto))

    def hint(self, reason: str) -> str:
        """Tell what to do about windows that are refused for this reason."""
        return HINTS.get(reason, "")

    def after(self, track: Track | None) -> Mechanism:
        """Return the mechanism for the window after the one that this track is from."""
        return self

    def with_size_hint(self, size_hint: int) -> Mechanism:
        """Return the same mechanism for another size hint; raises ConfigError if that is too small for this budget."""
        mechanism: Any = self
        return self._with(size_hint=size_hint) if any(own.name == "size_hint" for own in fields(mechanism)) else self

    def _with(self, **changes: Any) -> Mechanism:
        mechanism: Any = self
        changed: Mechanism = replace(mechanism, **changes)
        return changed


class EpochWindow(NamedTuple):
    """A window, and when the epoch opened that it belongs to; Unix milliseconds."""

    epoch_ms: int
    open_ms: int
    close_ms: int


class EpochMechanism(Mechanism):
    """A mechanism whose releases about one epoch of windows depend on the epoch's earlier windows.

    Every outcome of a value has a `state`, which the ledger seals together with the release. Every outcome, a refusal
    too, tells by ``parts["epoch_open_ms"]`` and ``parts["windows"]`` of how many windows states were sealed, so that
    lost ones are noticed.
    """

    @property
    @abstractmethod
    def epoch_windows(self) -> int:
        """Number of windows of an epoch."""

    @property
    def repeated(self) -> float:
        """How many times the loss of one window somebody with a record in every window pays for each, on average."""
        return 1.0

    @abstractmethod
    def recall(self, rows: Sequence[tuple[int, bytes]]) -> Any:
        """Make the memory of an epoch from the opening and the state of each of its windows so far, in order.

        It has a method ``add(open_ms, state)`` for what is sealed later. Raises ValueError if a row is no such state.
        """

    @abstractmethod
    def within(self, memory: Any, known: int, window: EpochWindow) -> Mechanism:
        """Return the mechanism for one window of an epoch.

        `memory` is None if states were lost; `known` is the number of windows whose states were sealed.
        """

    @abstractmethod
    def refusal(self, reason: str) -> Outcome:
        """Return the outcome of a window for which nothing is drawn."""


class PointMechanism(Mechanism):
    """A mechanism whose value is one point (d,): one number per feature, in the feature's own (transformed) units."""

    def to_user_units(self, outcome: Outcome, grid: Grid) -> ReleaseValues:
        return ReleaseValues(
            None if outcome.value is None else grid.values(outcome.value),
            None if outcome.sigma is None else grid.widths(outcome.sigma),
            [feature.name for feature in grid.features],
            [feature.transform for feature in grid.features],
            outcome.parts,
            None if outcome.interval is None else pairs_of(*map(grid.values, outcome.interval.T)),
            outcome.no_interval,
        )

    def truth(self, points: NDArray[np.float64], grid: Grid) -> dict[str, Any] | None:
        """Return the mean of all records."""
        return {"value": grid.values(points.mean(axis=0))} if len(points) else None

    def predicted_sigmas(self, size: int, grid: Grid) -> dict[str, float]:
        steps, step = self.forecast(size).sigma, grid.lattice.step
        return {feature.name: feature.scale * step * steps for feature in grid.features}


def pairs_of(low: Sequence[float], high: Sequence[float]) -> list[list[float]]:
    """Return ``[low, high]`` of each number, from all lower and all upper ends."""
    return [list(pair) for pair in zip(low, high, strict=True)]


def percent(probability: float) -> str:
    """Format a probability for people."""
    if 0.001 <= probability <= 0.999:
        return f"{100 * probability:.3g}%"
    return f"{100 * probability:.2g}%" if probability < 0.5 else "over 99.9%"


def friend_counter(pairs: PairSampling, radius_squared: int, dimension: int, reach: int, noise: Noise) -> Counter:
    """Make a counter of friends at one radius, among all or sampled pairs.

    Parameters
    ----------
    pairs : PairSampling
    radius_squared : int
        In squared lattice steps.
    dimension : int
    reach : int
        See `FriendCounts`.
    noise : Noise
        Source of the coins that sample pairs.

    Privacy
    -------
    Coins are fresh for every window and are used for one release, which is why sampled pairs need tumbling windows.

    Source
    ------
    Specification 3.1, 3.3, 3.4; proof 3.7; ours.
    """
    if pairs.kind == "exact":
        return FriendCounts(dimension, radius_squared, reach)
    if reach > 1:
        raise ConfigError("must be 'exact' for sliding windows: coins serve one release", "release.pairs")
    if pairs.kind == "blocks":
        return BlockCounts(dimension, radius_squared, pairs.blocks, pairs.partners, noise)
    return HiddenCounts(dimension, radius_squared, pairs.rate, noise)


@dataclass(frozen=True, slots=True)
class Release:
    """The published document about one window, in the user's units: a value, or a refusal with its reason.

    Attributes
    ----------
    stream, window_open_ms, window_close_ms
        The window ``[open, close)``, in Unix milliseconds. The sibling stream of a key is named ``stream/key``.
    status : str
        ``released`` or ``refused``.
    reason : str or None
        Reason of a refusal: ``too_few`` records; enough records that lie too far apart (``no_core``, for clusters
        ``no_match`` or ``no_radius``); ``too_many``, ``budget_exhausted`` or ``interrupted``. See
        `fcstream.releases.reasons`.
    kind : str
        What was asked for: ``release.kind`` of the configuration.
    value : list or None
        For a mean: one number per feature, in the feature's units, or in transformed units if the feature has a
        `transform`. For other kinds: numbers or lists of numbers, as the kind defines them.
    sigma : list or None
        Standard deviation of the noise in `value`, in the same shape and units.
    count, core_count : int or None
        Noisy number of points in the window, and behind the value.
    rho, delta : float
        What this answer cost, less its refund. If another process drew under the same charge, or charged users for a
        later window meanwhile, the ledger rejects the refund that these fields and `spent` subtract; then the ledger's
        larger figure is the right one.
    guarantee, spent : dict
        ``rho`` and ``delta`` of what one unit (a record, a user) can lose for ever, under all keys together, and of
        what the window's most charged block has spent: of `key_share` where there is one.
    private : bool
        False if drawn from a seeded source: never publish such a release.
    features, transform : list of str or None
        Names and transforms of the coordinates of `value`.
    track : Track or None
        For a tracking mean: where the next window starts, in lattice steps.
    parts : dict or None
        Further values of some kinds, by name, such as the edges of bins. Absent from the JSON of other kinds. Where a
        deviation of their noise is among them (`mean_sigma`), so is an interval in the form of `interval`
        (`mean_interval`). ``no_interval`` says why there is none where a number has one otherwise: for ``value``, or
        for the part of a name, a word of `fcstream.releases.reasons.NO_INTERVAL`.
    key : str or None
        Key of a sibling stream. Absent from the JSON of streams without keys.
    unit : str or None
        ``user`` where the points are users. Absent from the JSON of other units, whose points are records.
    name : str or None
        ``release.name``: which of a window's answers this is. Absent from the JSON of an answer without a name.
    place : int or None
        Its place among the answers of its window, from 0. Absent from the JSON of streams with one answer.
    window_open, window_close : str or None
        The window's times in ISO 8601, UTC, with ``stream.iso_times``. Absent from the JSON of other streams.
    interval : list or None
        ``[low, high]`` for each number in `value`, nested as it is: with a probability of 95% they hold the number for
        all records in range. It follows from public and released numbers and costs nothing. `sigma` is the deviation
        of the added noise alone; the interval also holds what else a mechanism knows to be wrong, such as records that
        were moved nearer. Null in the place of a number of which that is not known; absent from the JSON of a release
        without any. Then ``parts["no_interval"]`` says why.
    key_share : dict or None
        ``rho`` and ``delta`` of the part of `guarantee` that one key may spend, where keys divide the budget. Absent
        from the JSON of other streams.
    ledger : str or None
        ``memory`` where what was spent is known to this process only, so that `guarantee` holds for what it releases
        and no longer. Absent from the JSON of releases with another ledger, whose guarantee holds for ever.
    shape : ResultShape or None
        What the numbers are, for readers that do not know the kind. Absent from the JSON of this package's kinds, whose
        shapes are known by their name (`fcstream.releases.shape.SHAPES`).
    """

    stream: str
    window_open_ms: int
    window_close_ms: int
    status: str
    reason: str | None
    kind: str
    value: list[Any] | None
    sigma: list[Any] | None
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
    parts: dict[str, Any] | None = None
    key: str | None = None
    unit: str | None = None
    name: str | None = None
    place: int | None = None
    window_open: str | None = None
    window_close: str | None = None
    interval: list[Any] | None = None
    key_share: dict[str, float] | None = None
    ledger: str | None = None
    shape: ResultShape | None = None

    @property
    def series(self) -> str:
        """What is released once for each window: the stream, with ``/NAME`` for an answer that has a name."""
        return self.stream if self.name is None else f"{self.stream}/{self.name}"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def to_bytes(self) -> bytes:
        """One line of JSON without the line's end."""
        # Keys that were added to the format later are left out where they are None.
        first, later = _first_values(self), _later_values(self)
        values = dict(zip(_FIRST, first, strict=True))
        for name, value in zip(_LATER, later, strict=True):
            if value is not None:
                values[name] = value
        if self.track is not None and self.track.scales is None:
            values["track"] = {name: getattr(self.track, name) for name in Track.__slots__[:-2]}
        return _encode(values)

    @classmethod
    def from_bytes(cls, line: bytes) -> Release:
        """The inverse of `to_bytes`.

        Raises
        ------
        msgspec.DecodeError, UnicodeDecodeError
            The line is not a release.
        """
        try:
            return _DECODER.decode(line)
        except RecursionError:  # others may write where releases are read
            raise msgspec.DecodeError("nested too deeply") from None


def shape_of(release: Release) -> ResultShape:
    """Return the shape of a release: its own, or that of its kind; numbers of features, if neither is known."""
    if release.shape is not None:
        return release.shape
    whole = f"{release.kind}/{(release.parts or {}).get('of')}"
    return SHAPES.get(whole) or SHAPES.get(release.kind) or ResultShape()


_FIRST = Release.__slots__[: -len(_LATER)]
assert (*_FIRST, *_LATER) == Release.__slots__
_first_values, _later_values = attrgetter(*_FIRST), attrgetter(*_LATER)
_encode = msgspec.json.Encoder().encode


def to_lines(releases: Iterable[Release]) -> bytes:
    """Return the releases of one window as a ledger seals them: a line of JSON each."""
    lines = [release.to_bytes() for release in releases]
    return lines[0] if len(lines) == 1 else b"\n".join(lines)


def from_lines(body: bytes) -> list[Release]:
    """The inverse of `to_lines`; raises as `Release.from_bytes`."""
    return [Release.from_bytes(line) for line in body.split(b"\n")]


_DECODER = msgspec.json.Decoder(Release)  # made here, since a type's first use by two threads at once would crash
