"""Files to their end, with Spark's own file source: one job counts all windows, and the engine releases them.

The end of input closes every window, so nothing is open between two micro-batches and there is no state to keep. A run
that fails is started again, and releases the windows for which the ledger has no release.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from ..config import Config, Job
from ..connectors import open_dead_letter, open_sink
from ..connectors.sinks import Sink
from ..connectors.urls import mask
from ..engine.batch_budget import check_opened, check_unopened
from ..engine.engine import Engine
from ..engine.keyed import KeyedEngine
from ..engine.opening import open_engine
from ..errors import ConfigError, FcstreamError, SourceError
from ..formats.csv_dialect import COMMAS, CsvDialect
from ..noise.samplers import Noise
from ..service.batch import ProgressLine, Summary, check_sink_matches_ledger, closing, publish_left_over
from .answers import TaskReports, take_rows
from .pairs import splits, splitter
from .sessions import (
    SparkFailed,
    check_configured,
    condition,
    refuse_found_keys,
    require_pyspark,
    spark_path,
    spark_session,
)
from .stores import WindowFeed, stores
from .tasks import BLOCKS, COUNTED, NOTES, Admission, LineReader, count_window, guarded, pieces

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def run_files(config: Config, master: str | None = None, noise: Noise | None = None) -> Summary:
    """Run one job to the end of its files; see `runner.run`.

    Parameters
    ----------
    config : Config
        With source (``jsonl:`` or ``csv:`` and a path, a folder or a pattern), sink and ledger.
    master : str, optional
        Used instead of ``spark.master``.
    noise : Noise, optional
        Exact noise from the operating system by default.

    Raises
    ------
    FcstreamError
    """
    require_pyspark()
    source, out = config.source, config.sink
    if source is None or out is None or config.window.clock != "eof":
        raise ConfigError("must be 'eof', with a source and a sink, for files", "window.clock")
    refuse_found_keys(config)
    check_unopened(config)
    started, feed = time.perf_counter(), WindowFeed()
    with ExitStack() as stack:
        session = stack.enter_context(spark_session(config.spark, config.stream.name, master))
        engine = open_engine(config, noise=noise, stores=stores(feed, splitter(session)))
        stack.callback(engine.abort)
        sink = open_sink(out.url)
        stack.callback(sink.close)
        notes = TaskReports()
        if config.dead_letter:
            dead_letters = open_dead_letter(config.dead_letter.url, config.dead_letter.max_bytes)
            stack.callback(dead_letters.close)
            notes = TaskReports(dead_letters.write)
        summary = _answer(session, source.url, config, engine, sink, feed, notes)
        summary.seconds = time.perf_counter() - started
        return summary


def _answer(
    session: SparkSession,
    url: str,
    config: Config,
    engine: Engine | KeyedEngine,
    sink: Sink,
    feed: WindowFeed,
    notes: TaskReports,
) -> Summary:
    check_opened(engine)
    check_sink_matches_ledger(engine, sink)
    summary, progress = Summary(), ProgressLine()
    publish_left_over(engine, sink, summary)
    summary.already_answered = engine.answered
    answered = {part.job.key or "": part.answered for part in engine.parts}
    parts = splits(config, session.sparkContext.defaultParallelism)
    assert config.source is not None
    dialect = config.source.csv_dialect()
    frame = counted_files(session, url, config.job, answered, parts, dialect).persist()
    try:
        _quietly(lambda: take_rows(frame, feed, list(answered), notes))
        groups = closing(engine, summary)
        while (group := _quietly(partial(next, groups, None))) is not None:
            sink.write(group)
            engine.acknowledge()
            summary.add(group)
            done = (summary.released + sum(summary.refused.values())) // len(engine.job.answers)
            progress.show(f"{done:,} windows released")
    finally:
        frame.unpersist()
        progress.clear()
    summary.records, summary.rejected = notes.records + notes.unread, notes.rejected
    summary.replayed = notes.replayed
    summary.explain(engine.job.answers)
    summary.spent, summary.guarantee, summary.key_share = engine.spent, engine.guarantee, engine.job.terms.key_share
    return summary


def counted_files(
    session: SparkSession,
    url: str,
    job: Job,
    answered: dict[str, int],
    splits: bool = False,
    dialect: CsvDialect = COMMAS,
) -> DataFrame:
    """Make a frame of the counted windows of some files: columns as in `tasks.COUNTED`. Nothing is read yet."""
    from pyspark.sql import functions as f

    scheme, _, path = url.partition(":")
    if scheme not in ("jsonl", "csv") or path in ("", "-"):
        raise ConfigError("must be 'jsonl:PATH' or 'csv:PATH' with --runner spark", "source.url")
    lines = _quietly(lambda: session.read.text(spark_path(session, path), lineSep="\n"))
    header = None
    if not dialect.is_utf8:
        raise ConfigError("must be 'utf-8' with --runner spark", "source.encoding", got=dialect.encoding)
    if scheme == "csv" and not dialect.header:
        first = _quietly(lambda: lines.select(f.col("value").cast("binary")).first())
        if first is None:
            raise SourceError(f"{mask(url)} must start with a header line, it is empty")
        header = bytes(first[0])
    about = f.col("_metadata.file_path"), f.col("_metadata.file_block_start").cast("string")
    messages = lines.select(
        f.concat(about[0], f.lit(" "), f.lpad(about[1], 20, "0")).alias("partition"),
        f.lit(0).cast("long").alias("position"),
        f.lit(0).cast("long").alias("stamp"),
        f.col("value").cast("binary").alias("body"),
        f.lit(None).cast("timestamp").alias("clock"),
    )
    blocks = messages.mapInArrow(
        Admission(job, answered, LineReader(header, dialect if scheme == "csv" else None)), BLOCKS
    )
    return blocks.groupBy("key", "window").applyInArrow(_closing(job, splits), COUNTED)


def _closing(job: Job, splits: bool) -> Callable[[tuple[Any, ...], pa.Table], pa.Table]:
    """Make the function that counts one (key, window)."""

    def close(key: tuple[Any, ...], table: pa.Table) -> pa.Table:
        return next(rows(key, table))

    @guarded
    def rows(key: tuple[Any, ...], table: pa.Table) -> Iterator[pa.Table]:
        import pyarrow

        name, window = key[0].as_py(), key[1].as_py()
        packed = table.column("block").to_pylist()
        if window == NOTES:
            found = [(0, 1, body) for body in packed]
        else:
            found = pieces(count_window(job, packed, window, splits))
        numbers, counts, bodies = zip(*found, strict=True)
        yield pyarrow.table(
            {
                "key": pyarrow.array([name] * len(found), pyarrow.string()),
                "window": pyarrow.array([window] * len(found), pyarrow.int64()),
                "piece": pyarrow.array(numbers, pyarrow.int32()),
                "pieces": pyarrow.array(counts, pyarrow.int32()),
                "body": pyarrow.array(bodies, pyarrow.binary()),
            }
        )

    return close


def _quietly(action: Callable[[], Any]) -> Any:
    """Replace errors of Spark, which may quote records, by their kind."""
    try:
        return action()
    except (FcstreamError, OSError):
        raise
    except Exception as error:
        check_configured(error)
        raise SparkFailed(f"Spark ended the job ({condition(error)}); its log says where") from None
