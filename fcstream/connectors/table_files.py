"""Files of columns as sources: Parquet, and Arrow's IPC files and streams. Every row is one record."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..errors import ConfigError, SourceError, needs_package
from ..formats.arrow_rows import ArrowRows
from ..formats.batch import Batch, Schema
from ..runtime.undo import on_error
from .sources import FileSource

ROWS_AT_ONCE = 2**16
"""Most rows of a Parquet file that are unpacked together; of an Arrow file those of one record batch are."""
_READ_AHEAD = 2**20
_WHAT = {"missing": "is missing or there twice", "bad_time": "holds no times", "not_a_number": "holds no numbers"}


class TableFile(FileSource):
    """Records from the rows of a file; a record's identity is its row number, from 0.

    Columns are found by name and may be in any order; others are not read. A file is read forward in pieces: of Parquet
    `ROWS_AT_ONCE` rows and about a page of each wanted column, of Arrow one record batch, whatever the file's size.

    Parameters
    ----------
    path : str
        Of an Arrow stream also ``-``, standard input.
    scheme : str
        ``parquet``; or ``arrow`` for an IPC file (Feather version 2) or an IPC stream, told by how the file begins.
    schema : Schema

    Raises
    ------
    ConfigError
        Without pyarrow; a column is missing, or none of its values could be used.
    SourceError
        The file cannot be opened, or (from `poll`) cannot be read to its end.
    """

    def __init__(self, path: str, scheme: str, schema: Schema) -> None:
        with needs_package("pyarrow", "arrow", "source.url"):
            import pyarrow
            import pyarrow.parquet
        self._arrow = pyarrow
        self._broken = (pyarrow.ArrowException, OSError, EOFError, ValueError, MemoryError)
        self.path = path
        self._rows = ArrowRows(schema, "source.url")
        self._next = 0
        self._read, self._total = 0, 0  # rows of Parquet, batches of Arrow; 0 in all: not known
        self._piece: Any = None
        self._is_parquet = scheme == "parquet"
        self._open_files: list[Any] = []
        _check_path(path, scheme)
        with on_error(self.close):
            try:
                self._pieces = self._parquet() if self._is_parquet else self._ipc()
            except self._broken as error:
                if isinstance(error, ConfigError | SourceError):
                    raise
                what = "a Parquet file" if self._is_parquet else "an Arrow IPC file or stream"
                raise SourceError(
                    f"{path} must be {what}, it cannot be read as one", remedy="check `source.url`"
                ) from None

    def poll(self, max_records: int) -> Batch | None:
        if self._piece is None or self._piece.num_rows == 0:
            self._piece = self._next_piece()
            if self._piece is None:
                return None
        table, self._piece = self._piece.slice(0, max_records), self._piece.slice(max_records)
        first, self._next = self._next, self._next + table.num_rows
        return self._rows.read(table, np.arange(first, self._next))

    def part_read(self) -> float | None:
        """Return the share that was read, between 0 and 1; None for an Arrow stream, whose length is not known."""
        return min(1.0, self._read / self._total) if self._total else None

    def close(self) -> None:
        self._piece = None
        while self._open_files:
            self._open_files.pop().close()

    def _next_piece(self) -> Any:
        try:
            piece = next(self._pieces, None)
            if piece is None:
                return None
            self._read += piece.num_rows if self._is_parquet else 1
            table = self._rows.plain(self._arrow.Table.from_batches([piece]))
            self._rows.validate(table)
            return table
        except self._broken:
            raise SourceError(
                f"{self.path} cannot be read to its end, it is damaged or was cut off; nothing was released"
            ) from None

    def _parquet(self) -> Iterator[Any]:
        # Without `pre_buffer` a row group's columns are read page by page, so its size takes no memory.
        file = self._arrow.parquet.ParquetFile(self.path, buffer_size=_READ_AHEAD, pre_buffer=False)
        self._open_files.append(file)
        self._check(file.schema_arrow)
        self._total = file.metadata.num_rows
        pieces: Iterator[Any] = file.iter_batches(ROWS_AT_ONCE, columns=self._rows.columns)
        return pieces

    def _ipc(self) -> Iterator[Any]:
        ipc = self._arrow.ipc
        if self.path == "-":  # it can be read once only
            reader = ipc.open_stream(sys.stdin.buffer)
            self._check(reader.schema)
            return (batch.select(self._rows.columns) for batch in reader)
        source = self._arrow.memory_map(self.path)
        self._open_files.append(source)
        is_file = source.read(6) == b"ARROW1"
        source.seek(0)
        open_it = ipc.open_file if is_file else ipc.open_stream
        found = open_it(source).schema
        self._check(found)
        source.seek(0)
        wanted = ipc.IpcReadOptions(included_fields=[found.names.index(name) for name in self._rows.columns])
        reader = open_it(source, options=wanted)
        if not is_file:
            return iter(reader)
        self._total = reader.num_record_batches
        return (reader.get_batch(i) for i in range(reader.num_record_batches))

    def _check(self, found: Any) -> None:
        """Check the columns of the whole file by its schema."""
        odd = self._rows.odd_column(self._rows.plain_schema(found))
        if odd is None:
            return
        reason, name = odd[0], self._rows.column(odd[1])
        kind = "" if reason == "missing" else f", it has the type {found.field(name).type}"
        wrong = _WHAT.get(reason, "holds neither texts nor whole numbers")
        raise ConfigError(
            f"{self.path} must have the column {name!r}{kind}: it {wrong}",
            "source.url",
            remedy="check `stream` and `features`",
        )


def _check_path(path: str, scheme: str) -> None:
    if path == "-":
        if scheme == "parquet":
            raise ConfigError(
                "must be a file: Parquet is not read from standard input", "source.url", remedy="use 'arrow:-'"
            )
        if sys.stdin is None:
            raise SourceError("standard input is closed", remedy="open it, or give a file as `source.url`")
        return
    if os.path.isdir(path):
        raise SourceError(f"{path} must be a file, it is a directory", remedy="change `source.url`")
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise SourceError(f"{path} cannot be opened: {error.strerror}") from None
