"""TOML -> checked objects. Every key is public; nothing here looks at data."""

from __future__ import annotations

import datetime
import difflib
import hashlib
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from .budgets import BudgetSchedule
from .errors import ConfigError
from .lattice import Feature, Grid, Lattice
from .ledgers.base import Terms
from .policies import Spending
from .records import Refused, Schema, parse_iso8601
from .releases.base import Mechanism
from .releases.count import NoisyCount
from .releases.mean import BallMean, FriendlyMean, RecentredMean
from .releases.tracking import TrackingMean
from .windows import Schedule
from .zcdp import PrivacyLoss

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_MILLIS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class StreamSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[stream]``: what the records are."""

    name: str
    time: str = "ts_ms"
    time_unit: Literal["ms", "s", "iso8601"] = "ms"
    unit: Literal["event", "stream", "user"] = "event"
    user: str | None = None
    per_user: Literal["first", "mean"] = "first"


class LatticeSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[lattice]``: one public grid for all coordinates, after scaling."""

    step: float


class FeatureSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[[features]]``: one coordinate each, ``(transform(field) - origin) / scale``."""

    name: str
    min: float
    max: float
    scale: float = 1.0
    origin: float = 0.0
    transform: Literal["none", "log1p", "asinh"] = "none"


class WindowSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[window]``: the public schedule."""

    length: str
    slide: str | None = None
    lateness: str = "0s"
    clock: Literal["eof", "wall", "broker"] = "eof"
    start: str
    end: str | None = None
    ahead: str | None = None


class ReleaseSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[release]``: what is released of every window, and for how much."""

    kind: Literal["mean", "count"] = "mean"
    method: Literal["recentered", "friendly", "ball", "tracking"] = "recentered"
    radius: float | None = None
    spread: float | Literal["histogram"] = "histogram"
    center: list[float] | None = None
    rho: float
    delta: float = 0.0
    size_hint: int | None = None
    pairs: Literal["exact", "blocks", "hidden"] = "exact"


class BudgetSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[budget]``: the cap, for ever, of what one record (unit event), one user or the stream can cost."""

    rho: float
    delta: float
    total_rho: float | None = None
    total_delta: float | None = None
    savings: Literal["none", "even", "paper"] = "none"
    exhausted: Literal["refuse", "stop"] = "refuse"


class UrlSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[sink]``, ``[ledger]``, ``[dead_letter]``: where."""

    url: str


class SourceSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[source]``: where records come from; for brokers also what a message holds, and the local spool of queues that
    forget what was acknowledged."""

    url: str
    format: Literal["json", "msgpack", "floats", "arrow"] = "json"
    name: str | None = None
    spool: str | None = None
    spool_bytes: int = 2**30


class ServiceSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[service]``: how a live stream is watched."""

    listen: str | None = None
    counters: bool = False
    log: Literal["text", "json"] = "text"


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A whole configuration, checked when made. `load` reads a file, `from_mapping` takes nested dictionaries.

    Raises
    ------
    ConfigError
        Any rule broken; the message names the key.
    """

    stream: StreamSection
    lattice: LatticeSection
    features: list[FeatureSection]
    window: WindowSection
    release: ReleaseSection
    budget: BudgetSection
    source: SourceSection | None = None
    sink: UrlSection | None = None
    ledger: UrlSection | None = None
    dead_letter: UrlSection | None = None
    service: ServiceSection | None = None

    def __post_init__(self) -> None:
        Job.of(self)

    @classmethod
    def load(cls, path: str | Path) -> Config:
        """Read a TOML file."""
        try:
            text = Path(path).read_bytes()
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
        try:
            return cls.from_mapping(tomllib.loads(text.decode()))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} is not TOML: {error}") from None

    @classmethod
    def from_mapping(cls, sections: Mapping[str, Any]) -> Config:
        """Check nested dictionaries of the same shape as the file."""
        _check_keys(cls, sections, "")
        try:
            return msgspec.convert(_dates_as_text(sections), cls)
        except msgspec.ValidationError as error:
            if isinstance(error.__cause__, ConfigError):
                raise error.__cause__ from None
            message, _, place = str(error).partition(" - at `$.")
            raise ConfigError(message[:1].lower() + message[1:], place.rstrip("`")) from None


