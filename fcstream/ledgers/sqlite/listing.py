"""The list of the streams in a SQLite file: whether it names all of them, and what several of them keep."""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import LedgerDamaged
from ..files import LedgerFile
from ..hash_chain import mark
from .sums import sums_of
from .tables import StreamTables


def stream_numbers(file: LedgerFile) -> list[tuple[int, str, int]]:
    """Return the number, the name and the retired flag of every stream in a file."""
    return file.db.execute("SELECT number, stream, retired FROM streams ORDER BY number").fetchall()


def check_listed(file: LedgerFile, path: str) -> dict[int, StreamTables]:
    """Check that the list of streams names every stream's tables, and that no stream is older than its rollback guard.

    A stream whose tables were lost would otherwise start again with a fresh budget. Returns the tables that were read,
    by number; none if the list was checked before.

    Raises
    ------
    LedgerDamaged
    """
    if file.is_listed:
        return {}
    listed, found = stream_numbers(file), dict[int, StreamTables]()
    numbers = [number for number, _, _ in listed]
    first = {number for (number,) in file.db.execute("SELECT stream FROM journal WHERE seq = 0")}
    if numbers != list(range(1, len(listed) + 1)) or not first == set(numbers) >= sums_of(file, path).keys():
        raise LedgerDamaged(f"{path} is damaged: its list of streams disagrees with its tables")
    for number, name, retired in listed:
        tables = found[number] = StreamTables(file, path, number)
        tables.open()
        check_stream_name(path, tables, name, retired)
        tables.guard.check(tables.head.seq, tables.head.chain, tables.link_at)
    file.is_listed = True
    return found


def settings_of(file: LedgerFile, path: str, numbers: Iterable[int]) -> dict[str, str]:
    """Return the settings of several streams; where some have the same, that of the first."""
    wanted, found = set(numbers), dict[str, str]()
    file.write()
    for number, key, value, stored in file.db.execute("SELECT stream, key, value, mark FROM settings ORDER BY stream"):
        if number in wanted:
            if mark("s", key, value) != stored:
                raise LedgerDamaged(f"{path} is damaged: setting {key} disagrees with the mark beside it")
            found.setdefault(key, value)
    return found


def check_stream_name(path: str, tables: StreamTables, name: str, retired: int) -> None:
    """Check that a stream is listed under its own name, or under the name that it got when it was retired."""
    if name != tables.name or bool(retired) != tables.is_retired:
        raise LedgerDamaged(f"{path} is damaged: stream {tables.name!r} is listed as {name!r}")
