"""Live streams on Spark as a service: a query counts, and on the driver the engine releases.

What must not be lost is in the broker, the checkpoint folder (offsets and open windows) or the ledger; everything else
is built again after an error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from ..config import Config, duration_ms
from ..connectors import is_live, is_queue, open_decoder, open_ranges, open_sink
from ..connectors.retry import close_quietly
from ..connectors.sinks import Sink
from ..connectors.urls import parse
from ..engine.engine import Engine
from ..engine.keyed import KeyedEngine
from ..engine.opening import open_engine
from ..errors import ConfigError, FcstreamError
from ..formats.envelopes import EnvelopeField
from ..service.app import StreamSpec, plan_warnings, serve
from ..service.build import DeadLetterWriter
from ..service.context import SessionContext
from ..service.leases import LeaderSink, Lease, SessionLeases
from ..service.publisher import Publisher
from ..service.reload import ActiveConfig
from ..service.supervisor import Supervisor, added, now_ms
from .answers import TaskReports, take_rows
from .checkpoint import bind
from .pairs import splits, splitter
from .sessions import SparkFailed, condition, prepare, refuse_found_keys, require_pyspark, spark_path, spark_session
from .stores import WindowFeed, stores
from .tasks import BLOCKS, COUNTED, Admission, MessageReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


_STEP_S = 0.2


def serve_on_spark(streams: Sequence[StreamSpec], master: str | None = None) -> list[Supervisor]:
    """Run what `service.serve` does, with every stream's records read and counted by Spark.

    Raises
    ------
    BudgetExhausted, ConfigError, LedgerDamaged, LedgerMismatch, SparkFailed
    """
    require_pyspark()
    for each in streams:
        _check(each.config)
    plan_warnings(streams)  # before Java starts
    with spark_session(streams[0].config.spark, streams[0].config.stream.name, master) as session:
        return serve(streams, lambda config, current: build(session, config, current))


def build(session: SparkSession, config: Config, current: ActiveConfig | None = None) -> SparkSupervisor:
    """Build the service of a configuration, or of the one that `current` holds when a session begins."""
    _check(config)
    now = current or ActiveConfig(config)
    dead_letters = DeadLetterWriter()
    dead_letters.follow(config)
    assert config.source is not None
    assert config.ledger is not None
    source = config.source
    setting = SessionContext(open_decoder(source.format, config.job.schema, source.format_options()), now_ms)
    return SparkSupervisor(session, now, dead_letters, setting, SessionLeases(config.ledger.url, config.stream.name))


class SparkSupervisor(Supervisor):
    """Keeps a live stream running; a session is a query that continues from its checkpoint.

    Parameters
    ----------
    session : SparkSession
    current : ActiveConfig
    dead_letters : DeadLetterWriter
    setting : SessionContext
    leading : SessionLeases
    """

    def __init__(
        self,
        session: SparkSession,
        current: ActiveConfig,
        dead_letters: DeadLetterWriter,
        setting: SessionContext,
        leading: SessionLeases,
    ) -> None:
        self._spark, self._now, self._dead_letters, self._leases = session, current, dead_letters, leading
        open_lead = leading.open if leading.is_shared else None
        super().__init__(self._engine, lambda: None, self._sink, setting, (), open_lead)  # type: ignore[arg-type, return-value]
        self.confirm, self.undo = current.confirm, current.undo
        self._feed = WindowFeed()

    def _engine(self, _: Any) -> Engine | KeyedEngine:
        def open_it(config: Config) -> Engine | KeyedEngine:
            self._dead_letters.follow(config)
            return open_engine(self._leases.bind(config), stores=stores(self._feed, splitter(self._spark)))

        return self._now.engine(open_it)

    def _sink(self) -> Sink:
        def open_it(config: Config) -> Sink:
            assert config.sink is not None
            return open_sink(config.sink.url)

        return self._now.open(open_it, "sink")

    def _sessions(self) -> Iterator[Any]:
        """Yield sessions as `Supervisor` does, with micro-batches as steps."""
        self._clear_ending()
        with ExitStack() as stack:
            lease = None if self._open_lease is None else self._open_lease()
            if lease is not None:
                stack.callback(close_quietly, lease.close)
                if not (yield from self._standing_by(lease)):
                    return
            notes = TaskReports(self._dead_letters.write)
            batches, query = self._start(stack, lease, notes)
            while not self._ending.wait(_STEP_S):
                if batches.error is not None:
                    raise batches.error
                if not query.isActive:
                    raise SparkFailed(f"the query ended ({condition(query.exception())}); Spark's log says where")
                self._count(notes)
                yield batches if batches.done else None
            self._count(notes)

    def _standing_by(self, lease: Lease) -> Generator[None, None, bool]:
        """Wait until the lease is this process's; returns whether it is, or False if the service is to end."""
        while not self._takes_lease(lease):
            self._stand_by("another process serves this stream")
            yield None
            if self._ending.is_set():
                return False
        return True

    def _start(self, stack: ExitStack, lease: Lease | None, notes: TaskReports) -> tuple[MicroBatches, StreamingQuery]:
        """Open engine and sink, publish what is left over, and start the query; the stack closes all of them."""
        self._feed = WindowFeed()
        engine = self._engine(None)
        stack.callback(close_quietly, engine.abort)
        sink = self._sink()
        stack.callback(close_quietly, sink.close)
        if lease is not None:
            sink = LeaderSink(sink, lease)
        publisher = Publisher(engine, sink, self._context)
        publisher.left_over()
        engine.begin(self._context.clock())
        batches = MicroBatches(engine, publisher, self._feed, notes, self._context, lease)
        query = self._now.open(partial(start, self._spark, engine=engine, batches=batches), "source")
        stack.callback(batches.stop, query)
        return batches, query

    def _serve(self, on_step: Callable[[Supervisor], object] | None) -> None:
        from py4j.protocol import Py4JNetworkError

        try:
            super()._serve(on_step)
        except Py4JNetworkError:  # no session of this process can be used from now on
            raise SparkFailed("Java has ended", remedy="start again; Spark's log says why") from None

    def _count(self, notes: TaskReports) -> None:
        counters = self.counters
        counters.messages, notes.messages = counters.messages + notes.messages, 0
        counters.records, notes.records = counters.records + notes.records, 0
        rejected, notes.rejected = notes.rejected, {}
        counters.rejected = added(counters.rejected, rejected)


