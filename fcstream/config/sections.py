"""Sections of a configuration: what may be written, one structure for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ..errors import ConfigError
from ..formats.texts import MAX_BYTES
from ..releases.options import Options
from ..stream.lattice import Feature


class StreamSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[stream]``: what the records are."""

    name: str
    """The stream in releases and ledgers. It is one for ever: another name is another stream with another budget."""
    time: str = "ts_ms"
    """Field of a record that holds its event time."""
    time_unit: Literal["ms", "s", "iso8601"] = "ms"
    """How event times are written: numbers of milliseconds or seconds since 1970, or ISO 8601 texts."""
    unit: Literal["event", "stream", "user"] = "event"
    """What the guarantee protects: one record (``event``), all records of one user (``user``), or any records with
    at most one in each window (``stream``)."""
    user: str | None = None
    """Field that names the user; for ``unit = "user"`` alone, which requires it."""
    per_user: Literal["first", "mean"] = "first"
    """A user's one point in a window: the earliest record, or the mean of all."""
    key: str | None = None
    """Field that tells the parts of the stream, such as sites. Every part is answered for itself and has budgets of
    its own."""
    keys: list[str] | None = None
    """All keys there are; required with ``key``, since each has an answer for every window. A record with another
    key is rejected."""
    keys_per_user: int | None = None
    """Under how many keys one user can have records, which is your promise: with the units ``user`` and ``stream``
    each key has the budget divided by it. With ``key_budgets = "shared"`` it is no promise, but the most keys under
    which one user counts in a window. Left out: the number of keys."""
    key_budgets: Literal["divided", "shared"] = "divided"
    """Of the unit ``user``: whether each key has users' filters of its own (``divided``), or a user has one for all
    keys (``shared``), which every window charges for as many keys as a user may count under."""


class LatticeSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[lattice]``: one public grid for all coordinates, after scaling."""

    step: float
    """Width of the grid that scaled values are rounded to, so that all arithmetic is exact; about a thousandth of
    ``release.radius``."""


class FeatureSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[[features]]``: one coordinate each, ``(transform(field) - origin) / scale``, a Boolean, a category, or a text.

    A category declares its levels. A text has no range; ``where`` and ``kind = "frequent"`` read it. `missing` lists
    the texts and numbers that stand for no value besides null. With `optional` a record without a value counts in a
    release that is about other fields.
    """

    name: str
    """Field of a record that holds the value."""
    min: float | None = None
    """Lower end of the public range, in the units of the field; required for numbers. Values outside are rejected."""
    max: float | None = None
    """Upper end of the public range, likewise."""
    scale: float = 1.0
    """How much of the transformed field counts as 1. Choose it so that a difference of 1 means about the same in
    each feature."""
    origin: float = 0.0
    """Value of the transformed field that lies at 0."""
    transform: Literal["none", "log1p", "asinh"] = "none"
    """What is done to the field before anything else. Released values and ``sigma`` are those of the transformed
    field."""
    type: Literal["number", "boolean", "category", "text"] = "number"
    """What the field holds: numbers, true and false, one of ``levels``, or any text. Texts are brought to Unicode's
    normal form C; a whole number is taken as its decimal text."""
    levels: list[str] | None = None
    """The texts that a category may be, at least two; for ``type = "category"`` alone, which requires it."""
    max_bytes: int | None = None
    """Most bytes of a text in UTF-8; a record with a longer one is rejected. Left out: 256."""
    missing: list[str | float] = []
    """Texts and numbers that stand for no value, besides null, such as ``["", 102.3]``."""
    optional: bool = False
    """Whether a record without this value, or with NaN in arrays, counts all the same; for features that the answer
    is not about."""

    @property
    def is_text(self) -> bool:
        return self.type == "text"

    @property
    def key(self) -> str:
        """Name of the section in messages."""
        return f"features.{self.name}"

    def text_bytes(self) -> int:
        """Check a feature that holds texts; return the most bytes of one."""
        self._refuse(("min", "max", "levels"), (("scale", 1.0), ("origin", 0.0), ("transform", "none")))
        most = MAX_BYTES if self.max_bytes is None else self.max_bytes
        if not 1 <= most <= 2**16:
            raise ConfigError(f"must be in [1, {2**16}], got {most}", f"{self.key}.max_bytes")
        return most

    def _refuse(self, absent: tuple[str, ...], defaults: tuple[tuple[str, Any], ...]) -> None:
        """Refuse keys that do not belong to this type."""
        for name, default in (*((name, None) for name in absent), *defaults):
            if getattr(self, name) != default:
                raise ConfigError(f"must be left out with type = {self.type!r}", f"{self.key}.{name}")

    def feature(self) -> Feature:
        """Make the feature, after checking it; not for texts."""
        key = self.key
        self._refuse(("max_bytes",), ())
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
        self._refuse(("min", "max"), (("scale", 1.0), ("origin", 0.0), ("transform", "none")))
        levels = tuple(self.levels or ("false", "true"))
        if len(levels) < 2 or len(set(levels)) < len(levels):
            raise ConfigError("must be at least two different texts", f"{key}.levels")
        return Feature(self.name, 0.0, float(len(levels) - 1), levels=levels, optional=self.optional)

    def codes(self) -> dict[Any, int]:
        """Return the code that each value of a record stands for; nothing for a number."""
        if self.type == "boolean":
            return {"false": 0, "true": 1, "False": 0, "True": 1, "FALSE": 0, "TRUE": 1, "0": 0, "1": 1, 0: 0, 1: 1}
        found: dict[Any, int] = {level: code for code, level in enumerate(self.levels or ())}
        for level, code in list(found.items()):  # whole numbers and truth values may stand for their text
            if level in ("false", "true"):
                found.setdefault(level == "true", code)
            elif len(level) < 16 and level.removeprefix("-").isdecimal() and str(int(level)) == level:
                found.setdefault(int(level), code)
        return found


class WindowSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[window]``: the public schedule."""

    length: str
    """How long a window is, as a duration such as ``10m``."""
    slide: str | None = None
    """How long after a window the next one opens, as a duration that divides ``length``. Left out: ``length``, so
    that windows do not overlap."""
    lateness: str = "0s"
    """How long after its end a window waits for records, as a duration."""
    clock: Literal["eof", "wall", "broker"] = "eof"
    """What closes windows: the end of the input (``eof``, for files), this machine's clock (``wall``), or the
    broker's timestamps (``broker``, for live streams)."""
    start: str
    """When the first window opens, in ISO 8601; of a live stream also ``now``, which opens windows at multiples of
    ``slide`` since 1970."""
    end: str | None = None
    """When the last window ends, in ISO 8601; required with ``clock = "eof"``. Every window before it is answered,
    so let it not lie beyond the data."""
    ahead: str | None = None
    """How far a live record's event time may lie ahead of its arrival, as a duration. Left out: ``length``."""
    max_records: int | None = None
    """Windows of more records are refused (``too_many``), which bounds memory. Left out: 16 times
    ``release.size_hint``."""
    backlog: str | None = None
    """How long before its first run a live stream's windows are still answered, as a duration. Left out: ``0s``."""


class BudgetSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[budget]``: the cap, for ever, of what one record (unit event), one user or the stream can cost."""

    rho: float
    """The cap, for ever, of what one unit of privacy can cost, as a rho of zCDP: of each record (``event``), each user
    (``user``), or the stream (``stream``)."""
    delta: float
    """The cap of δ beside it; 0.0 does for kinds without a δ."""
    total_rho: float | None = None
    """A cap on the sum of all windows besides, whatever the unit."""
    total_delta: float | None = None
    """The δ of that cap. Left out: 0."""
    group: str | None = None
    """Name of a group, with the units ``user`` and ``stream``: all streams of the ledger that name it share their
    filters, so the caps hold for their sum. They state the same unit and the same caps, and are never divided by
    keys."""
    savings: Literal["none", "even", "paper"] = "none"
    """What becomes of what windows did not use, with the units ``stream`` and ``user`` and a ``window.end``:
    nothing, an even share for each window that is left (``even``), or three quarters and more of it for the next one
    (``paper``)."""
    exhausted: Literal["omit", "refuse", "stop"] | None = None
    """What happens when no room is left: windows are refused with ``budget_exhausted`` (``refuse``), the run ends
    with exit code 3 (``stop``), or users without budget are left out of windows (``omit``). Left out: ``omit`` for
    the unit ``user``, else ``refuse``."""


class UrlSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[sink]``, ``[ledger]``: an address."""

    url: str
    """Where, as a URL."""


class DeadLetterSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[dead_letter]``: where rejections are reported, and how much room they may take in a file."""

    url: str
    """Where rejections are reported, as a URL: ``jsonl:PATH``, or a queue of a broker of its own.
    One that fails never holds up the stream."""
    max_bytes: int = 2**26
    """Bytes that the file may take, together with ``PATH.1``, which holds the older half."""


class SourceSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[source]``: where records come from.

    For brokers also what a message holds, and the local spool of queues that forget what was acknowledged.
    """

    url: str
    """Where records come from, as a URL."""
    format: Literal["json", "msgpack", "floats", "arrow"] = "json"
    """What a message of a broker holds: one record as JSON or MessagePack; or many as rows of a little-endian int64
    time in milliseconds and float64 features (``floats``, no users or keys), or as an uncompressed Arrow IPC stream
    without dictionaries (``arrow``). A row that is wrong rejects itself alone."""
    name: str | None = None
    """The consumer, as the broker knows it. Left out: ``fcstream-STREAM``."""
    spool: str | None = None
    """Folder of the spool, in which messages lie until their window is answered; required by AMQP queues and MQTT,
    which forget what was acknowledged."""
    spool_bytes: int = 2**30
    """Bytes that the spool may take. While it is full nothing is received; a message larger than half of it is
    rejected."""
    downtime: str = "0s"
    """For queues: windows wait, after a start or a lost connection, as long as the pause was, but not longer than
    this duration, and what comes meanwhile may be as old as the pause."""
    partitioner: Literal["murmur2", "crc32"] | None = None
    """How producers of Kafka place keys in partitions: like Java's client (``murmur2``) or like librdkafka
    (``crc32``). It lets several processes share the keys of one stream."""


class ServiceSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[service]``: how a live stream is watched."""

    listen: str | None = None
    """Host and port at which ``/live``, ``/ready`` and ``/metrics`` are answered, such as ``127.0.0.1:9100``; needs
    the extra ``service``."""
    counters: bool = False
    """Whether ``/metrics`` has exact numbers of records, which are not private."""
    log: Literal["text", "json"] = "text"
    """How the log is written: lines of text, or one JSON object a line (needs the extra ``service``)."""


class SparkSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[spark]``: how ``--runner spark`` runs. Nothing here shapes a release."""

    master: str = "local[*]"
    """Spark's master URL; ``--master`` goes before it."""
    checkpoint: str | None = None
    """Of a live stream, which requires it: a folder of its own that all machines see. Spark keeps offsets and open
    windows there."""
    partitions: int | None = None
    """Number of tasks that hold open windows, as many as cores will ever be; fixed by the checkpoint. Left out: 200,
    as Spark has it."""
    limit: int = 200_000
    """About the most messages of one micro-batch; 0: all there are."""
    trigger: str = "250ms"
    """How often the broker is asked, as a duration."""
    reader: Literal["own", "spark"] = "own"
    """Who reads Kafka: fcstream's own reader, or Spark's connector, which was not run."""
    options: dict[str, str] = {}
    """Options of Spark's Kafka connector, with ``reader = "spark"``."""
    split: Literal["auto", "never", "always"] = "auto"
    """Whether the pairs of every window are dealt to all tasks: where ``size_hint`` is large enough for it to pay,
    never, or always."""
    settings: dict[str, str] = {}
    """Any other settings of Spark, such as ``spark.executor.memory``."""


class Sections(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All sections of a configuration, each checked by itself."""

    stream: StreamSection
    lattice: LatticeSection | None = None
    features: list[FeatureSection] = []
    window: WindowSection
    if TYPE_CHECKING:
        release: Options | tuple[Options, ...]
    else:
        release: Any  # subclasses of `Options`, which one depends on the kind
    budget: BudgetSection
    source: SourceSection | None = None
    sink: UrlSection | None = None
    ledger: UrlSection | None = None
    dead_letter: DeadLetterSection | None = None
    service: ServiceSection | None = None
    spark: SparkSection = SparkSection()

    @property
    def releases(self) -> tuple[Options, ...]:
        """The options of every answer, in order."""
        return self.release if isinstance(self.release, tuple) else (self.release,)
