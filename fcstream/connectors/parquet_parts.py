"""Releases of every kind as Parquet: a folder of parts, each a whole file, with one row for each release."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..errors import SinkError, needs_package
from ..releases.base import Release
from ..releases.long_form import intervals, named_numbers
from ..runtime.disk import lock_file
from ..runtime.undo import on_error
from .sinks import Sink
from .whole_files import put_file

ROWS_PER_PART = 1000
"""From so many releases on a part is complete, and the next release begins another one."""
BYTES_PER_PART = 2**20
"""Likewise for a part's size, so that long releases are not written again and again."""
_PART = re.compile(r"releases-([0-9]{8})\.parquet")
_UNFINISHED = ".releases.part"


class ParquetParts(Sink):
    """Writes releases to the files ``releases-00000000.parquet``, ``releases-00000001.parquet``, ... of a folder.

    A part is made beside the folder's other files under a hidden name, flushed to disk, and then takes its name, so
    that a reader sees whole files only and a crash leaves the part as it was. The newest part is replaced by one with
    more rows until it holds `ROWS_PER_PART` releases or `BYTES_PER_PART`; the others never change. Releases of one
    `write` go into the same part: all of them are there, or none.

    A release is recognized by its bytes: the column ``body`` holds the line of JSON as it was sealed. After a crash
    those releases whose bytes a part holds are not written again, so each stands in the folder once.

    Parameters
    ----------
    folder : str
        Made if it is not there; one writer at a time. Files with other names are left alone.

    Raises
    ------
    ConfigError
        Without pyarrow.
    SinkError
    """

    def __init__(self, folder: str) -> None:
        with needs_package("pyarrow", "arrow", "sink.url"):
            import pyarrow
            import pyarrow.parquet
        self._arrow, self._parquet = pyarrow, pyarrow.parquet
        self._schema = release_schema()
        self._folder = Path(folder)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self._folder, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise SinkError(
                f"{folder} cannot be made or opened: {error.strerror}", remedy="choose another folder"
            ) from None
        with on_error(self.close):
            try:
                lock_file(self._lock)
            except OSError:
                raise SinkError(f"{folder} is in use: one writer at a time", remedy="choose another folder") from None
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._folder / _UNFINISHED)
            numbers = sorted(map(int, (found[1] for found in map(_PART.fullmatch, os.listdir(folder)) if found)))
            self._number = numbers[-1] if numbers else 0
            self._numbers = numbers
            self._rows = self._read(self._number) if numbers else self._schema.empty_table()
            self._is_full = bool(numbers) and self._must_end(self._rows, self._path(self._number).stat().st_size)

    def write(self, releases: Sequence[Release]) -> None:
        if not releases:
            return
        added = release_table(releases)
        number, rows = (self._number + 1, added) if self._is_full else (self._number, self._joined(added))
        data = io.BytesIO()
        self._parquet.write_table(rows, data, compression="zstd")
        # If this fails, the same rows are written again under the same number.
        put_file(self._path(number), data.getvalue(), self._folder / _UNFINISHED)
        self._number, self._rows = number, rows
        self._numbers = [*self._numbers, number] if number not in self._numbers[-1:] else self._numbers
        self._is_full = self._must_end(rows, data.tell())

    def missing(self, releases: Sequence[Release]) -> list[Release]:
        if not releases:
            return []
        opens = [release.window_open_ms for release in releases]
        held: set[str] = set()
        for number in self._numbers:
            rows = self._read(number, columns=["window_open", "body"])
            times = rows.column("window_open").cast(self._arrow.int64())
            near = self._arrow.compute.and_(
                self._arrow.compute.greater_equal(times, min(opens)), self._arrow.compute.less_equal(times, max(opens))
            )
            held.update(rows.column("body").filter(near).to_pylist())
        return [release for release in releases if release.to_bytes().decode() not in held]

    def last(self) -> Release | None:
        """Return the release of the last row of the newest part."""
        if not self._rows.num_rows:
            return None
        try:
            return Release.from_bytes(self._rows.column("body")[-1].as_py().encode())
        except msgspec.DecodeError:
            raise self._foreign(self._number) from None

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _joined(self, added: Any) -> Any:
        return self._arrow.concat_tables([self._rows, added]).combine_chunks()

    @staticmethod
    def _must_end(rows: Any, size: int) -> bool:
        return bool(rows.num_rows >= ROWS_PER_PART or size >= BYTES_PER_PART)

    def _path(self, number: int) -> Path:
        return self._folder / f"releases-{number:08}.parquet"

    def _read(self, number: int, columns: list[str] | None = None) -> Any:
        """Read a part, which must be one of this sink's."""
        try:
            with self._parquet.ParquetFile(self._path(number)) as file:
                if not file.schema_arrow.equals(self._schema):
                    raise self._foreign(number)
                return file.read(columns)
        except (self._arrow.ArrowException, OSError):
            raise self._foreign(number) from None

    def _foreign(self, number: int) -> SinkError:
        return SinkError(
            f"{self._path(number)} is no file of fcstream's releases, or is damaged", remedy="choose another folder"
        )