class MicroBatches:
    """Receives every micro-batch from Spark. An error ends the query, and nothing of the micro-batch is committed."""

    def __init__(
        self,
        engine: Engine | KeyedEngine,
        publisher: Publisher,
        feed: WindowFeed,
        notes: TaskReports,
        context: SessionContext,
        lease: Lease | None = None,
    ) -> None:
        self._engine, self._publisher, self._feed, self._notes = engine, publisher, feed, notes
        self._context, self._lease = context, lease
        self._running = threading.Lock()
        self.error: BaseException | None = None
        self.done = 0

    @property
    def is_over(self) -> bool:
        """Return whether a schedule with an end has all its releases."""
        schedule = self._engine.job.schedule
        return schedule.count is not None and schedule.index_after(self._engine.next_open_ms) - 1 >= schedule.count

    @property
    def input_has_ended(self) -> bool:
        """Return False: brokers that Spark reads have no end."""
        return False

    def __call__(self, frame: DataFrame, number: int) -> None:
        with self._running:
            try:
                self._check_running()
                self._answer(frame)
                self.done += 1
            except BaseException as error:  # the thread that supervises the stream raises it
                self.error = self.error or error
                # Spark logs this text, so it must not hold a record's content.
                raise SparkFailed(f"micro-batch {number} was not completed ({type(error).__name__})") from None

    def stop(self, query: StreamingQuery) -> None:
        """End the query between two micro-batches."""
        with self._running:
            self.error = self.error or SparkFailed("stopped")
        close_quietly(query.stop)

    def _answer(self, frame: DataFrame) -> None:
        frame.persist()
        try:
            if self._lease is not None:
                self._lease.check()
            keys = [part.job.key or "" for part in self._engine.parts]
            time = take_rows(frame, self._feed, keys, self._notes)
            if time is not None:
                now, lateness, handed_over = time
                if max(_answered(self._engine).values()) < handed_over:
                    raise ConfigError(
                        "holds a later state of this stream than the ledger: windows that it counted "
                        "have no answer there",
                        "spark.checkpoint",
                        remedy="restore the ledger, or start with an empty folder",
                    )
                if lateness != self._engine.job.schedule.lateness_ms:
                    raise ConfigError(
                        f"must stay {lateness} ms while windows are open that were opened with it",
                        "window.lateness",
                        remedy="restore it, or start with an empty `spark.checkpoint`",
                    )
                self._publisher.close_due(now)
            self._check_running()
            self._nothing_is_left()
        finally:
            frame.unpersist()

    def _check_running(self) -> None:
        if self.error is not None or self._context.ending.is_set():
            raise SparkFailed("stopped")

    def _nothing_is_left(self) -> None:
        """Check that everything handed over has been released: the rest would be lost when the micro-batch is
        committed.
        """
        answered = {part.job.key or "": part.next_open_ms for part in self._engine.parts}
        schedule = self._engine.job.schedule
        if any(schedule.window(window).open_ms >= answered[key] for key, window in self._feed.windows):
            raise ConfigError("does not suit the schedule", "spark.checkpoint", remedy="start with an empty folder")


