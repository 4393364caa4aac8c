"""The statements by which ledgers change streams of one PostgreSQL schema; each takes several streams at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..base import Request, SealedRelease, WindowKey
from .connection import Connection


class ChargeRow(NamedTuple):
    """What the SQL function `charge` says about one request."""

    outcome: str
    draws: int
    rho: int
    delta: int
    spent_rho: int
    spent_delta: int
    block: str | None
    block_rho: int
    block_delta: int
    seq: int
    chain: bytes


class SeenStream(NamedTuple):
    """A stream, and the last row of its journal that the caller knows, with its link."""

    name: str
    seq: int
    chain: bytes


def charge(
    db: Connection,
    schema: str,
    token: bytes,
    streams: Sequence[SeenStream],
    requests: Sequence[Sequence[Request]],
    acknowledged: Sequence[Sequence[WindowKey]] | None = None,
) -> list[list[ChargeRow]]:
    """Acknowledge windows of each stream, and charge others.

    Parameters
    ----------
    schema : str
        Quoted name of the schema.
    token : bytes
        By which a call that is repeated knows its own work.
    requests, acknowledged : sequence of sequences
        For each stream.
    """
    query = (
        f"SELECT * FROM {schema}.charge_streams(%s::text[], %s::bigint[], %b::bytea[], %b::bytea, "
        "%s::integer[], %s::bigint[], %s::bigint[], %s::integer[], %s::bigint[], %s::bigint[], %s::bigint[], "
        "%s::bigint[], %s::text[])"
    )
    told = [()] * len(streams) if acknowledged is None else acknowledged
    flat = [request for each in requests for request in each]
    values = (
        *(*_seen(streams), token),
        *(array(map(len, told)), *_windows(window for each in told for window in each)),
        *(array(map(len, requests)), *_windows(request.window for request in flat)),
        *(array(r.loss.rho_nano for r in flat), array(r.loss.delta_femto for r in flat)),
        texts(",".join(request.blocks) for request in flat),
    )
    rows = (ChargeRow(*row) for row in db.execute(query.encode(), values, binary=True))
    return [[next(rows) for _ in each] for each in requests]


def seal(
    db: Connection,
    schema: str,
    token: bytes,
    streams: Sequence[SeenStream],
    answers: Sequence[Sequence[SealedRelease]],
) -> list[tuple[int, int, bytes]]:
    """Seal windows of each stream.

    Returns for each how many this try refunded (refunds that an earlier try of the same call has made are not counted),
    the last row of its journal, and the link of that row.
    """
    query = (
        f"SELECT * FROM {schema}.seal_streams(%s::text[], %s::bigint[], %b::bytea[], %b::bytea, %s::integer[], "
        "%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %b::bytea[])"
    )
    flat = [answer for each in answers for answer in each]
    values = (
        *(*_seen(streams), token, array(map(len, answers)), *_windows(answer.window for answer in flat)),
        *(array(a.refund.rho_nano for a in flat), array(a.refund.delta_femto for a in flat)),
        [answer.body for answer in flat],
    )
    return [(refunded, seq, bytes(chain)) for refunded, seq, chain in db.execute(query.encode(), values, binary=True)]


def acknowledge(
    db: Connection, schema: str, streams: Sequence[SeenStream], windows: Sequence[Sequence[WindowKey]]
) -> None:
    """Note that the sink has windows of each stream, without waiting for the disk."""
    query = (
        f"SELECT {schema}.acknowledge_streams(%s::text[], %s::bigint[], %b::bytea[], %s::integer[], %s::bigint[], "
        "%s::bigint[])"
    )
    keys = _windows(window for each in windows for window in each)
    db.execute(query.encode(), (*_seen(streams), array(map(len, windows)), *keys), binary=True)


def keep_settings(
    db: Connection, schema: str, streams: Sequence[SeenStream], facts: Sequence[tuple[str, str]]
) -> list[tuple[str, int, bytes]]:
    """Store a public fact of each stream; returns what is kept, the last row of its journal, and the link of it."""
    query = f"SELECT * FROM {schema}.keep_settings(%s::text[], %s::bigint[], %b::bytea[], %s::text[], %s::text[])"
    values = (*_seen(streams), texts(key for key, _ in facts), texts(value for _, value in facts))
    return [(kept, seq, bytes(chain)) for kept, seq, chain in db.execute(query.encode(), values, binary=True)]


def array(values: Iterable[object]) -> str:
    """Write an array in PostgreSQL's text form, which has one type for all values and is fast to build."""
    return "{" + ",".join(map(str, values)) + "}"


def texts(values: Iterable[str]) -> str:
    """Write an array of texts in PostgreSQL's text form."""
    escaped = (value.replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return array(f'"{value}"' for value in escaped)


def _seen(streams: Sequence[SeenStream]) -> tuple[str, str, list[bytes]]:
    return texts(each.name for each in streams), array(each.seq for each in streams), [each.chain for each in streams]


def _windows(windows: Iterable[WindowKey]) -> tuple[str, str]:
    held = list(windows)
    return array(window.open_ms for window in held), array(window.close_ms for window in held)
