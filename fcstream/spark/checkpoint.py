"""Binding of a checkpoint folder to one stream, source and ledger, for which alone its offsets and open windows are
right.

A file beside Spark's own holds the binding. Spark writes and reads it like any other data, so that the folder may lie
wherever a checkpoint may. It holds no secret.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec

from ..config import Config
from ..config.specification import canonical
from ..connectors.urls import parse
from ..errors import ConfigError, FcstreamError
from ..ledgers import is_shared
from ..service.reload import what_is_read
from .sessions import SparkFailed, condition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAME = "fcstream"
_REMEDY = "restore it, or give `spark.checkpoint` an empty folder: the source is then read again from its beginning"


def bind(session: SparkSession, config: Config, folder: str) -> None:
    """Bind a new checkpoint folder; refuse one that belongs to anything else.

    Parameters
    ----------
    session : SparkSession
        A prepared session, because the number of its shuffle partitions is fixed with the folder.
    config : Config
    folder : str
        Path as Spark sees it.

    Raises
    ------
    ConfigError
        The folder was made for another specification, stream, source or ledger, or with another number of
        partitions; or it is Spark's, and holds no binding.
    SparkFailed
    """
    terms = _terms(session, config)
    try:
        held = _lines(session, f"{folder}/{_NAME}")
        if not held:
            if _lines(session, f"{folder}/metadata") is not None:
                raise ConfigError(
                    f"{folder} holds a query, but nothing that says of which stream", "spark.checkpoint", remedy=_REMEDY
                )
            session.createDataFrame([(canonical(terms),)], "value string").coalesce(1).write.mode("overwrite").text(
                f"{folder}/{_NAME}"
            )
            return
    except FcstreamError:
        raise
    except Exception as error:
        raise SparkFailed(f"the checkpoint folder cannot be used ({condition(error)})") from None
    _compare(folder, held[0], terms)


def _compare(folder: str, held: str, terms: dict[str, Any]) -> None:
    try:
        before = msgspec.json.decode(held, type=dict[str, Any])
    except msgspec.DecodeError:
        raise ConfigError(f"{folder}/{_NAME} cannot be read", "spark.checkpoint", remedy=_REMEDY) from None
    changed = [name for name in terms if before.get(name) != terms[name]]
    if not changed:
        return
    differences = [
        name if name == "specification" else f"{name} {before.get(name)!r}, now {terms[name]!r}" for name in changed
    ]
    setting = "spark.partitions" if changed == ["partitions"] else "spark.checkpoint"
    raise ConfigError(f"{folder} was made for another {' and another '.join(differences)}", setting, remedy=_REMEDY)


def _terms(session: SparkSession, config: Config) -> dict[str, Any]:
    """Collect what the content of a checkpoint depends on."""
    assert config.source is not None
    assert config.ledger is not None
    terms = config.job.terms
    scheme, path, options = what_is_read(config.source.url)
    hosts = [f"{name}:{port or ''}" for name, port in parse(config.source.url, "source.url").hosts]
    return {
        "stream": terms.stream,
        "specification": terms.specification_hash,
        "source": canonical([scheme, sorted(hosts), path, options]),
        "ledger": _ledger(config.ledger.url),
        "partitions": int(session.conf.get("spark.sql.shuffle.partitions") or 0),
    }


def _ledger(url: str) -> str:
    if not is_shared(url):
        path = url.removeprefix("sqlite:")
        return path if path == "memory:" else os.path.realpath(path)
    from ..ledgers.postgres.connection import ServerAddress

    return ServerAddress.of(url).location(None)


def _lines(session: SparkSession, path: str) -> list[str] | None:
    """Read the lines of a file or a folder of files; None if there is none."""
    from pyspark.errors import AnalysisException

    try:
        return [str(row[0]) for row in session.read.text(path).limit(10).collect()]
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return None
        raise
