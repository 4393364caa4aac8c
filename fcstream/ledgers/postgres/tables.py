"""Ledger tables in PostgreSQL: creating, opening and checking them; `hash_chain` explains the rules.

Every function takes a connection and runs inside the caller's transaction. In a query, {schema} stands for the quoted
name of the ledger's schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any, NamedTuple

from ...accounting.losses import PrivacyLoss
from ...errors import LedgerDamaged, LedgerError, LedgerMismatch
from ...noise.samplers import SystemEntropy
from .. import hash_chain
from ..base import TOTAL_BLOCK, Row, Terms
from ..groups import Standing, check_group, has_caps, sum_of, tightened_in_group
from ..terms_check import (
    check_caps,
    check_keys_named,
    check_terms,
    folded_name,
    log_tightened,
    tell_of_a_new_stream,
    tightened,
)
from .connection import Connection, ServerAddress, sql

SCHEMA_VERSION = 5
ROW = "j.seq, j.kind, j.open_ms, j.close_ms, j.rho, j.delta, j.blocks, j.body, j.chain"
WINDOW = "w.open_ms, w.close_ms, w.state, w.draws, w.rho, w.delta, w.blocks, w.sealed_seq, w.mark"
_HEAD = """
SELECT s.stream, s.salt, s.seq, s.chain, s.digest, s.terms_seq, s.retired,
    ARRAY[s.capacity_rho, s.capacity_delta, s.total_rho, s.total_delta], s.mark = {schema}.head_mark(s)
FROM {schema}.streams s WHERE s.stream = ANY (%s) ORDER BY s.stream
"""
_ROWS_OF_HEADS = f"""
SELECT s.stream, {ROW}, p.chain FROM {{schema}}.streams s
CROSS JOIN LATERAL (SELECT DISTINCT unnest(ARRAY[0, s.terms_seq, s.seq]) AS seq) w
JOIN {{schema}}.journal j ON j.stream = s.stream AND j.seq = w.seq
LEFT JOIN {{schema}}.journal p ON p.stream = j.stream AND p.seq = j.seq - 1
WHERE s.stream = ANY (%s)
"""
_SUMS = """
SELECT ((b.total + w.total + k.total) %% 1152921504606846976)::bigint, coalesce(b.bad, w.bad, k.bad)
FROM (SELECT coalesce(sum(mark), 0) AS total,
        'block ' || min(block) FILTER (WHERE mark <> {schema}.block_mark(block, rho, delta)) AS bad
    FROM {schema}.blocks WHERE stream = %(stream)s) b
CROSS JOIN (SELECT coalesce(sum(w.mark), 0) AS total,
        'window ' || min(w.open_ms) FILTER (WHERE w.mark <> {schema}.window_mark(w)) AS bad
    FROM {schema}.windows w WHERE w.stream = %(stream)s) w
CROSS JOIN (SELECT coalesce(sum(mark), 0) AS total,
        'setting ' || min(key) FILTER (WHERE mark <> {schema}.mark('s|' || key || '|' || value)) AS bad
    FROM {schema}.settings WHERE stream = %(stream)s) k
