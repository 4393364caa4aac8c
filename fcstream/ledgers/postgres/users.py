"""The budgets of one stream's users in PostgreSQL; `fcstream.ledgers.user_budgets` explains the buckets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import user_budgets
from .connection import Connection
from .statements import array

_AT_ONCE = 1024  # buckets that are written in one statement


def read_buckets(
    db: Connection, schema: str, location: str, stream: str, names: list[int] | None
) -> user_budgets.CheckedBuckets:
    """Return the named buckets of users' budgets, checked; None returns all buckets.

    Parameters
    ----------
    schema : str
        Quoted name of the schema.
    location : str
        Location of the ledger that messages show.
    """
    query = f"SELECT bucket, body, mark FROM {schema}.users WHERE stream = %s"
    values: tuple[Any, ...] = (stream,)
    if names is not None and len(names) < user_budgets.BUCKETS // 2:
        query += " AND bucket = ANY (%s::integer[])"
        values += (array(names),)
    wanted = None if names is None else set(names)
    held = db.execute(query.encode(), values, binary=True)
    return user_budgets.checked(location, (row for row in held if wanted is None or row[0] in wanted))


def store_buckets(
    db: Connection, schema: str, stream: str, changed: Mapping[int, bytes], marks: Mapping[int, bytes]
) -> None:
    """Write buckets, with their marks."""
    query = (
        f"INSERT INTO {schema}.users SELECT %s, unnest(%s::integer[]), unnest(%b::bytea[]), unnest(%b::bytea[]) "
        "ON CONFLICT (stream, bucket) DO UPDATE SET body = excluded.body, mark = excluded.mark"
    )
    names = list(changed)
    for start in range(0, len(names), _AT_ONCE):
        part = names[start : start + _AT_ONCE]
        columns = [changed[name] for name in part], [marks[name] for name in part]
        db.execute(query.encode(), (stream, array(part), *columns))
