"""Synthetic tables in a folder: a file of rows for every window, and the release itself beside it."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..errors import SinkError, needs_package
from ..releases.base import Release, shape_of
from ..releases.tables.documents import synthetic_rows
from .sinks import Sink, read_release
from .whole_files import put_file


class TableFolder(Sink):
    """Writes rows of synthetic releases as CSV, JSON lines or Parquet files, named after stream and window.

    ``STREAM.OPEN_MS.json`` holds the release, byte for byte as sealed. It is written after the file of rows is complete
    and on disk. The rows are a function of the release, so after a crash the same table is written again. Releases of
    other kinds, and refusals, have no rows.

    Parameters
    ----------
    folder : str
        Made if it is not there.
    suffix : str
        ``csv``, ``jsonl`` or ``parquet``.

    Raises
    ------
    ConfigError, SinkError
    """

    def __init__(self, folder: str, suffix: str) -> None:
        self._write_rows = _WRITERS[suffix]
        self._suffix = suffix
        if suffix == "parquet":
            _arrow()
        self._folder = Path(folder)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SinkError(f"{folder} cannot be made: {error.strerror}", remedy="choose another folder") from None

    def write(self, releases: Sequence[Release]) -> None:
        for release in releases:
            path = self._path(release)
            if release.value is not None and shape_of(release).value.hidden:
                self._put(f"{path}.{self._suffix}", self._write_rows(synthetic_rows(release)))
            self._put(f"{path}.json", release.to_bytes() + b"\n")

    def missing(self, releases: Sequence[Release]) -> list[Release]:
        return [release for release in releases if self._held(f"{self._path(release)}.json") != release.to_bytes()]

    def last(self) -> Release | None:
        """Return the release of the last window that the folder holds."""
        try:
            names = [name for name in os.listdir(self._folder) if name.endswith(".json")]
        except OSError as error:
            raise SinkError(f"{self._folder} cannot be read: {error.strerror}") from None
        opened = {name: name.removesuffix(".json").rpartition(".")[2] for name in names}
        latest = max(
            (n for n in names if opened[n].lstrip("-").isdecimal()), key=lambda n: int(opened[n]), default=None
        )
        line = None if latest is None else self._held(latest)
        foreign = f"{latest} in {self._folder} must be a release, it is none: remove it, or choose another folder"
        return None if line is None else read_release(line, f"{foreign} (`sink.url`)")

    def close(self) -> None:
        pass

    def _path(self, release: Release) -> str:
        return f"{quote(release.series, safe='')}.{release.window_open_ms}"

    def _held(self, name: str) -> bytes | None:
        try:
            return (self._folder / name).read_bytes().rstrip(b"\n")
        except OSError:
            return None

    def _put(self, name: str, data: bytes) -> None:
        put_file(self._folder / name, data, self._folder / f".{name}.part")


def _csv(rows: dict[str, list[Any]]) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(rows)
    columns = [[_plain(value) for value in column] for column in rows.values()]
    writer.writerows(zip(*columns, strict=True))
    return out.getvalue().encode("utf-8", "surrogateescape")


def _plain(value: Any) -> Any:
    """Truth values as JSON writes them."""
    return str(value).lower() if isinstance(value, bool) else value


def _jsonl(rows: dict[str, list[Any]]) -> bytes:
    names = list(rows)
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in zip(*rows.values(), strict=True)]
    return "".join(f"{line}\n" for line in lines).encode()


def _arrow() -> Any:
    with needs_package("pyarrow", "arrow", "sink.url"):
        import pyarrow
        import pyarrow.parquet
    return pyarrow


def _parquet(rows: dict[str, list[Any]]) -> bytes:
    arrow, out = _arrow(), io.BytesIO()
    arrow.parquet.write_table(arrow.table(rows), out)
    return out.getvalue()


_WRITERS: dict[str, Callable[[dict[str, list[Any]]], bytes]] = {"csv": _csv, "jsonl": _jsonl, "parquet": _parquet}