"""


class OpenedStream(NamedTuple):
    """Stream as its tables described it when it was opened.

    Attributes
    ----------
    seen : tuple of int and bytes
        Number and link of the journal's last row. After `PostgresTables.check` of the last one that is on disk for
        certain: an acknowledgment may not be yet.
    """

    terms: Terms
    salt: bytes
    seen: tuple[int, bytes]
    is_retired: bool


def make_schema(db: Connection, address: ServerAddress) -> None:
    """Create the tables if they are absent, inside a transaction; several processes may call this at once.

    Raises
    ------
    LedgerMismatch, LedgerDamaged
    """
    name, schema = address.schema, sql.Identifier(address.schema).as_string()
    db.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"fcstream {name}",))
    if one(db, "SELECT to_regclass(%s)", (f"{schema}.meta",))[0]:
        check_version(db, address)
        return
    count = "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s"
    if not one(db, "SELECT count(*) FROM pg_namespace WHERE nspname = %s", (name,))[0]:
        db.execute(f"CREATE SCHEMA {schema}".encode())
    elif one(db, count, (name,))[0]:
        raise LedgerMismatch(
            f"schema {name} holds tables of another program",
            remedy="choose another with ?schema=NAME",
            where=address.location(None),
        )
    db.execute(files(__package__).joinpath("schema.sql").read_text().replace("{schema}", schema).encode())
    db.execute(f"INSERT INTO {schema}.meta VALUES ('schema', %s)".encode(), (str(SCHEMA_VERSION),))


def check_version(db: Connection, address: ServerAddress) -> None:
    schema = sql.Identifier(address.schema).as_string()
    found = db.execute(f"SELECT value FROM {schema}.meta WHERE key = 'schema'".encode()).fetchone()
    if found is None:
        raise LedgerDamaged(f"{address.location(None)} is damaged: meta row 'schema' is missing")
    if str(found[0]) in map(str, range(1, SCHEMA_VERSION)):
        raise LedgerMismatch(
            f"{address.location(None)} is of an earlier version, which kept budgets of single users",
            remedy="take another ledger; what both cost somebody adds up",
        )
    if str(found[0]) != str(SCHEMA_VERSION):
        raise LedgerMismatch(
            f"{address.location(None)} has schema version {found[0]}, this version reads {SCHEMA_VERSION}",
            remedy="use the version that made it",
        )


def stream_names(db: Connection, address: ServerAddress) -> list[str]:
    """Return the names of all streams, including retired streams."""
    schema = sql.Identifier(address.schema).as_string()
    if not one(db, "SELECT to_regclass(%s)", (f"{schema}.meta",))[0]:
        raise LedgerError(f"{address.location(None)} does not exist: there is no ledger to look at")
    found = db.execute(f"SELECT stream FROM {schema}.streams ORDER BY stream".encode()).fetchall()
    return [str(name) for (name,) in found]


class PostgresTables:
    """Ledger tables of one schema, used through one connection.

    Parameters
    ----------
    db : Connection
    schema : str
        Quoted name of the schema.
    location : str
        Location of the ledger that messages show.
    """

    def __init__(self, db: Connection, schema: str, location: str) -> None:
        self._db, self._schema, self._location = db, schema, location

    def join(self, wanted: Sequence[Terms]) -> None:
        """Bind streams and all their sibling streams to the terms, and create those that are absent.

        Sibling streams must agree with the terms, or adopt stricter caps from them. The caller has locked the schema,
        so no other process adds or opens a stream meanwhile. What several streams have in common is looked at once.
        """
        listed = dict(self._do("SELECT stream, retired FROM {schema}.streams").fetchall())
        siblings: dict[str, list[str]] = {}
        for name, retired in listed.items():
            if not retired:
                siblings.setdefault(folded_name(name), []).append(name)
        agreed: dict[str, Terms] = {}
        for terms in wanted:
            if listed.get(terms.stream) and self.open(terms.stream).is_retired:
                raise LedgerMismatch(
                    f"stream {terms.stream!r} was retired", remedy="choose another `stream.name`", where=self._location
                )
            root, about = folded_name(terms.root), replace(terms, stream=terms.root)
            known = siblings.setdefault(root, [])
            if agreed.get(root) != about:
                self._agree(terms, known, listed)
                agreed[root] = about
            if terms.stream not in listed:
                self._create(terms)
                if not known:
                    others = [
                        Standing(found.terms, is_retired=listed[name]) for name, found in self.open_all(listed).items()
                    ]
                    tell_of_a_new_stream(self._location, terms, others)
                listed[terms.stream] = False
                known.append(terms.stream)
        for terms in wanted[-1:]:
            others_of_it = [name for name in siblings[folded_name(terms.root)] if name != terms.stream]
            check_keys_named(self._location, others_of_it, terms)

    def _agree(self, terms: Terms, siblings: Sequence[str], listed: Mapping[str, bool]) -> None:
        """Check sibling streams against the terms, and have them adopt stricter caps."""
        for found in self.open_all(siblings, lock=True).values():
            check_terms(self._location, found.terms, terms)
        check_keys_named(self._location, siblings, terms)
        self._join_group(terms, listed)  # before each stream is looked at alone: filters are those of all together
        looser = [found for found in self.open_all(siblings).values() if found.terms != tightened(found.terms, terms)]
        for found in looser:
            self._tighten(found, tightened(found.terms, terms))
        if looser:
            log_tightened(self._location, looser[0].terms, terms)

    def _join_group(self, terms: Terms, listed: Mapping[str, bool]) -> None:
        """Check that the streams of a group agree, and give all of them the stricter caps."""
        if terms.group is None:
            return
        self._db.execute(self._sql(files(__package__).joinpath("groups.sql").read_text()).encode())
        known, live = {}, [name for name, retired in listed.items() if not retired]
        for name, found in sorted((self.open_all(listed) | self.open_all(live, lock=True)).items()):
            if found.terms.group is not None and not listed[name]:
                check_group(self._location, found.terms, terms)
            if found.terms.group == terms.group:
                known[name] = found
        looser = [each for each in known.values() if not each.is_retired and not has_caps(each.terms, terms)]
        if looser:
            total = sum_of(self._spent_in_all(name) for name in known)
            check_caps(
                self._location, terms, sum_of(largest_spent(self._db, self._schema, name) for name in known), total
            )
        for found in looser:
            log_tightened(self._location, found.terms, terms)
            self._set_terms(found, tightened_in_group(found.terms, terms))

    def open(self, stream: str, *, lock: bool = False) -> OpenedStream:
        """Read the terms of a stream, and check that its head agrees with its journal.

        Raises
        ------
        LedgerDamaged, LedgerMismatch
        """
        return self.open_all([stream], lock=lock)[stream]

    def open_all(self, streams: Iterable[str], *, lock: bool = False) -> dict[str, OpenedStream]:
        """Do what `open` does for several streams, with two statements; they are locked in the order of their names."""
        names = list(streams)
        heads = {name: head for name, *head in self._do(_HEAD + ("FOR UPDATE" if lock else ""), (names,))}
        rows: dict[str, list[Any]] = {name: [] for name in names}
        for name, *columns in self._do(_ROWS_OF_HEADS, (names,)):
            rows[name].append(columns)
        return {name: self._opened(name, heads.get(name), rows[name]) for name in sorted(names)}

    def _opened(self, stream: str, head: Sequence[Any] | None, found: Iterable[Sequence[Any]]) -> OpenedStream:
        """Check a stream's head against the rows of its journal that it names, each with the link before it."""
        if head is None:
            raise LedgerMismatch(f"{self._location} does not exist: there is no such stream to look at")
        salt, seq, chain, _, terms_seq, is_retired, caps, is_whole = head
        rows, links = {}, {}
        for *columns, before in found:
            number, links[columns[0]] = columns[0], columns[-1]
            rows[number] = followed(self._location, columns, before if number else hash_chain.origin(salt))
        for number in {0, terms_seq, seq} - rows.keys():
            raise LedgerDamaged(f"journal row {number} is missing", where=self._location)
        if not is_whole or links[seq] != chain:
            raise LedgerDamaged(
                f"{self._location} is damaged: the head of {stream!r} disagrees with its journal at row {seq}"
            )
        terms = hash_chain.terms_of(self._location, rows[terms_seq].body if rows[terms_seq].kind == "terms" else b"")
        is_named = hash_chain.listed_as(terms, rows[seq]) == stream and is_retired == (rows[seq].kind == "retire")
        if caps != caps_of(terms) or not is_named:
            raise LedgerDamaged(
                f"{self._location} is damaged: what stream {stream!r} is about disagrees with its journal"
            )
        return OpenedStream(terms, salt, (seq, chain), is_retired)

    def check(self, stream: str) -> OpenedStream:
        """Check every row of the summary tables and the newest journal rows against the head, as of one moment.

        Raises
        ------
        LedgerDamaged
        """
        found = self.open(stream)
        _, _, seq, _, digest, *_ = one(self._db, self._sql(_HEAD), ([stream],))
        total, bad = one(self._db, self._sql(_SUMS), {"stream": stream})
        if bad is not None:
            raise LedgerDamaged(f"{self._location} is damaged: {bad} disagrees with the mark beside it")
        if total != digest:
            raise LedgerDamaged(f"{self._location} is damaged: its tables disagree with the head at row {seq}")
        for row in self.linked(stream, range(max(0, seq - hash_chain.TAIL), seq + 1), found.salt):
            seq = row.seq
        query = "SELECT seq, chain FROM {schema}.journal WHERE stream = %s AND kind <> 'acknowledge'"
        return found._replace(seen=one(self._db, self._sql(f"{query} ORDER BY seq DESC LIMIT 1"), (stream,)))

    def linked(self, stream: str, wanted: Iterable[int], salt: bytes) -> Iterator[Row]:
        """Yield the wanted journal rows; a row that is missing or does not follow from its predecessor is an error."""
        numbers = sorted(set(wanted))
        query = (
            f"SELECT {ROW}, p.chain FROM {{schema}}.journal j "
            "LEFT JOIN {schema}.journal p ON p.stream = j.stream AND p.seq = j.seq - 1 "
            "WHERE j.stream = %s AND j.seq = ANY (%s) ORDER BY j.seq"
        )
        found = iter(self._do(query, (stream, numbers)))
        for number in numbers:
            columns = next(found, None)
            if columns is None or columns[0] != number:
                raise LedgerDamaged(f"journal row {number} is missing", where=self._location)
            yield followed(self._location, columns[:-1], columns[-1] if number else hash_chain.origin(salt))

    def _create(self, terms: Terms) -> None:
        if self._do("SELECT EXISTS (SELECT FROM {schema}.journal WHERE stream = %s)", (terms.stream,)).fetchone() == (
            True,
        ):
            raise LedgerDamaged(f"{self._location} is damaged: there is a journal, its row of `streams` is missing")
        salt = SystemEntropy().words(4).tobytes()
        self._do(
            "SELECT {schema}.create_stream(%s::text, %s::bigint[], %b::bytea, %b::bytea, %b::bytea)",
            (terms.stream, caps_of(terms), salt, hash_chain.origin(salt), hash_chain.terms_body(terms)),
        )

    def _tighten(self, found: OpenedStream, wanted: Terms) -> None:
        """Adopt stricter caps and record them in the hash chain."""
        stream = found.terms.stream
        spent = largest_spent(self._db, self._schema, stream)
        check_caps(self._location, wanted, spent, self._spent_in_all(stream))
        self._set_terms(found, wanted)

    def _set_terms(self, found: OpenedStream, wanted: Terms) -> None:
        stream = found.terms.stream
        self.check(stream)
        self._do(
            "SELECT {schema}.set_terms(%s::text, %s::bigint, %b::bytea, %s::bigint[], %b::bytea)",
            (stream, *found.seen, caps_of(wanted), hash_chain.terms_body(wanted)),
        )

    def _spent_in_all(self, stream: str) -> PrivacyLoss:
        """Return what all windows of a stream have spent of the total."""
        query = "SELECT rho, delta FROM {schema}.blocks WHERE stream = %s AND block = %s"
        return PrivacyLoss(*(self._do(query, (stream, TOTAL_BLOCK)).fetchone() or (0, 0)))

    def _do(self, query: str, values: Sequence[object] = ()) -> Any:
        return self._db.execute(self._sql(query), values, binary=True)

    def _sql(self, text: str) -> str:
        return text.replace("{schema}", self._schema)


