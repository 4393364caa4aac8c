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
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import msgspec

from .budgets import BudgetSchedule
from .errors import ConfigError
from .lattice import Feature, Grid, Lattice
from .ledgers.base import Terms
from .policies import Spending
from .records import Refused, Schema, parse_iso8601
from .releases.base import Mechanism
from .releases.options import Options, Setting, keys_of
from .releases.registry import check_keys, find
from .windows import Schedule
from .zcdp import PrivacyLoss

Section = TypeVar("Section", bound=msgspec.Struct)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_LONGEST_KEY = 200
_MILLIS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class StreamSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[stream]``: what the records are."""

    name: str
    time: str = "ts_ms"
    time_unit: Literal["ms", "s", "iso8601"] = "ms"
    unit: Literal["event", "stream", "user"] = "event"
    user: str | None = None
    per_user: Literal["first", "mean"] = "first"
    key: str | None = None
    keys: list[str] | None = None
    keys_per_user: int | None = None


class LatticeSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[lattice]``: one public grid for all coordinates, after scaling."""

    step: float


class FeatureSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[[features]]``: one coordinate each, ``(transform(field) - origin) / scale``, or a Boolean, or a category with
    declared levels."""

    name: str
    min: float | None = None
    max: float | None = None
    scale: float = 1.0
    origin: float = 0.0
    transform: Literal["none", "log1p", "asinh"] = "none"
    type: Literal["number", "boolean", "category"] = "number"
    levels: list[str] | None = None

    def feature(self) -> Feature:
        """Checked."""
        place = f"features.{self.name}"
        if (self.levels is None) != (self.type != "category"):
            raise ConfigError("must be given for type = 'category', and for no other", f"{place}.levels")
        if self.type == "number":
            for name, bound in (("min", self.min), ("max", self.max)):
                if bound is None:
                    raise ConfigError("is required for a number: its public range", f"{place}.{name}")
            assert self.min is not None
            assert self.max is not None
            return Feature(self.name, self.min, self.max, self.scale, self.origin, self.transform)
        for name, default in (("min", None), ("max", None), ("scale", 1.0), ("origin", 0.0), ("transform", "none")):
            if getattr(self, name) != default:
                raise ConfigError(f"must be left out with type = {self.type!r}", f"{place}.{name}")
        levels = tuple(self.levels or ("false", "true"))
        if len(levels) < 2 or len(set(levels)) < len(levels):
            raise ConfigError("must be at least two different texts", f"{place}.levels")
        return Feature(self.name, 0.0, float(len(levels) - 1), levels=levels)

    def codes(self) -> dict[Any, int]:
        """Which code a value of a record stands for; of a number none."""
        if self.type == "boolean":
            return {"false": 0, "true": 1, "False": 0, "True": 1, "FALSE": 0, "TRUE": 1, "0": 0, "1": 1, 0: 0, 1: 1}
        found: dict[Any, int] = {level: code for code, level in enumerate(self.levels or ())}
        for level, code in list(found.items()):  # whole numbers and truth values are as good as their text
            if level in ("false", "true"):
                found.setdefault(level == "true", code)
            elif len(level) < 16 and level.removeprefix("-").isdecimal() and str(int(level)) == level:
                found.setdefault(int(level), code)
        return found


class WindowSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[window]``: the public schedule."""

    length: str
    slide: str | None = None
    lateness: str = "0s"
    clock: Literal["eof", "wall", "broker"] = "eof"
    start: str
    end: str | None = None
    ahead: str | None = None


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
    partitioner: Literal["murmur2", "crc32"] | None = None


class ServiceSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[service]``: how a live stream is watched."""

    listen: str | None = None
    counters: bool = False
    log: Literal["text", "json"] = "text"


class SparkSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[spark]``: how ``--runner spark`` runs. Nothing here shapes a release."""

    master: str = "local[*]"
    checkpoint: str | None = None
    partitions: int | None = None
    limit: int = 200_000
    trigger: str = "250ms"
    reader: Literal["own", "spark"] = "own"
    options: dict[str, str] = {}
    split: Literal["auto", "never", "always"] = "auto"
    settings: dict[str, str] = {}


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
    if TYPE_CHECKING:
        release: Options
    else:
        release: Any  # a subclass of `Options`, which one depends on the kind
    budget: BudgetSection
    source: SourceSection | None = None
    sink: UrlSection | None = None
    ledger: UrlSection | None = None
    dead_letter: UrlSection | None = None
    service: ServiceSection | None = None
    spark: SparkSection = SparkSection()

    def __post_init__(self) -> None:
        if not isinstance(self.release, Options):
            raise ConfigError(f"must be the options of a kind, got {type(self.release).__name__}", "release")
        letters, others = self.dead_letter, [section.url for section in (self.source, self.sink) if section]
        if letters and "://" in letters.url and letters.url in others:
            raise ConfigError(
                "must be a queue of its own: there, rejections would be read as records, or as releases",
                "dead_letter.url",
            )
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
        values = _dates_as_text(sections)
        if isinstance(values, dict) and "release" in values:
            values["release"] = _release(values["release"])
        return _converted(values, cls)


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
    keys : tuple of str
        Of a stream in parts; `terms` are then each part's own but for its name, see `part`.
    key : str or None
        The part that this is.
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
    keys: tuple[str, ...] = ()
    key: str | None = None

    def part(self, key: str) -> Job:
        """One key's part of the stream: a stream of its own in the ledger and at the sink."""
        return replace(self, key=key, terms=replace(self.terms, stream=part_name(self.terms.stream, key)))

    @classmethod
    def answering(cls, config: Config, key: str | None) -> Job:
        """Of a stream without keys, or of one key's part."""
        job = cls.of(config)
        if key is None and not job.keys:
            return job
        if key not in job.keys:
            raise ConfigError("must be one of `stream.keys`; `KeyedEngine` answers all of them", "key")
        return job.part(key)

    @classmethod
    def of(cls, config: Config) -> Job:
        """Build and check."""
        stream, window = config.stream, config.window
        if not stream.name:
            raise ConfigError("must not be empty", "stream.name")
        features = tuple(f.name for f in config.features)
        levels = {f.name: f.codes() for f in config.features if f.type != "number"}
        schema = Schema(stream.time, stream.time_unit, features, _user_field(stream), stream.key, levels)
        if stream.time in schema.features:
            raise ConfigError(f"must not be the time field {stream.time!r}", "features")
        for place, name in (("user", schema.user), ("key", schema.key)):
            if name is not None and name in (stream.time, *schema.features):
                raise ConfigError(f"must be a field of its own, {name!r} is the time or a feature", f"stream.{place}")
        keys, shares = _keys(config)
        grid = Grid(
            Lattice(config.lattice.step),
            tuple(f.feature() for f in config.features),
        )
        if not config.release.takes_categories and (category := _category(config)):
            raise ConfigError(
                f"must not be a category for a release of kind {config.release.kind!r}: its codes are no quantities",
                f"features.{category}.type",
            )
        if stream.per_user == "mean" and _category(config):
            raise ConfigError("must be 'first' where a feature is a category: codes have no mean", "stream.per_user")
        schedule = _schedule(window)
        mechanism = config.release.build(Setting(grid, schedule.reach, stream.unit))
        if schedule.reach > 1 and stream.unit == "user":
            raise ConfigError(
                "must be left out with unit = 'user': a user could have a point in each of several windows at once",
                "window.slide",
            )
        capacity = _capacity(config.budget, 1 if stream.unit == "event" else shares)
        times = schedule.overlap if stream.unit == "event" else 1
        if not (mechanism.loss * times).fits(capacity):
            what = f"a record lies in up to {times} windows" if times > 1 else "one window"
            what += f" (each of {shares} keys has its share of the budget)" if stream.unit != "event" and keys else ""
            raise ConfigError(
                f"must hold {what} at {mechanism.loss} each, got {capacity}: raise it, or lower `release`", "budget"
            )
        total = _total(config.budget, mechanism, shares)
        terms = Terms(stream.name, stream.unit, capacity, _specification(config), total)
        spending = _spending(config, mechanism, schedule, capacity)
        ahead = schedule.length_ms if window.ahead is None else duration_ms(window.ahead, "window.ahead")
        return cls(schema, grid, schedule, mechanism, terms, window.clock, ahead, spending, stream.per_user, keys)