def release_schema() -> Any:
    """Return the columns of a release in Parquet, the same for every kind (a ``pyarrow.Schema``)."""
    import pyarrow as pa

    time, text, number = pa.timestamp("ms", "UTC"), pa.string(), pa.float64()
    return pa.schema(
        [
            pa.field("stream", text, nullable=False),
            pa.field("window_open", time, nullable=False),
            pa.field("window_close", time, nullable=False),
            pa.field("name", text),
            pa.field("place", pa.int32()),
            pa.field("key", text),
            pa.field("status", text, nullable=False),
            pa.field("reason", text),
            pa.field("kind", text, nullable=False),
            pa.field("names", pa.list_(text)),
            pa.field("value", pa.list_(number)),
            pa.field("sigma", pa.list_(number)),
            pa.field("low", pa.list_(number)),
            pa.field("high", pa.list_(number)),
            pa.field("count", pa.int64()),
            pa.field("core_count", pa.int64()),
            pa.field("rho", number, nullable=False),
            pa.field("delta", number, nullable=False),
            pa.field("guarantee_rho", number, nullable=False),
            pa.field("guarantee_delta", number, nullable=False),
            pa.field("spent_rho", number, nullable=False),
            pa.field("spent_delta", number, nullable=False),
            pa.field("key_share_rho", number),
            pa.field("key_share_delta", number),
            pa.field("private", pa.bool_(), nullable=False),
            pa.field("features", pa.list_(text)),
            pa.field("transform", pa.list_(text)),
            pa.field("unit", text),
            pa.field("body", text, nullable=False),
        ]
    )


def release_table(releases: Iterable[Release]) -> Any:
    """Make a ``pyarrow.Table`` of releases, one row each, with the columns of `release_schema`.

    ``value``, ``sigma``, ``low``, ``high`` (the ends of its interval) and ``names`` are lists of equal length with an
    entry for every number of the release, in the order of the release, however its value is nested; see
    `fcstream.releases.long_form.named_numbers`. They are null in refusals.
    """
    import pyarrow as pa

    return pa.Table.from_pylist([_row(release) for release in releases], release_schema())


def _row(release: Release) -> dict[str, Any]:
    row = {name: getattr(release, name) for name in _AS_THEY_ARE}
    row |= {"window_open": release.window_open_ms, "window_close": release.window_close_ms}
    for name in ("guarantee", "spent", "key_share"):
        loss = getattr(release, name) or {}
        row |= {f"{name}_{part}": loss.get(part) for part in ("rho", "delta")}
    if release.value is not None:
        numbers = list(named_numbers(release))
        row["names"] = [name for name, _, _ in numbers]
        row["value"] = [float(value) for _, value, _ in numbers]
        row["sigma"] = [sigma if sigma is None else float(sigma) for _, _, sigma in numbers]
        ends = list(intervals(release))
        row["low"] = [low if low is None else float(low) for low, _ in ends]
        row["high"] = [high if high is None else float(high) for _, high in ends]
    return row | {"body": release.to_bytes().decode()}


_AS_THEY_ARE = (
    *("stream", "name", "place", "key", "status", "reason", "kind", "count", "core_count", "rho", "delta", "private"),
    *("features", "transform", "unit"),
)
