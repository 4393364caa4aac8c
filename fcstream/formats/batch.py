"""Batches: records as columns, and a rejection with reason, position and field for everything that is not a record.

Neither rejections nor messages ever quote a record's content.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from .cells import LONGEST_LABEL as LONGEST_LABEL
from .cells import MAX_TIME_MS as MAX_TIME_MS
from .cells import TIME_UNITS, Role, read
from .cells import Milliseconds as Milliseconds
from .cells import parse_iso8601 as parse_iso8601
from .cells import parse_number as parse_number
from .cells import parse_time as parse_time
from .envelopes import AskedFields, EnvelopeField, asked_fields
from .paths import FieldPath
from .plain_columns import as_array
from .positions import SeenPositions as SeenPositions
from .rejections import Rejection as Rejection
from .rejections import tallied, total
from .texts import UnusableRecord as UnusableRecord

MEANINGS = {
    "broken_record": "no JSON object on the line, or a wrong number of cells",
    "missing": "a field is absent, null or empty",
    "not_a_number": "text, a Boolean or a list where a number must stand",
    "not_finite": "NaN, infinity, or beyond a double",
    "out_of_range": "outside the feature's public range",
    "bad_time": "an event time that cannot be read, or a date without a time where windows are no whole days",
    "time_out_of_range": "outside the public schedule, or too far ahead of its own arrival (`window.ahead`)",
    "late": "arrived after close and lateness of every window it belongs to: raise `window.lateness`",
    "window_closed": "all its windows have a release already: raise `window.lateness`",
    "duplicate": "this source position was taken before; nothing is lost",
    "bad_user": "a user's id that is neither text nor a whole number, is longer than 1024 characters, or has more than "
    "30 accents in a row",
    "unknown_level": "a Boolean or a category that is none of its declared levels",
    "not_a_text": "no text and no whole number where a text must stand, no Unicode, or more than 30 accents in a row",
    "too_long": "rows of one message beyond those that are read, a text of more than `max_bytes`, or a record or a "
    "message that is longer than any that is read",
    "cumulative": "a cumulative sum of OTLP, which holds all measurements since its start: send gauges, or deltas",
    "delta_sum": "a sum of OTLP over one interval, and `source.delta_sums` does not say that such are to be read",
    "histogram": "a histogram or summary of OTLP, which holds no measurement: send gauges",
    "two_values": "an entry of SenML with more than one of `v`, `vs`, `vb` and `vd`: nobody can tell which is meant",
    "compressed": "a message that begins as gzip, zlib, zstd, xz or lz4 does and cannot be read: send it uncompressed",
    "unknown_schema": "a schema that the registry does not know, that cannot be read, or that holds itself",
    "unknown_key": "a key that is not among the declared ones, or does not belong to the partition it came by, or that "
    "can be none: 1 to 200 printable characters",
    "undiscovered_key": "a key that was not found in the period before; it counts in the search for the next period's",
}
"""Why a record cannot be used, by the reason in dead letters."""
REASONS = tuple(MEANINGS)


@dataclass(slots=True)
class Batch:
    """The usable records of one poll as columns, and the rejections of the others.

    Attributes
    ----------
    times_ms : int64 (n,)
    values : float64 (n, d)
        Raw fields in their own units; not yet checked for range.
    positions : int64 (n,)
        Position of each record in its source, which identifies it.
    rejections : list of Rejection
    users : array of str (n,), or None
        The user of each record; None if the stream has no users.
    keys : array of str (n,), or None
        The key of each record, not yet compared with the declared keys; None if the stream has no keys.
    texts : dict of str to array of str (n,)
        Of each feature that holds texts the normalized text of each record; None where an optional one is missing.
    """

    times_ms: NDArray[np.int64]
    values: NDArray[np.float64]
    positions: NDArray[np.int64]
    rejections: list[Rejection] = field(default_factory=list)
    users: NDArray[np.object_] | None = None
    keys: NDArray[np.object_] | None = None
    texts: dict[str, NDArray[np.object_]] = field(default_factory=dict)

    @property
    def seen(self) -> int:
        """Number of records, usable or not."""
        return len(self.times_ms) + total(self.rejections)

    def pick(self, rows: NDArray[Any], rejections: list[Rejection] | None = None) -> Batch:
        """Select some of the rows, by mask or index, with other rejections."""
        return Batch(
            self.times_ms[rows],
            self.values[rows],
            self.positions[rows],
            rejections or [],
            None if self.users is None else self.users[rows],
            None if self.keys is None else self.keys[rows],
            {name: column[rows] for name, column in self.texts.items()},
        )


@dataclass(frozen=True, slots=True)
class Schema:
    """The fields of a record.

    They are the event time and its unit; the features, in order; the user and the key (None if the stream has none);
    the codes of features that are not numbers; the texts that mean that a feature has no value; the features that a
    record may lack; the features that hold texts, with the most bytes of each; and all features in the order of the
    configuration, if some hold texts. Then, by field, where it stands if not under its literal name; where the list
    stands whose elements are the records; the features whose numbers may come as text; and what stands between the
    levels of a topic; the headers that the format of the messages reads itself; whether a date without a time is an
    event time, its midnight: it is no instant unless windows last whole days; and what makes doubles of a column, see
    `fcstream.stream.lattice.Grid.doubles`.
    """

    time: str
    time_unit: str
    features: tuple[str, ...]
    user: str | None = None
    key: str | None = None
    levels: Mapping[str, Mapping[Any, int]] = field(default_factory=dict)
    missing: Mapping[str, frozenset[str]] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()
    texts: Mapping[str, int] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    paths: Mapping[str, FieldPath | EnvelopeField] = field(default_factory=dict)
    records: FieldPath | None = None
    quoted: frozenset[str] = frozenset()
    topic_separator: str = "/"
    headers: frozenset[str] = frozenset()
    dates: bool = True
    converts: Callable[[int, NDArray[Any], Any], NDArray[np.float64]] | None = field(default=None, compare=False)

    @property
    def is_flat(self) -> bool:
        """Return whether a record is a message, and every field is one by its literal name."""
        return not (self.paths or self.records is not None or self.quoted)

    def place(self, name: str) -> FieldPath | EnvelopeField:
        """Return where the field of this name stands in a message, or in its envelope."""
        return self.paths.get(name) or FieldPath.named(name)

    def column(self, name: str) -> str:
        """Return the column that holds this field, in formats that have columns.

        Raises
        ------
        ConfigError
            It is not in the body of a message.
        """
        place = self.place(name)
        if isinstance(place, EnvelopeField):
            raise ConfigError(self._only_messages(name), self.key_of(name))
        return place.column

    @property
    def asked(self) -> AskedFields:
        """Return what is read of the envelopes of messages."""
        return asked_fields(self.paths.values(), self.headers)

    def refuse_envelopes(self, what: str) -> None:
        """Refuse fields that come with a message, where records are none, and records inside of messages.

        Raises
        ------
        ConfigError
        """
        for name, place in self.paths.items():
            if isinstance(place, EnvelopeField):
                raise ConfigError(self._only_messages(name, what), self.key_of(name))

    def refuse_elements(self, what: str) -> None:
        """Refuse ``[source] records`` where no record can lie inside of another.

        Raises
        ------
        ConfigError
        """
        if self.records is not None:
            raise ConfigError(f"must be left out for {what}, which hold one record a row", "source.records")

    def key_of(self, name: str) -> str:
        """Return the key of the configuration that names a field."""
        for key in ("time", "user", "key"):
            if getattr(self, key) == name:
                return f"stream.{key}"
        return f"features.{name}.path"

    def _only_messages(self, name: str, what: str = "tables") -> str:
        return (
            f"must name a field of the records, since {what} have no topics, keys, headers or times of arrival, got "
            f"{_written(self.paths[name])!r}"
        )

    def role(self, name: str, *, as_text: bool = False, nan: str = "missing", places: bool = False) -> Role:
        """Return what the cells of a field stand for; see `Role`.

        With `places`, as in rows whose cells have no names, whole numbers are places of levels, counted from 0, if no
        level is a whole number.
        """
        if name == self.time:
            return Role("time", self.time_unit, self.dates, as_text=as_text, nan=nan)
        missing, optional = self.missing.get(name, frozenset()), name in self.optional
        if name in self.labels:
            size, reason = self.texts.get(name), bad_label(self, name)
            return Role("label", missing=missing, optional=optional, as_text=as_text, max_bytes=size, reason=reason)
        if name in self.levels:
            codes = self.levels[name]
            if places and not any(type(level) is int for level in codes):
                codes = {**codes, **{code: code for code in codes.values()}}
            return Role("code", codes=codes, missing=missing, optional=optional)
        as_text, doubles = as_text or name in self.quoted, None
        if self.converts is not None:
            doubles = partial(self.converts, self.features.index(name))
        return Role("number", missing=missing, optional=optional, as_text=as_text, nan=nan, doubles=doubles)

    def roles(self, *, places: bool = False) -> dict[str, Role]:
        """Return the role of each field."""
        return {name: self.role(name, places=places) for name in (self.time, *self.features, *self.labels)}

    def message_roles(self, *, as_text: bool = False) -> dict[str, Role]:
        """Return the role of each field of messages, in which a NaN was written by hand; in CSV all comes `as_text`."""
        roles = {name: self.role(name, as_text=as_text, nan="not_finite") for name in (*self.features, *self.labels)}
        return {self.time: self.role(self.time, as_text=as_text, nan="bad_time")} | roles

    @property
    def labels(self) -> tuple[str, ...]:
        """The fields that hold text or whole numbers: user, key, and features that hold texts."""
        return tuple(name for name in (self.user, self.key, *self.texts) if name is not None)

    @property
    def shared(self) -> frozenset[str | None]:
        """Time, user and key, which an element of a message may leave to the message around it."""
        return frozenset((self.time, self.user, self.key))

    @property
    def columns(self) -> tuple[str, ...]:
        """The features in the order in which rows of an array hold them, those that hold texts among them."""
        return self.order if self.texts else self.features

    def labeled(self, batch: Batch, columns: Sequence[NDArray[np.object_]]) -> Batch:
        """Give a batch the columns of its labels."""
        found = dict(zip(self.labels, columns, strict=True))
        batch.users = None if self.user is None else found[self.user]
        batch.keys = None if self.key is None else found[self.key]
        batch.texts = {name: found[name] for name in self.texts}
        return batch

    def __post_init__(self) -> None:
        if self.time_unit not in TIME_UNITS:
            raise ConfigError(f"must be one of {list(TIME_UNITS)}", "stream.time_unit", got=self.time_unit)


def _written(place: FieldPath | EnvelopeField) -> str:
    return place.column if isinstance(place, FieldPath) else place.text


def batch_from_cells(
    schema: Schema,
    columns: Mapping[str, NDArray[Any] | Sequence[Any]],
    positions: NDArray[np.int64] | None = None,
    roles: Mapping[str, Role] | None = None,
    read_already: Collection[str] = (),
) -> Batch:
    """Make a batch of plain columns or lists (n,), one for each field of a schema.

    Positions are numbers of rows, and roles those of `Schema.roles`, unless they are given. Labels that are
    `read_already` are taken as they are. What is wrong in a row is told of the first of time, features and labels.
    """
    n, roles, labels = len(columns[schema.time]), roles or schema.roles(), schema.labels
    positions = np.arange(n) if positions is None else positions
    found: dict[str, NDArray[Any]] = {}
    wrong: list[tuple[str, str]] = []
    why = np.full(n, -1)
    values, places = np.empty((n, len(schema.features))), {name: k for k, name in enumerate(schema.features)}
    for name in reversed((schema.time, *schema.features, *labels)):
        cells, odd = (as_array(columns[name]), {}) if name in read_already else read(columns[name], roles[name])
        if name in places:  # while they are in the processor's caches
            values[:, places[name]] = cells
        else:
            found[name] = cells
        for reason in set(odd.values()):
            why[[i for i, each in odd.items() if each == reason]] = len(wrong)
            wrong.append((reason, name))
    batch = Batch(found[schema.time], values, positions)
    good = why < 0
    if labels:
        columns_of = [found[name] for name in labels]
        if wrong:
            columns_of = [column[good] for column in columns_of]
            batch = batch.pick(good)
        schema.labeled(batch, columns_of)
    elif wrong:
        batch = batch.pick(good)
    if wrong:
        batch.rejections = _told(wrong, why[~good], positions[~good])
    return batch


def _told(wrong: Sequence[tuple[str, str]], why: NDArray[np.int64], positions: NDArray[np.int64]) -> list[Rejection]:
    """Return the rejections of rows, each by what is `wrong` and its position, equal ones as one."""
    places = (positions - positions.min()) * len(wrong) + why
    _, firsts, counts = np.unique(places, return_index=True, return_counts=True)
    return tallied(
        Rejection(wrong[why[first]][0], int(positions[first]), wrong[why[first]][1], count)
        for first, count in sorted(zip(firsts.tolist(), counts.tolist(), strict=True))
    )


def bad_label(schema: Schema, name: str) -> str:
    """Return the reason for which a label of this name is rejected."""
    return "not_a_text" if name in schema.texts else "bad_user" if name == schema.user else "unknown_key"


def merge(first: Batch, second: Batch) -> Batch:
    """Join two batches of one poll, in order of position."""
    positions = np.concatenate([first.positions, second.positions])
    order = np.argsort(positions, kind="stable")
    return Batch(
        np.concatenate([first.times_ms, second.times_ms])[order],
        np.concatenate([first.values, second.values])[order],
        positions[order],
        tallied(first.rejections + second.rejections),
        None if first.users is None or second.users is None else np.concatenate([first.users, second.users])[order],
        None if first.keys is None or second.keys is None else np.concatenate([first.keys, second.keys])[order],
        {name: np.concatenate([column, second.texts[name]])[order] for name, column in first.texts.items()},
    )


def concatenated(parts: Sequence[Batch]) -> Batch:
    """Join one or more batches, in order."""
    if len(parts) == 1:
        return parts[0]
    users = [part.users for part in parts if part.users is not None]
    keys = [part.keys for part in parts if part.keys is not None]
    return Batch(
        np.concatenate([part.times_ms for part in parts]),
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.positions for part in parts]),
        tallied(rejection for part in parts for rejection in part.rejections),
        np.concatenate(users) if users else None,
        np.concatenate(keys) if keys else None,
        {name: np.concatenate([part.texts[name] for part in parts]) for name in parts[0].texts},
    )