@dataclass(frozen=True, slots=True)
class Job:
    """The checked objects of a configuration: everything the engine needs, nothing it must parse.

    Attributes
    ----------
    schema, grid, schedule, mechanism, terms
        See their classes.
    clock : str
    ahead_ms : int
        How far a live record's stamp may lie ahead of its own arrival.
    spending : Spending
        How each window's mechanism and charge are decided.
    per_user : str
        See `UserPoints`.
    """

    schema: Schema
    grid: Grid
    schedule: Schedule
    mechanism: Mechanism
    terms: Terms
    clock: str
    ahead_ms: int
    spending: Spending
    per_user: str

    @classmethod
    def of(cls, config: Config) -> Job:
        """Build and check."""
        stream, window = config.stream, config.window
        if not stream.name:
            raise ConfigError("must not be empty", "stream.name")
        schema = Schema(stream.time, stream.time_unit, tuple(f.name for f in config.features), _user_field(stream))
        if stream.time in schema.features:
            raise ConfigError(f"must not be the time field {stream.time!r}", "features")
        if schema.user is not None and schema.user in (stream.time, *schema.features):
            raise ConfigError(f"must be a field of its own, {schema.user!r} is the time or a feature", "stream.user")
        grid = Grid(
            Lattice(config.lattice.step),
            tuple(Feature(f.name, f.min, f.max, f.scale, f.origin, f.transform) for f in config.features),
        )
        schedule = _schedule(window)
        mechanism = _mechanism(config, grid)
        if schedule.reach > 1 and mechanism.pairs.kind != "exact":
            raise ConfigError("must be 'exact' for sliding windows: coins serve one release", "release.pairs")
        if schedule.reach > 1 and stream.unit == "user":
            raise ConfigError(
                "must be left out with unit = 'user': a user could have a point in each of several windows at once",
                "window.slide",
            )
        capacity = _capacity(config.budget)
        times = schedule.overlap if stream.unit == "event" else 1
        if not (mechanism.loss * times).fits(capacity):
            what = f"a record lies in up to {times} windows" if times > 1 else "one window"
            raise ConfigError(
                f"must hold {what} at {mechanism.loss} each, got {capacity}: raise it, or lower `release`", "budget"
            )
        total = _total(config.budget, mechanism)
        terms = Terms(stream.name, stream.unit, capacity, _specification(config), total)
        spending = _spending(config, mechanism, schedule)
        ahead = schedule.length_ms if window.ahead is None else duration_ms(window.ahead, "window.ahead")
        return cls(schema, grid, schedule, mechanism, terms, window.clock, ahead, spending, stream.per_user)


def _user_field(stream: StreamSection) -> str | None:
    if stream.unit == "user":
        if not stream.user:
            raise ConfigError("is required with unit = 'user': the field that names whose record it is", "stream.user")
        return stream.user
    if stream.user is not None:
        raise ConfigError(f"belongs to unit = 'user', the unit is {stream.unit!r}", "stream.user")
    return None


def _total(budget: BudgetSection, mechanism: Mechanism) -> PrivacyLoss | None:
    """The cap of the plain sum over all windows."""
    if budget.total_rho is None:
        if budget.total_delta is not None:
            raise ConfigError("is required beside `total_delta`", "budget.total_rho")
        return None
    if not (math.isfinite(budget.total_rho) and budget.total_rho > 0):
        raise ConfigError(f"must be a positive number, got {budget.total_rho!r}", "budget.total_rho")
    delta = 0.0 if budget.total_delta is None else budget.total_delta
    if not 0 <= delta < 1:
        raise ConfigError(f"must be in [0, 1), got {delta!r}", "budget.total_delta")
    total = PrivacyLoss.cap(budget.total_rho, delta)
    if not mechanism.loss.fits(total):
        place = "budget.total_rho" if mechanism.loss.rho_nano > total.rho_nano else "budget.total_delta"
        raise ConfigError(f"must hold one window at {mechanism.loss}, got {total}", place)
    return total