def followed(location: str, columns: Sequence[Any], before: bytes | None) -> Row:
    """Make a journal row of its columns, and check its link, the last column, against the link before it."""
    *parts, chain = columns
    row = Row(*parts)
    if before is None or hash_chain.link(before, row) != chain:
        raise LedgerDamaged(f"journal row {row.seq} does not follow from the rows before it", where=location)
    return row


def checked_window(location: str, columns: Sequence[Any]) -> tuple[Any, ...]:
    """Return a row of the table `windows` without its mark, after checking that the two agree."""
    *parts, stored = columns
    if hash_chain.mark("w", *parts) != stored:
        raise LedgerDamaged(f"{location} is damaged: window {parts[0]} disagrees with the mark beside it")
    return tuple(parts)


def largest_spent(db: Connection, schema: str, stream: str) -> PrivacyLoss:
    """Return the largest loss spent by any block of a stream, the block of the total excluded."""
    query = (
        f"SELECT coalesce(max(rho), 0), coalesce(max(delta), 0) FROM {schema}.blocks WHERE stream = %s AND block <> %s"
    )
    return PrivacyLoss(*one(db, query, (stream, TOTAL_BLOCK)))


def caps_of(terms: Terms) -> list[int | None]:
    """Return the caps of some terms as columns of the table `streams`."""
    total: tuple[int | None, int | None] = (None, None) if terms.total is None else terms.total.parts
    return [*terms.capacity.parts, *total]


def one(db: Connection, query: str, values: Any = ()) -> tuple[Any, ...]:
    """Return the only row of a query that always has one row."""
    row = db.execute(query, values, binary=True).fetchone()
    assert row is not None
    return row
