"""Spark sessions with the settings that a stream needs, and Spark's errors without quotations of records."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..config import Config, SparkSection
from ..connectors.retry import close_quietly
from ..errors import ConfigError, FcstreamError, extra_missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PACKAGES = ("pyspark", "pyarrow", "pandas", "google.protobuf")
_ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # Windows are few and their counting is long: tasks must not be merged because their bytes are few.
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
}
_LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


class SparkFailed(FcstreamError):
    """Spark ended a job or a query; the message holds the kind of Spark's error, and nothing that it quotes."""


def require_pyspark() -> None:
    """Raise ConfigError if the extra is not installed."""
    for name in _PACKAGES:
        try:
            is_there = importlib.util.find_spec(name) is not None
        except ModuleNotFoundError:
            is_there = False
        if not is_there:
            raise ConfigError(
                f"'spark' needs {name.partition('.')[2] or name}, which is not installed",
                "--runner",
                remedy=f"{extra_missing('spark')} (and a Java runtime, 17 or later)",
            )


def refuse_found_keys(config: Config) -> None:
    """Raise ConfigError for keys that are found, which no task knows."""
    if config.job.finder is not None:
        raise ConfigError("must be declared with --runner spark: keys are found in one process", "stream.keys")


@contextmanager
def spark_session(section: SparkSection, name: str, master: str | None = None) -> Iterator[SparkSession]:
    """Use the session that exists, or one for these settings, which ends with the block.

    Raises
    ------
    ConfigError, SparkFailed
    """
    require_pyspark()
    from pyspark.sql import SparkSession

    found = SparkSession.getActiveSession()
    if found is not None:
        prepare(found, section)
        yield found
        return
    where = master or section.master
    if where.startswith("local"):  # otherwise workers would take the first python3 of the path
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(f"fcstream {name}").master(where)
    settings = {**_ALWAYS, **(_LOCAL if where.startswith("local") else {}), **_partitions(section), **section.settings}
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:
        raise SparkFailed(
            f"Spark does not start at {where} ({type(error).__name__}): is Java 17 or later there (JAVA_HOME), and the "
            "master's address right?"
        ) from None
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        close_quietly(session.stop)  # Java may have been stopped together with this process


def prepare(session: SparkSession, section: SparkSection) -> None:
    """Set those settings of a session that can still be set."""
    for key, value in {**_ALWAYS, **section.settings, **_partitions(section)}.items():
        if key.startswith("spark.sql.") and session.conf.isModifiable(key):
            session.conf.set(key, value)


def spark_path(session: SparkSession, path: str) -> str:
    """Return a path as Spark sees it: on one machine relative to this process's folder, which may not be Java's."""
    is_here = session.sparkContext.master.startswith("local") and "://" not in path
    return os.path.abspath(path) if is_here else path


def condition(error: object) -> str:
    """Return what may be shown of an error of Spark's.

    That is the text of fcstream's own error in a task, which quotes no record, or Spark's name for the error. The rest
    of its message could quote what tasks read.
    """
    named = re.match(r"\[([A-Z0-9_.]+)\]", str(error))
    return ": ".join(_ours(error)) or (named[1] if named else type(error).__name__)


def _ours(error: object) -> tuple[str, ...]:
    """Return kind and text of fcstream's own error in a task, as Spark quotes it; nothing if there is none."""
    found = re.findall(r"^fcstream\.[a-z_.]+\.([A-Za-z]+): (.+)$", str(error), re.MULTILINE)
    return found[-1] if found else ()


def check_configured(error: object) -> None:
    """Raise what a task found wrong with the configuration, if it is this that an error of Spark's tells."""
    found = _ours(error)
    if found and found[0] == ConfigError.__name__:
        raise ConfigError(found[1]) from None  # the rest of the error may quote records


def _partitions(section: SparkSection) -> dict[str, str]:
    return {} if section.partitions is None else {"spark.sql.shuffle.partitions": str(section.partitions)}