def start(
    session: SparkSession, config: Config, engine: Engine | KeyedEngine, batches: Callable[[DataFrame, int], None]
) -> StreamingQuery:
    """Start the query of a stream from its checkpoint."""
    assert config.spark.checkpoint is not None
    trigger = duration_ms(config.spark.trigger, "spark.trigger")
    try:
        prepare(session, config.spark)
        folder = spark_path(session, config.spark.checkpoint)
        bind(session, config, folder)
        frame = counted(session, config, messages(session, config), _answered(engine))
        writer = frame.writeStream.foreachBatch(batches).option("checkpointLocation", folder)
        return writer.trigger(processingTime=f"{trigger} milliseconds").start()
    except FcstreamError:
        raise
    except Exception as error:
        raise SparkFailed(f"the query does not start ({condition(error)}); Spark's log says where") from None


def _answered(engine: Engine | KeyedEngine) -> dict[str, int]:
    """Return how many windows of the schedule have a release, by key."""
    return {part.job.key or "": part.job.schedule.index_after(part.next_open_ms) - 1 for part in engine.parts}


def messages(session: SparkSession, config: Config) -> DataFrame:
    """Make a streaming frame of a configuration's broker: columns as in `tasks.MESSAGES`."""
    from .source import BrokerDataSource

    source = config.source
    assert source is not None
    if config.spark.reader == "spark":
        return with_clock(session, config, kafka_frame(session, config))
    return _source(session, config, BrokerDataSource, source.url)


def with_clock(session: SparkSession, config: Config, frame: DataFrame) -> DataFrame:
    """Add the public time to a streaming frame of one of Spark's own sources: columns as in `tasks.MESSAGES`.

    Parameters
    ----------
    frame : DataFrame
        Columns ``partition`` (text), ``position`` (identity within it), ``stamp`` (arrival by a clock that producers do
        not set, Unix milliseconds) and ``body``. Each micro-batch must read all there is: a source with a read limit
        would let windows close before their records were read.
    """
    from pyspark.sql import functions as f

    from .source import ClockDataSource

    rows = frame.select("partition", "position", "stamp", "body", f.lit(None).cast("timestamp").alias("clock"))
    return rows.unionByName(_source(session, config, ClockDataSource, ""))