def _category(config: Config) -> str | None:
    """The first feature whose codes mean nothing as numbers."""
    return next((f.name for f in config.features if f.type == "category"), None)


def part_name(stream: str, key: str) -> str:
    """What one key's part of a stream is called."""
    return f"{stream}/{key}"


def _keys(config: Config) -> tuple[tuple[str, ...], int]:
    """The declared keys, and under how many of them one user's records may lie: the budget is divided by it."""
    stream = config.stream
    if stream.key is None:
        for name in ("keys", "keys_per_user"):
            if getattr(stream, name) is not None:
                raise ConfigError("belongs to `stream.key`: the field that tells a stream's parts", f"stream.{name}")
        if config.source is not None and config.source.partitioner is not None:
            raise ConfigError("belongs to `stream.key`: keys are what has a place", "source.partitioner")
        return (), 1
    if stream.key == stream.user:
        raise ConfigError(f"must be another field than the user's, got {stream.key!r}", "stream.key")
    keys = tuple(stream.keys or ())
    if not keys:
        raise ConfigError(
            "is required with `stream.key`: every part has a release for every window, so all of them are public",
            "stream.keys",
        )
    for i, key in enumerate(keys):
        if not 0 < len(key) <= _LONGEST_KEY or not key.isprintable() or key in keys[:i]:
            raise ConfigError(
                f"must be different texts of 1 to {_LONGEST_KEY} printable characters, the one at {i} is not",
                "stream.keys",
            )
    shares = len(keys) if stream.keys_per_user is None else stream.keys_per_user
    if not 1 <= shares <= len(keys):
        raise ConfigError(f"must be in [1, {len(keys)}] (there are as many keys), got {shares}", "stream.keys_per_user")
    return keys, shares


def _user_field(stream: StreamSection) -> str | None:
    if stream.unit == "user":
        if not stream.user:
            raise ConfigError("is required with unit = 'user': the field that names whose record it is", "stream.user")
        return stream.user
    if stream.user is not None:
        raise ConfigError(f"belongs to unit = 'user', the unit is {stream.unit!r}", "stream.user")
    return None


def _total(budget: BudgetSection, mechanism: Mechanism, shares: int) -> PrivacyLoss | None:
    """The cap of the plain sum over all windows of one part."""
    if budget.total_rho is None:
        if budget.total_delta is not None:
            raise ConfigError("is required beside `total_delta`", "budget.total_rho")
        return None
    if not (math.isfinite(budget.total_rho) and budget.total_rho > 0):
        raise ConfigError(f"must be a positive number, got {budget.total_rho!r}", "budget.total_rho")
    delta = 0.0 if budget.total_delta is None else budget.total_delta
    if not 0 <= delta < 1:
        raise ConfigError(f"must be in [0, 1), got {delta!r}", "budget.total_delta")
    total = _share(PrivacyLoss.cap(budget.total_rho, delta), shares)
    if not mechanism.loss.fits(total):
        place = "budget.total_rho" if mechanism.loss.rho_nano > total.rho_nano else "budget.total_delta"
        raise ConfigError(f"must hold one window at {mechanism.loss}, got {total}", place)
    return total


