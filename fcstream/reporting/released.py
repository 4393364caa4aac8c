"""Reads releases back from where they are: files, folders and tables of sinks, and ledgers; each release once."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from ..connectors.registry import FILE_SINKS, FOLDER_SINKS, find, is_known, known
from ..connectors.urls import mask, parse
from ..errors import ConfigError, LedgerError, SourceError, needs_package
from ..formats.written_frames import LIBRARIES, table_of
from ..ledgers import each_reader, is_foreign
from ..ledgers.files import opened_here
from ..releases.base import Release
from ..releases.long_form import long_columns
from ..runtime.interpolation import is_url
from .text_files import read_lines

_LEDGERS = ("sqlite", "postgresql", "postgres", "memory")
_SQLITE, _PARQUET = b"SQLite format 3\0", b"PAR1"
_REMEDY = "give what a sink wrote, or the ledger, which holds every release"


def read_releases(source: str | os.PathLike[str], *, library: str | None = None) -> Any:
    """Read releases back as a data frame in long form: one row for each published number, each release once.

    Parameters
    ----------
    source : str or path
        Where they are: the path of a file of JSON lines (``.gz`` too), of a Parquet file that a sink wrote, of a ledger
        of SQLite, or of a folder of such files; the URL of a sink as in ``[sink]`` (``jsonl:``, ``parquet:``,
        ``csv-tables:`` and its like, or ``postgresql://...?table=NAME``); or that of a ledger as in ``[ledger]``
        (``sqlite:PATH``, ``postgresql://...``), which holds all that was sealed. Releases of retired streams, whose
        names may belong to new ones, are left out of a ledger's.
    library : str, optional
        ``pandas``, ``polars`` or ``pyarrow``; by default the first of them that is installed, and without any a dict of
        lists.

    Returns
    -------
    data frame
        With the columns of `Stream.run`: ``window_open`` and ``window_close`` (in UTC), ``stream``, ``key``,
        ``answer``, ``kind``, ``name`` (which number it is), ``value``, ``sigma``, ``low``, ``high``, ``status`` and
        ``reason``. A refused window has one row with its reason and without a value; so has a release of made-up rows,
        which `synthetic_rows` draws. Rows are in the order of stream, key and window, and the answers of a window in
        that of the configuration. What was written twice, after a crash, is there once.

    Raises
    ------
    SourceError
        The file cannot be read, a line of it is no release, or it holds two different releases of one window.
    ConfigError
        There is nothing to be read back, or not without another package.
    LedgerError, SinkError

    Privacy
    -------
    Reads what was published, so it costs nothing.

    Source
    ------
    Specification 8.4, 12.2.

    Examples
    --------
    >>> import tempfile
    >>> from fcstream import read_releases
    >>> from fcstream.testing import sample_release
    >>> with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
    ...     _ = file.write(2 * (sample_release(0).to_bytes() + b"\\n"))  # as after a kill
    ...     file.flush()
    ...     found = read_releases(file.name, library="polars")
    >>> found["name"].to_list()
    ['mean/0', 'mean/1']
    """
    if library is None:
        library = next((name for name in LIBRARIES if find_spec(name) is not None), None)
    return table_of(library, long_columns(once(releases_of(os.fspath(source)))))


def once(releases: Iterable[Release]) -> list[Release]:
    """Return each release once, in order of stream, key, window and answer.

    Raises
    ------
    SourceError
        A window of an answer has two different ones.
    """
    found: dict[tuple[str, int, int, int, str], Release] = {}
    for release in releases:
        window = release.window_open_ms, release.window_close_ms
        identity = (release.stream, *window, release.place or 0, release.name or "")
        held = found.setdefault(identity, release)
        if held is not release and held != release:
            raise SourceError(
                f"there are two different releases of {release.series!r} for the window from "
                f"{window[0]} to {window[1]} ms: a window has one, so the ledger was lost or "
                "exchanged, or files of two ledgers lie together",
                remedy="read those of one ledger at a time",
            )
    return [found[identity] for identity in sorted(found)]


def releases_of(source: str) -> Iterator[Release]:
    """Yield all releases that a file, a folder, a sink or a ledger holds, see `read_releases`.

    Raises
    ------
    SourceError, ConfigError, LedgerError, SinkError
    """
    scheme, _, path = source.partition(":")
    if scheme in _LEDGERS or is_foreign(source):
        is_table = is_known(scheme, "reader") and "table=" in source.partition("?")[2]
        yield from parsed_lines(_table(source) if is_table else _sealed(source), mask(source))
    elif scheme in (*FILE_SINKS, *FOLDER_SINKS) and path and not is_url(path) and path != "-":
        yield from _at(Path(path))
    elif is_url(source) or is_known(scheme, "sink") or path == "-":
        raise ConfigError(
            "must be a file or a folder of releases, a table "
            f"(`{', '.join(known('reader'))}://...?table=NAME`) or a ledger, got {mask(source)!r}, "
            "from which nothing is read back",
            "source",
            remedy="give `ledger.url`, whose ledger holds every release",
        )
    else:
        yield from _at(Path(source))


def parsed_lines(lines: Iterable[bytes], name: str) -> Iterator[Release]:
    """Read releases from lines of JSON; blank ones are skipped. `name` is what errors call the file, if it has one.

    Raises
    ------
    SourceError
        A line is no release; the message gives its number.
    """
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield Release.from_bytes(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                where = f"line {number} of {name}" if name else f"line {number}"
                raise SourceError(f"{where} is not a release of fcstream", remedy=_REMEDY) from None


def _at(path: Path) -> Iterator[Release]:
    """Yield the releases of a file, of whichever form, or of the files of a folder."""
    if not path.is_dir():
        yield from _in_file(path)
        return
    names = {each.name for each in path.iterdir() if each.is_file() and not each.name.startswith(".")}
    # A file of made-up rows has its release beside it.
    rows = {f"{stem}.{suffix}" for stem in _stems(names) for suffix in ("csv", "jsonl", "parquet")}
    wanted = sorted(name for name in names - rows if name.endswith((".jsonl", ".jsonl.gz", ".json", ".parquet")))
    if not wanted:
        raise SourceError(
            f"{path} must hold files of releases (.jsonl, .jsonl.gz, .json, .parquet), it holds none", remedy=_REMEDY
        )
    for name in wanted:
        yield from _in_file(path / name)


def _stems(names: set[str]) -> set[str]:
    return {name.removesuffix(".json") for name in names if name.endswith(".json")}


def _in_file(path: Path) -> Iterator[Release]:
    if opened_here(str(path)) is None:  # to close a ledger's file here would drop its lock
        try:
            with open(path, "rb") as file:
                head = file.read(len(_SQLITE))
        except OSError as error:
            raise SourceError(f"{path} cannot be read: {error.strerror}") from None
        if head != _SQLITE:
            yield from parsed_lines(_bodies(path) if head.startswith(_PARQUET) else _whole_lines(path), str(path))
            return
    yield from parsed_lines(_sealed(f"sqlite:{path}"), str(path))


def _whole_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, without a last one that is being written, or was cut off by a kill."""
    for line in read_lines(str(path)):
        if not line.endswith(b"\n"):
            try:
                json.loads(line)
            except ValueError:
                return
        yield line


def _bodies(path: Path) -> Iterator[bytes]:
    """Yield the releases of a Parquet file as they were sealed."""
    with needs_package("pyarrow", "arrow", "source"):
        import pyarrow
        import pyarrow.parquet
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            if "body" not in file.schema_arrow.names:
                raise SourceError(
                    f"{path} must have the column `body`, as the sink 'parquet:FOLDER' writes it", remedy=_REMEDY
                )
            for batch in file.iter_batches(columns=["body"]):
                yield from (str(body).encode() for body in batch.column(0).to_pylist())
    except (pyarrow.ArrowException, OSError):
        raise SourceError(f"{path} cannot be read: it is damaged, or no Parquet file", remedy=_REMEDY) from None


def _sealed(ledger: str) -> Iterator[bytes]:
    """Yield the releases of all streams of a ledger that are not retired, as they were sealed."""
    retired, is_all = list[str](), True
    try:
        with closing(each_reader(ledger)) as streams:
            for reader in streams:
                if reader.is_retired:
                    retired.append(reader.terms.stream)
                else:
                    is_all = False
                    yield from reader.releases()
    except LedgerError as error:
        if type(error) is LedgerError and is_known(ledger.partition(":")[0], "reader"):
            raise LedgerError(f"{error}; the table of a sink is read with `table=NAME` in the URL") from None
        raise
    if retired and is_all:
        names = ", ".join(map(repr, retired))
        raise ConfigError(
            f"must be a ledger of a stream that is not retired, all are ({names})",
            "source",
            remedy="write what `fcstream budget releases LEDGER --stream NAME` prints into a file, and read that",
        )


def _table(url: str) -> Iterator[bytes]:
    with closing(find(url.partition(":")[0], "reader")(parse(url, "source"))) as reader:
        yield from reader.lines()