def _spending(config: Config, mechanism: Mechanism, schedule: Schedule) -> Spending:
    """How each window is charged."""
    budget, unit = config.budget, config.stream.unit
    spending = Spending(mechanism, unit, None, budget.total_rho is not None, budget.exhausted == "stop")
    if budget.savings == "none":
        return spending
    if unit == "event":
        raise ConfigError(
            "must be 'none' with unit = 'event': every pane has a budget of its own, a later window cannot use it",
            "budget.savings",
        )
    if schedule.count is None:
        raise ConfigError("must be given with `budget.savings`: they are divided among the windows left", "window.end")
    base = mechanism.loss * schedule.count
    if not base.fits(_capacity(budget)):
        raise ConfigError(
            f"must hold {schedule.count} windows at `release` to save from, {base} together, got {_capacity(budget)}",
            "budget",
        )
    return replace(spending, savings=BudgetSchedule(base.rho_nano, schedule.count, budget.savings))


def _dates_as_text(values: Any) -> Any:
    """TOML dates without quotes are as good as their text."""
    if isinstance(values, Mapping):
        return {key: _dates_as_text(value) for key, value in values.items()}
    if isinstance(values, list):
        return [_dates_as_text(value) for value in values]
    return values.isoformat() if isinstance(values, (datetime.date, datetime.time)) else values


def duration_ms(text: str, place: str) -> int:
    """``500ms``, ``30s``, ``10m``, ``1h``, ``7d`` -> milliseconds.

    Raises
    ------
    ConfigError
    """
    match = _DURATION.fullmatch(text.strip())
    millis = float(match[1]) * _MILLIS[match[2]] if match else 0.5
    if millis != int(millis) or millis > 2**52:
        raise ConfigError(f"must be a number with a unit ms, s, m, h or d (like '10m'), got {text!r}", place)
    return int(millis)


def _instant(text: str, place: str) -> int:
    try:
        return parse_iso8601(text)
    except (ValueError, OverflowError, Refused):
        raise ConfigError(f"must be ISO 8601 (like '2016-03-15T00:00:00Z'), got {text!r}", place) from None


def _schedule(window: WindowSection) -> Schedule:
    if window.clock == "eof" and window.end is None:
        raise ConfigError(
            "is required with clock = 'eof': the end of input must not set the schedule, or one stray record would",
            "window.end",
        )
    length = duration_ms(window.length, "window.length")
    return Schedule(
        _instant(window.start, "window.start"),
        length,
        length if window.slide is None else duration_ms(window.slide, "window.slide"),
        duration_ms(window.lateness, "window.lateness"),
        None if window.end is None else _instant(window.end, "window.end"),
    )


def _mechanism(config: Config, grid: Grid) -> Mechanism:
    release = config.release
    if release.pairs != "exact" and (release.kind == "count" or release.method == "ball"):
        raise ConfigError("belongs to the methods that find a core: 'recentered' and 'friendly'", "release.pairs")
    if release.kind == "count":
        return NoisyCount(_loss(release, with_delta=False))
    if release.radius is None:
        raise ConfigError("is required: the known diameter of the data (method 'ball': of the ball)", "release.radius")
    if release.method == "ball":
        if release.center is None or len(release.center) != grid.dimension:
            raise ConfigError(f"must list {grid.dimension} numbers for method 'ball'", "release.center")
        center = _ball_center(release.center, grid)
        return BallMean(
            _loss(release, with_delta=False), center, grid.lattice.radius_squared(release.radius, "release.radius")
        )
    if release.center is not None:
        raise ConfigError("belongs to method 'ball' only: the other methods find the center", "release.center")
    return mean_mechanism(
        release.method,
        _loss(release, with_delta=True),
        grid.lattice,
        grid.dimension,
        release.radius,
        release.size_hint,
        release.spread,
        release.pairs,
    )