def kafka_frame(session: SparkSession, config: Config) -> DataFrame:
    """Make a frame of Spark's own Kafka source, for `with_clock`. It needs a connector of Spark's
    (``spark.jars.packages``).

    It uses hosts and topics of the address. Logins and certificates are ``kafka.``-options of Spark's, in
    ``[spark] options``.
    """
    from pyspark.sql import functions as f

    assert config.source is not None
    address = parse(config.source.url, "source.url")
    if "maxOffsetsPerTrigger" in config.spark.options:
        raise ConfigError("must be left out: a micro-batch has to read all there is", "spark.options")
    reader = session.readStream.format("kafka").options(
        **{
            "kafka.bootstrap.servers": address.listing(9092),
            "subscribe": address.path,
            "startingOffsets": "earliest",
            "kafka.isolation.level": "read_committed",
            **config.spark.options,
        }
    )
    try:
        frame = reader.load()
    except Exception as error:
        raise ConfigError(
            f"needs Spark's Kafka connector ({condition(error)})",
            "spark.reader",
            remedy="name it in `spark.settings` as spark.jars.packages, or use reader = 'own'",
        ) from None
    return frame.select(
        f.concat_ws(":", "topic", "partition").alias("partition"),
        f.col("offset").alias("position"),
        f.unix_millis("timestamp").alias("stamp"),
        f.coalesce("value", f.lit(b"")).alias("body"),
    )


def _source(session: SparkSession, config: Config, kind: Any, url: str) -> DataFrame:
    from .source import SourceSettings

    assert config.source is not None
    name = config.source.name or f"fcstream-{config.stream.name}"
    reading = SourceSettings.of(url, name, config.job.schedule, config.spark.limit)
    session.dataSource.register(kind)
    return session.readStream.format(kind.name()).option("secret", msgspec.json.encode(reading).decode()).load()


def counted(session: SparkSession, config: Config, frame: DataFrame, answered: dict[str, int]) -> DataFrame:
    """Turn messages into counted windows that are due (columns as in `tasks.COUNTED`), and the public time."""
    from .processor import WindowProcessor

    assert config.source is not None
    job = config.job
    parts = splits(config, session.sparkContext.defaultParallelism)
    blocks = frame.mapInArrow(
        Admission(job, answered, MessageReader(config.source.format, config.source.format_options())), BLOCKS
    )
    return (
        blocks.withWatermark("clock", "1 second")
        .groupBy("key", "window")
        .transformWithState(
            statefulProcessor=WindowProcessor(job, parts, min(answered.values())),
            outputStructType=COUNTED,
            outputMode="Append",
            timeMode="EventTime",
        )
    )


def _check(config: Config) -> None:
    """Refuse what cannot run here, before Spark is started."""
    if config.source is None or config.sink is None or config.ledger is None:
        missing = next(name for name in ("source", "sink", "ledger") if getattr(config, name) is None)
        raise ConfigError("is required for a live stream", f"{missing}.url")
    if not is_live(config.source.url) or is_queue(config.source.url):
        open_ranges(config.source.url, "")  # says what is wrong
    if config.window.clock != "broker":
        raise ConfigError(
            f"must be 'broker' for a live stream on Spark, got {config.window.clock!r}: receipt times of a spool are "
            "one machine's",
            "window.clock",
        )
    schema = config.job.schema
    for name, place in schema.paths.items():
        if isinstance(place, EnvelopeField) and place.part != "broker":
            raise ConfigError(
                "must be a field of the message, or '@broker', with --runner spark, whose readers "
                "give bodies and times of arrival only",
                schema.key_of(name),
                got=place.text,
                remedy="use the local runner",
            )
    if config.source.partitioner is not None:
        raise ConfigError("must be left out with --runner spark: Spark divides the work", "source.partitioner")
    if config.spark.checkpoint is None:
        raise ConfigError(
            "is required for a live stream with --runner spark: a folder of its own, which all machines see, for "
            "offsets and open windows",
            "spark.checkpoint",
        )
    refuse_found_keys(config)
    if duration_ms(config.spark.trigger, "spark.trigger") < 1 or config.spark.limit < 0:
        raise ConfigError("must be at least 1 ms, and `limit` not negative", "spark.trigger")
