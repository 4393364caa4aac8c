"""What may be written in a configuration: one structure a section."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ..errors import ConfigError
from ..stream.lattice import Feature

if TYPE_CHECKING:
    from ..releases.options import Options


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
    declared levels. `missing` has the texts and numbers that stand for no value besides null; with `optional` a record
    without a value counts in an answer that is about other fields."""

    name: str
    min: float | None = None
    max: float | None = None
    scale: float = 1.0
    origin: float = 0.0
    transform: Literal["none", "log1p", "asinh"] = "none"
    type: Literal["number", "boolean", "category"] = "number"
    levels: list[str] | None = None
    missing: list[str | float] = []
    optional: bool = False

    def feature(self) -> Feature:
        """Checked."""
        key = f"features.{self.name}"
        if (self.levels is None) != (self.type != "category"):
            raise ConfigError("must be given for type = 'category', and for no other", f"{key}.levels")
        if self.type == "number":
            for name, bound in (("min", self.min), ("max", self.max)):
                if bound is None:
                    raise ConfigError("is required for a number: its public range", f"{key}.{name}")
            assert self.min is not None
            assert self.max is not None
            numbers = tuple(float(value) for value in self.missing if not isinstance(value, str))
            scale, origin, transform = self.scale, self.origin, self.transform
            return Feature(
                self.name, self.min, self.max, scale, origin, transform, missing=numbers, optional=self.optional
            )
        for name, default in (("min", None), ("max", None), ("scale", 1.0), ("origin", 0.0), ("transform", "none")):
            if getattr(self, name) != default:
                raise ConfigError(f"must be left out with type = {self.type!r}", f"{key}.{name}")
        levels = tuple(self.levels or ("false", "true"))
        if len(levels) < 2 or len(set(levels)) < len(levels):
            raise ConfigError("must be at least two different texts", f"{key}.levels")
        return Feature(self.name, 0.0, float(len(levels) - 1), levels=levels, optional=self.optional)

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
    max_records: int | None = None
    backlog: str | None = None


class BudgetSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[budget]``: the cap, for ever, of what one record (unit event), one user or the stream can cost."""

    rho: float
    delta: float
    total_rho: float | None = None
    total_delta: float | None = None
    savings: Literal["none", "even", "paper"] = "none"
    exhausted: Literal["omit", "refuse", "stop"] | None = None


class UrlSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[sink]``, ``[ledger]``: where."""

    url: str


class DeadLetterSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[dead_letter]``: where rejections are reported, and how much room they may take in a file."""

    url: str
    max_bytes: int = 2**26


class SourceSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[source]``: where records come from; for brokers also what a message holds, and the local spool of queues that
    forget what was acknowledged."""

    url: str
    format: Literal["json", "msgpack", "floats", "arrow"] = "json"
    name: str | None = None
    spool: str | None = None
    spool_bytes: int = 2**30
    downtime: str = "0s"
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


class Sections(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All sections of a configuration, each checked for itself."""

    stream: StreamSection
    lattice: LatticeSection | None = None
    features: list[FeatureSection] = []
    window: WindowSection
    if TYPE_CHECKING:
        release: Options
    else:
        release: Any  # a subclass of `Options`, which one depends on the kind
    budget: BudgetSection
    source: SourceSection | None = None
    sink: UrlSection | None = None
    ledger: UrlSection | None = None
    dead_letter: DeadLetterSection | None = None
    service: ServiceSection | None = None
    spark: SparkSection = SparkSection()