def _spending(config: Config, mechanism: Mechanism, schedule: Schedule, capacity: PrivacyLoss) -> Spending:
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
    if not base.fits(capacity):
        raise ConfigError(
            f"must hold {schedule.count} windows at `release` to save from, {base} together, got {capacity}",
            "budget",
        )
    return replace(spending, savings=BudgetSchedule(base.rho_nano, schedule.count, budget.savings))


def _converted(values: Any, section: type[Section], place: str = "") -> Section:
    """A checked section; errors name the key."""
    try:
        return msgspec.convert(values, section)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, ConfigError):
            raise error.__cause__ from None
        message, _, inner = str(error).partition(" - at `$.")
        where = ".".join(filter(None, (place, inner.rstrip("`"))))
        if message.startswith("Invalid enum value"):
            message = f"must be {_choices(section, inner.rstrip('`'))}, got {message.split(maxsplit=3)[3]}"
        elif message in ("Expected `str`, got `int`", "Expected `str`, got `float`"):
            message = "must be text in quotes, got a number"
        raise ConfigError(message[:1].lower() + message[1:], where) from None


def _choices(section: type[msgspec.Struct], path: str) -> str:
    """What the key at a path below a section may be, as words."""
    *outer, last = (part.partition("[")[0] for part in path.split("."))
    for name in outer:
        (section,) = _sections({field.encode_name: field.type for field in msgspec.structs.fields(section)}[name])
    kind = {field.encode_name: field.type for field in msgspec.structs.fields(section)}[last]
    words = [repr(word) for part in (kind, *get_args(kind)) for word in get_args(part) if isinstance(word, str)]
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _release(values: Any) -> Options:
    """``[release]``, by the options of its kind."""
    if isinstance(values, Options):
        return values
    if not isinstance(values, Mapping):
        raise ConfigError(f"must be a section of keys, got {type(values).__name__}", "release")
    options = find(values.get("kind", "mean"), values.get("method"))
    check_keys(options, values)
    for name, kind in keys_of(options).items():
        for inner in _sections(kind):
            for item in values[name] if isinstance(values.get(name), list) else [values.get(name)]:
                _check_keys(inner, item, f"release.{name}")
    return _converted(values, options, "release")


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


def _share(capacity: PrivacyLoss, shares: int) -> PrivacyLoss:
    return PrivacyLoss(capacity.rho_nano // shares, capacity.delta_femto // shares)


def _capacity(budget: BudgetSection, shares: int) -> PrivacyLoss:
    if not (math.isfinite(budget.rho) and budget.rho > 0):
        raise ConfigError(f"must be a positive number, got {budget.rho!r}", "budget.rho")
    if not 0 <= budget.delta < 1:
        raise ConfigError(f"must be in [0, 1), got {budget.delta!r}", "budget.delta")
    return _share(PrivacyLoss.cap(budget.rho, budget.delta), shares)


def _specification(config: Config) -> str:
    """Hash of everything that shapes a release. The end of the schedule may move, its start and steps may not."""
    # Keys that came later count only where they are used, so that older ledgers stay valid.
    shape = {
        # Which other keys there are shapes nothing, and the caps hold what each has of the budget.
        "stream": _used(
            msgspec.structs.replace(config.stream, keys=None, keys_per_user=None),
            {"user": None, "per_user": "first", "key": None, "keys": None, "keys_per_user": None},
        ),
        "lattice": config.lattice,
        "features": [_used(feature, {"type": "number", "levels": None}) for feature in config.features],
        "window": [config.window.start, config.window.length, config.window.slide or config.window.length],
        "release": msgspec.Raw(msgspec.json.encode(config.release.shape())),
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
            near = difflib.get_close_matches(str(key), fields, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(fields)}"
            raise ConfigError(f"is not a known key: {hint}", where)
        for inner in _sections(fields[key]):
            for item in value if isinstance(value, list) else [value]:
                _check_keys(inner, item, where)


def _sections(kind: Any) -> list[type[msgspec.Struct]]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return [kind]
    return [inner for part in getattr(kind, "__args__", ()) for inner in _sections(part)]