def mean_mechanism(
    method: str,
    loss: PrivacyLoss,
    lattice: Lattice,
    dimension: int,
    radius: float,
    size_hint: int | None,
    spread: float | str,
    pairs: str = "exact",
) -> Mechanism:
    """The mechanism of a mean with unknown center, checked."""
    if size_hint is None or not 1 <= size_hint <= 2**40:
        raise ConfigError(
            f"must be a public guess of records per window, at least 1, got {size_hint}", "release.size_hint"
        )
    radius_squared = lattice.radius_squared(radius, "release.radius")
    if method == "friendly":
        return FriendlyMean(loss, radius_squared, dimension, size_hint, pairs)
    steps = None
    if spread != "histogram":
        if isinstance(spread, str) or not (math.isfinite(spread) and 0 < spread <= radius):
            raise ConfigError(
                f"must be 'histogram' or a number in (0, radius = {radius:g}], got {spread!r}", "release.spread"
            )
        steps = float(spread) / lattice.step
    recentred = RecentredMean(loss, radius_squared, dimension, size_hint, steps, pairs)
    return TrackingMean(recentred) if method == "tracking" else recentred


def _ball_center(center: list[float], grid: Grid) -> tuple[int, ...]:
    """A public center in the features' own (transformed) units -> the nearest lattice point."""
    point = []
    for value, feature in zip(center, grid.features, strict=True):
        if not math.isfinite(value):
            raise ConfigError(f"must be finite, got {value}", "release.center")
        scaled = (value - feature.origin) / feature.scale
        low, high = float(feature.scaled(feature.minimum)), float(feature.scaled(feature.maximum))
        if not low <= scaled <= high:
            raise ConfigError(f"must lie in the range of {feature.name!r}, got {value:g}", "release.center")
        point.append(int(grid.lattice.coordinates(scaled)))
    return tuple(point)


def _capacity(budget: BudgetSection) -> PrivacyLoss:
    if not (math.isfinite(budget.rho) and budget.rho > 0):
        raise ConfigError(f"must be a positive number, got {budget.rho!r}", "budget.rho")
    if not 0 <= budget.delta < 1:
        raise ConfigError(f"must be in [0, 1), got {budget.delta!r}", "budget.delta")
    return PrivacyLoss.cap(budget.rho, budget.delta)


def _loss(release: ReleaseSection, *, with_delta: bool) -> PrivacyLoss:
    if not (math.isfinite(release.rho) and release.rho > 0):
        raise ConfigError(f"must be a positive number, got {release.rho!r}", "release.rho")
    if not with_delta:
        return PrivacyLoss.charge(release.rho)
    if not 1e-14 <= release.delta < 1:
        raise ConfigError(f"must be in [1e-14, 1) for this method, got {release.delta!r}", "release.delta")
    return PrivacyLoss.charge(release.rho, release.delta)


def _specification(config: Config) -> str:
    """Hash of everything that shapes a release. The end of the schedule may move, its start and steps may not."""
    # Keys that came later count only where they are used, so that older ledgers stay valid.
    shape = {
        "stream": _used(config.stream, {"user": None, "per_user": "first"}),
        "lattice": config.lattice,
        "features": config.features,
        "window": [config.window.start, config.window.length, config.window.slide or config.window.length],
        "release": _used(config.release, {"pairs": "exact"}),
    }
    if config.budget.savings != "none":
        shape["savings"] = [config.budget.savings, config.window.end]
    return hashlib.sha256(msgspec.json.encode(shape, order="deterministic")).hexdigest()


def _used(section: msgspec.Struct, later: Mapping[str, Any]) -> msgspec.Raw:
    """A section in the order of its keys, without the later ones that stand at their defaults."""
    values = {name: getattr(section, name) for name in section.__struct_fields__}
    return msgspec.Raw(
        msgspec.json.encode({k: value for k, value in values.items() if k not in later or value != later[k]})
    )


def _check_keys(section: type[msgspec.Struct], values: Any, place: str) -> None:
    """Unknown keys are errors that name the nearest known one."""
    if not isinstance(values, Mapping):
        return
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(section)}
    for key, value in values.items():
        where = f"{place}.{key}" if place else str(key)
        if key not in fields:
            near = difflib.get_close_matches(str(key), fields, n=1, cutoff=0.0)
            raise ConfigError(f"is not a known key: did you mean {near[0]!r}?", where)
        for inner in _sections(fields[key]):
            for item in value if isinstance(value, list) else [value]:
                _check_keys(inner, item, where)


def _sections(kind: Any) -> list[type[msgspec.Struct]]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return [kind]
    return [inner for part in getattr(kind, "__args__", ()) for inner in _sections(part)]
