"""Sections of a configuration: what may be written, one structure for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ..errors import ConfigError
from ..formats.cells import BOOLEAN
from ..formats.csv_dialect import CsvDialect
from ..formats.registry import FORMATS, OPTION_KEYS, FormatName
from ..formats.texts import MAX_BYTES, composed
from ..releases.options import Options
from ..stream.lattice import Feature


class KeyDiscoverySection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[stream.keys]``: keys that nobody declares: those that many records have in one period serve in the next.

    Needs windows that do not overlap, and the unit ``event``, or ``user`` with ``key_budgets = "shared"``.
    """

    discover: Literal["frequent"]
    """How keys are found: as ``kind = "frequent"`` finds texts."""
    every: str
    """How long a period is, as a duration of whole windows, counted from ``window.start``."""
    rho: float | None = None
    """What finding the keys of one period costs at most, as a rho of zCDP. ``budget`` holds it besides the windows.
    Left out: a tenth of what a window costs."""
    delta: float | None = None
    """What it costs besides, as a δ of zCDP: it pays for telling keys that nobody declared. Left out: a thousandth of
    ``budget.delta``."""
    max_values: int | None = None
    """How many different keys the records of a period may have; of periods with more none is told
    (``too_many_values``), which bounds memory. Left out: 100000. Not with the unit ``user``."""
    max_users: int | None = None
    """With the unit ``user``: how many users a period may have; of periods with more no key is told (``too_many``).
    Left out: any number."""
    values_per_user: int | None = None
    """With the unit ``user``: for how many different keys of a period a user counts at most. They are chosen by a
    secret hash. Left out: 1."""
    first: list[str] = []
    """Keys of the first period, of which nothing is known yet. Left out: none, so that it has no releases."""


class StreamSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[stream]``: what the records are."""

    name: str
    """The stream in releases and ledgers. It is one for ever: another name is another stream with another budget."""
    time: str = "ts_ms"
    """Field of a record that holds its event time: a path such as ``at.s``, or ``@broker`` for the time at which the
    message arrived, ``@topic:N`` or ``@header:NAME``."""
    time_unit: Literal["ms", "s", "us", "ns", "iso8601"] = "ms"
    """How event times are written: numbers of milliseconds, seconds, microseconds or nanoseconds since 1970, or ISO
    8601 texts. Microseconds and nanoseconds are rounded down to milliseconds."""
    unit: Literal["event", "stream", "user"] = "event"
    """What the guarantee protects: one record (``event``), all records of one user (``user``), or any records with
    at most one in each window (``stream``)."""
    user: str | None = None
    """Field that names the user, as a path, or ``@topic:N``, ``@key`` or ``@header:NAME`` of the message; for
    ``unit = "user"`` alone, which requires it."""
    per_user: Literal["first", "mean"] = "first"
    """A user's one point in a window: the earliest record, or the mean of all."""
    key: str | None = None
    """Field that tells the parts of the stream, such as sites; a path, or ``@topic:N``, ``@key`` or ``@header:NAME``
    of the message. Every part is answered for itself and has budgets of
    its own."""
    keys: list[str] | KeyDiscoverySection | None = None
    """All keys there are; required with ``key``, since each has an answer for every window. A record with another
    key is rejected. Or how they are found (``{ discover = "frequent", ... }``), see ``[stream.keys]``."""
    keys_per_user: int | None = None
    """Under how many keys one user can have records, which is your promise: with the units ``user`` and ``stream``
    each key has the budget divided by it. With ``key_budgets = "shared"`` it is no promise, but the most keys under
    which one user counts in a window. Left out: the number of keys."""
    key_budgets: Literal["divided", "shared"] = "divided"
    """Of the unit ``user``: whether each key has a filter of its own (``divided``), or there is one for all keys
    (``shared``), which every window charges for as many keys as a user may count under."""
    iso_times: bool = False
    """Whether releases hold the times of their window as texts too (``window_open`` and ``window_close``, ISO 8601 in
    UTC), beside milliseconds. It may be changed at any time, and holds for windows that are released then."""


class LatticeSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[lattice]``: one public grid for all coordinates, after scaling."""

    step: float
    """Width of the grid that scaled values are rounded to, so that all arithmetic is exact; about a thousandth of
    ``release.radius``."""


_OF_NUMBERS = (("scale", 1.0), ("origin", 0.0), ("transform", "none"), ("factor", 1.0), ("text", False))
"""Keys of a feature that belong to numbers, with their defaults."""


class FeatureSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[[features]]``: one coordinate each, ``(transform(factor · field) - origin) / scale``, a Boolean, a category,
    or a text.

    A category declares its levels. A text has no range; ``where`` and ``kind = "frequent"`` read it. `missing` lists
    the texts and numbers that stand for no value besides null. With `optional` a record without a value counts in a
    release that is about other fields.
    """

    name: str
    """Name of the feature, in conditions and releases; without ``path`` the field of a record that holds the value,
    whatever characters the name has."""
    path: str | None = None
    """Where in a message the value stands: ``object.temp`` inside another field, ``acc[0]`` in a list, ``"a.b"`` in
    double quotes for a name that holds a dot, ``.`` for the whole record, or ``@topic:N`` and ``@header:NAME`` for what
    comes with it. Left out: the field ``name``."""
    text: bool = False
    """Whether numbers may also come as text, such as ``"21.5"``; in CSV they always may."""
    factor: float = 1.0
    """What the field is multiplied with before anything else, such as 0.1 for tenths of a degree. ``missing`` is in the
    units of the field, ``min``, ``max`` and all that is released in those of the product."""
    min: float | None = None
    """Lower end of the public range, after ``factor``; required for numbers. Values that lie outside after they were
    rounded to ``lattice.step``, which may not be wider than the range, are rejected."""
    max: float | None = None
    """Upper end of the public range, likewise."""
    scale: float | Literal["learned"] = 1.0
    """How much of the transformed field counts as 1. Choose it so that a difference of 1 means about the same in
    each feature, or have windows find it privately (``learned``), for means and variances."""
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
        self._refuse(("min", "max", "levels"), _OF_NUMBERS)
        most = MAX_BYTES if self.max_bytes is None else self.max_bytes
        if not 1 <= most <= 2**16:
            raise ConfigError(f"must be in [1, {2**16}]", f"{self.key}.max_bytes", got=most)
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
            if scale == "learned" and origin:
                raise ConfigError("must be left out with scale = 'learned': it changes nothing", f"{key}.origin")
            return Feature(
                *(self.name, self.min, self.max, 1.0 if isinstance(scale, str) else scale, origin, transform),
                missing=numbers,
                optional=self.optional,
                factor=self.factor,
                learned=scale == "learned",
            )
        self._refuse(("min", "max"), _OF_NUMBERS)
        levels = tuple(self.levels or ("false", "true"))
        if len(levels) < 2 or len(set(map(composed, levels))) < len(levels):
            raise ConfigError("must be at least two different texts", f"{key}.levels")
        return Feature(self.name, 0.0, float(len(levels) - 1), levels=levels, optional=self.optional)

    def codes(self) -> dict[Any, int]:
        """Return the code that each value of a record stands for; nothing for a number."""
        if self.type == "boolean":
            return dict(BOOLEAN)
        found: dict[Any, int] = {level: code for code, level in enumerate(self.levels or ())}
        found |= {composed(level): code for level, code in found.items()}
        for level, code in list(found.items()):  # whole numbers may stand for their text
            if len(level) < 16 and level.removeprefix("-").isdecimal() and str(int(level)) == level:
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
    exhausted: Literal["refuse", "stop"] | None = None
    """What happens when no room is left: windows are refused with ``budget_exhausted`` (``refuse``), or the run ends
    (``stop``); both with exit code 3. Left out: ``refuse``, and a run over files does not begin unless the budget
    lasts to its end."""


class UrlSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[sink]``: an address."""

    url: str
    """Where, as a URL."""


class LedgerSection(UrlSection, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[ledger]``: the durable record of what was charged and released."""

    user_key: str | None = None
    """Where the secret key lies under which users' names are hashed, with ``key_budgets = "shared"``: ``file:PATH``,
    which is made if it is absent, or ``env:NAME``, a variable with 64 hexadecimal digits. All processes of a stream
    have the same one. Keep it apart from backups of the ledger. Left out: the file ``LEDGER.user-key`` beside a ledger
    in SQLite; with another ledger it is required."""


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
    format: FormatName = "json"
    """What a message of a broker holds: one record as JSON, MessagePack, ``avro``, ``protobuf`` or ``cbor``; or many as
    rows of a little-endian int64 time in milliseconds and float64 features (``floats``, no users or keys), as an
    uncompressed Arrow IPC stream without dictionaries (``arrow``), as a request of OpenTelemetry, in protobuf or
    JSON (``otlp-metrics``, ``otlp-logs``), as lines of InfluxDB's line protocol (``influx``), or as a pack of SenML in
    JSON or CBOR (``senml``, ``senml-cbor``). A row that is wrong rejects itself alone."""
    records: str | None = None
    """Path of the list in a message whose elements are the records, such as ``readings``, or ``.`` if the message is
    the list. What an element lacks is looked up in the message. Left out: a message is one record."""
    registry: str | None = None
    """Of ``avro``: URL of a schema registry with Confluent's HTTP interface, such as ``http://localhost:8081``. Each
    message names its schema by an id, before its record or in the header ``__value_schema_id``."""
    schema_file: str | None = None
    """Of ``avro`` without ``registry``: file with the schema (JSON) that all messages were written with. Of
    ``protobuf``: file of descriptors, made by ``protoc --include_imports --descriptor_set_out=FILE``."""
    message: str | None = None
    """Of ``protobuf``: full name of the messages' type, such as ``plant.Reading``."""
    framing: Literal["confluent"] | None = None
    """Of ``protobuf``: whether Confluent's serializer wrote the messages, so that an id stands before each, or in a
    header."""
    delta_sums: bool = False
    """Of ``otlp-metrics``: whether sums over the time since the last export are read too. Say so only if each holds
    what one unit of privacy contributed, such as the steps of one person."""
    measurement: str | None = None
    """Of ``influx``: the measurement whose points are records; points of others are skipped. Left out: all are."""
    joined: bool = False
    """Of ``senml`` and ``senml-cbor``: whether the entries of a pack with one base name and one time are one record,
    with a field for each name."""
    delimiter: str = ","
    """Of CSV files: what separates cells, such as ``;`` or a tabulator."""
    decimal: str = "."
    """Of CSV files: the decimal sign, ``.`` or ``,``. With a comma a number that holds a point is rejected."""
    encoding: str = "utf-8"
    """Of CSV files: the encoding of the text, any that Python knows, such as ``latin-1`` or ``utf-16``."""
    header: list[str] = []
    """Of CSV files: the names of the columns, in order, of a file without a header line. Left out: the first line names
    them."""
    name: str | None = None
    """The consumer, as the broker knows it. Left out: ``fcstream-STREAM``."""
    spool: str | None = None
    """Folder of the spool, in which messages lie until their window is answered; required by AMQP queues, MQTT and
    HTTP, where what was acknowledged is forgotten."""
    spool_bytes: int = 2**30
    """Bytes that the spool may take. While it is full nothing is received; a message larger than half of it is
    rejected."""
    quarantine: str | None = None
    """Folder in which a process notes which messages it is decoding, so that one which ends it twice is rejected; each
    process has its own. Left out: the spool, or beside a ledger of SQLite; with neither nothing is noted."""
    downtime: str = "0s"
    """For queues: windows wait, after a start or a lost connection, as long as the pause was, but not longer than
    this duration, and what comes meanwhile may be as old as the pause."""
    partitioner: Literal["murmur2", "crc32"] | None = None
    """How producers of Kafka place keys in partitions: like Java's client (``murmur2``) or like librdkafka
    (``crc32``). It lets several processes share the keys of one stream."""

    def csv_dialect(self) -> CsvDialect:
        """Return how a CSV file is written.

        Raises
        ------
        ConfigError
            A key has no meaning, or belongs to CSV and the source is none.
        """
        if not self.url.startswith("csv:"):
            for key, default in (("delimiter", ","), ("decimal", "."), ("encoding", "utf-8"), ("header", [])):
                if getattr(self, key) != default:
                    raise ConfigError("belongs to files with 'csv:PATH'", f"source.{key}", remedy="leave it out")
        return CsvDialect(self.delimiter, self.decimal, self.encoding, tuple(self.header))

    def format_options(self) -> dict[str, Any]:
        """Return the keys that belong to the format, those at their defaults left out."""
        return {key: value for key in OPTION_KEYS if (value := getattr(self, key))}

    def headers(self) -> frozenset[str]:
        """Return the headers of messages that the format reads itself."""
        by_key = FORMATS[self.format].headers
        return frozenset(header for key, header in by_key if getattr(self, key))


class ServiceSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[service]``: how a live stream is watched."""

    listen: str | None = None
    """Host and port at which ``/live``, ``/ready`` and ``/metrics`` are answered, such as ``127.0.0.1:9100``; needs
    the extra ``service``."""
    hosts: list[str] = []
    """Names, besides addresses, this machine's own and that of ``listen``, by which it may be asked for; requests for
    others are answered by 421, since a page of another site could read it by a name of its own."""
    counters: bool = False
    """Whether ``/metrics`` has exact numbers of records, which are not private; the page too, if it is on."""
    values: bool = False
    """Whether ``/metrics`` has the released numbers of the newest window and their sigmas, as gauges ``fcstream_value``
    and ``fcstream_sigma``: for answers of few numbers, since each is a series of its own."""
    page: bool = False
    """Whether ``/`` is a page for browsers that shows the stream live: what was released and refused, the budget, and
    whether all is well. Whoever reaches ``listen`` sees the released numbers."""
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
    ledger: LedgerSection | None = None
    dead_letter: DeadLetterSection | None = None
    service: ServiceSection | None = None
    spark: SparkSection = SparkSection()

    @property
    def releases(self) -> tuple[Options, ...]:
        """The options of every answer, in order."""
        return self.release if isinstance(self.release, tuple) else (self.release,)
