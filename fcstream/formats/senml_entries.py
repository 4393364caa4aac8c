"""SenML packs as publishers write them, many read together: base values stand in the first entry alone, and there are
no base value and no base sum.

A pack of another shape, or with an entry that is not as usual, is left to `fcstream.formats.senml`, with the same
result if both can read it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain, repeat
from operator import add, attrgetter, itemgetter
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from .batch import LONGEST_LABEL, Batch, Schema
from .bounds import SENML_BYTES
from .cells import floats_of
from .envelopes import Envelope
from .fields import RecordReader
from .parsing import decoded
from .paths import FieldPath
from .typed import Untyped

VERSION = 10
RELATIVE_BELOW = 2**28
CODES = {"bver": -1, "bn": -2, "bt": -3, "bu": -4, "bv": -5, "bs": -6} | {
    label: code for code, label in enumerate(("n", "u", "v", "vs", "vb", "s", "t", "ut", "vd"))
}
"""Labels as packs in CBOR write them."""
VALUES = ("v", "vs", "vb", "vd")
"""Labels of which a record has one at most."""
_NUMBERS, _OTHERS, _NAMES = ("v", "s"), ("u", "vs", "vb", "vd"), ("n", "bn", "u", "vs", "vd")


class UsualPacks:
    """Reads messages that hold one pack each; a subclass for each encoding.

    Parameters
    ----------
    schema : Schema
    most : int
        Most entries of a pack; a longer one is not as usual.

    Raises
    ------
    Untyped
        The schema asks for what entries of this kind do not have as it is.
    """

    def __init__(self, schema: Schema, most: int) -> None:
        self._reader = RecordReader(schema)
        self._most = most
        self._labels: dict[str, str] = {}
        for name in (schema.time, *schema.features, *schema.labels):
            place = schema.place(name)
            if not isinstance(place, FieldPath):
                continue  # it comes with the message
            label = place.steps[0] if len(place.steps) == 1 else None
            allowed: Sequence[str] = _NAMES if name in schema.labels else (*_NUMBERS, *_OTHERS)
            if name == schema.time:
                allowed = ("t",) if schema.time_unit in ("ms", "s") else ()
            if not isinstance(label, str) or label not in allowed:
                raise Untyped
            self._labels[name] = label

    def read(
        self, lines: Sequence[bytes], first_position: int, envelopes: Sequence[Envelope] = ()
    ) -> tuple[Batch, list[int]]:
        """Read messages, the first of which has `first_position`.

        Returns
        -------
        batch : Batch
            The records of packs that are as usual.
        others : list of int
            The numbers of the other messages.
        """
        packs, numbers = self._packs(lines)
        firsts = [pack[0] for pack in packs]
        for i in self._bare(firsts):
            packs[i] = packs[i][1:]
        counts = list(map(len, packs))
        owners = np.repeat(numbers, counts)
        cells = {name: self._column(label, packs, firsts, counts) for name, label in self._labels.items()}
        some = [envelopes[i] for i in owners.tolist()] if envelopes else ()
        batch, odd_rows = self._reader.from_cells(cells, {}, (), first_position + owners, some)
        if odd_rows:
            odd = np.unique(owners[odd_rows])
            batch = batch.pick(~np.isin(np.delete(owners, odd_rows), odd))
            numbers = np.setdiff1d(numbers, odd)
        if len(numbers) == len(lines):
            return batch, []
        return batch, np.delete(np.arange(len(lines)), numbers).tolist()

    def _packs(self, lines: Sequence[bytes]) -> tuple[list[list[Any]], NDArray[np.int64]]:
        """Return the packs that are as usual, as far as their base values tell, and the numbers of their messages."""
        raise NotImplementedError

    def _bare(self, firsts: Sequence[Any]) -> list[int]:
        """Return the numbers of entries that hold nothing but base values, so that they are no records."""
        raise NotImplementedError

    def _column(
        self, label: str, packs: Sequence[list[Any]], firsts: Sequence[Any], counts: Sequence[int]
    ) -> list[Any] | NDArray[np.float64]:
        """Return one label of all resolved records; None or NaN where it is missing or odd."""
        raise NotImplementedError


class _AbsentText(str):
    """An empty text that is told from one in a pack by what it is."""

    __slots__ = ()


_NO_NAME, _NO_NUMBER, _NO_TIME = _AbsentText(), float("nan"), float("0")


class SenmlEntry(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """An entry without base value and base sum."""

    n: str = _NO_NAME
    t: float = _NO_TIME
    v: float = _NO_NUMBER
    u: str | msgspec.UnsetType = msgspec.UNSET
    vs: str | msgspec.UnsetType = msgspec.UNSET
    vb: bool | msgspec.UnsetType = msgspec.UNSET
    vd: str | msgspec.UnsetType = msgspec.UNSET
    s: float = _NO_NUMBER
    ut: float = _NO_NUMBER
    bn: str = _NO_NAME
    bt: float = _NO_TIME
    bu: str | msgspec.UnsetType = msgspec.UNSET
    bver: float = _NO_NUMBER

    @property
    def has_base(self) -> bool:
        """Return whether it sets a base value."""
        return not (
            self.bn is _NO_NAME and self.bt is _NO_TIME and self.bu is msgspec.UNSET and self.bver is _NO_NUMBER
        )

    @property
    def has_two_values(self) -> bool:
        others = (self.vs is not msgspec.UNSET) + (self.vb is not msgspec.UNSET) + (self.vd is not msgspec.UNSET)
        return (self.v is not _NO_NUMBER) + others > 1

    @property
    def only_has_base(self) -> bool:
        """Return whether it sets base values and nothing else."""
        is_empty = self.n is _NO_NAME and self.t is _NO_TIME and self.v is self.s is self.ut is _NO_NUMBER
        return is_empty and self.u is self.vs is self.vb is self.vd is msgspec.UNSET and self.has_base


_MORE_VALUES = re.compile(rb'"v[sbd]"|\\')
"""What every line has that holds an entry with two values, spelled out or escaped."""
_PACK = msgspec.json.Decoder(list[SenmlEntry]).decode


class UsualJsonPacks(UsualPacks):
    """Reads packs in JSON."""

    def _packs(self, lines: Sequence[bytes]) -> tuple[list[list[SenmlEntry]], NDArray[np.int64]]:
        if max(map(len, lines), default=0) > SENML_BYTES:
            lines = [line if len(line) <= SENML_BYTES else b"" for line in lines]
        packs, fit = decoded(partial(map, _PACK), lines)
        if len(fit) < len(lines):
            lines = [lines[i] for i in fit.tolist()]
        counts = list(map(len, packs))
        odd = {i for i, count in enumerate(counts) if not 0 < count <= self._most}
        # Behind the first closing brace no text begins with b, as base labels do, or they are looked for.
        odd |= {
            i
            for i, (line, count) in enumerate(zip(lines, counts, strict=True))
            if count > 1 and (line.find(b'"b', line.find(b"}")) >= 0 or b"\\" in line) and _has_later_base(packs[i])
        }
        odd |= {
            i
            for i, pack in enumerate(packs)
            for first in pack[:1]
            if first.bver > VERSION
            or len(first.bn) > LONGEST_LABEL
            or (first.bu is not msgspec.UNSET and len(first.bu) > LONGEST_LABEL)
        }
        odd |= {
            i for i, line in enumerate(lines) if _MORE_VALUES.search(line) and any(e.has_two_values for e in packs[i])
        }
        if odd:
            packs, fit = [pack for i, pack in enumerate(packs) if i not in odd], np.delete(fit, list(odd))
        return packs, fit

    def _bare(self, firsts: Sequence[SenmlEntry]) -> list[int]:
        return [i for i, first in enumerate(firsts) if first.n is _NO_NAME and first.only_has_base]

    def _column(
        self,
        label: str,
        packs: Sequence[list[SenmlEntry]],
        firsts: Sequence[SenmlEntry],
        counts: Sequence[int],
    ) -> list[Any] | NDArray[np.float64]:
        if label == "n":
            return [first.bn + entry.n for first, pack in zip(firsts, packs, strict=True) for entry in pack]
        if label == "bn":
            return _spread([first.bn for first in firsts], counts)
        if label in _OTHERS:
            found = list(map(attrgetter(label), chain.from_iterable(packs)))
            if label == "u":
                units = _spread([first.bu for first in firsts], counts)
                found = [unit if value is msgspec.UNSET else value for value, unit in zip(found, units, strict=True)]
            return [None if value is msgspec.UNSET else value for value in found]
        values = np.fromiter(map(attrgetter(label), chain.from_iterable(packs)), np.float64, sum(counts))
        return values if label != "t" else _times(values, [first.bt for first in firsts], counts)


def _has_later_base(pack: list[SenmlEntry]) -> bool:
    return any(entry.has_base for entry in pack[1:])


_PLAIN_CODES = frozenset(code for code in CODES.values() if code >= 0)
_VALUE_CODES = frozenset(map(CODES.__getitem__, VALUES))
_BASE_CODES = frozenset(CODES[label] for label in ("bver", "bn", "bt", "bu"))
_FIRST_CODES = _PLAIN_CODES | _BASE_CODES


class UsualCborPacks(UsualPacks):
    """Reads packs in CBOR with integers as labels.

    Parameters
    ----------
    schema, most
        See `UsualPacks`.
    parse : callable
        Returns the one data item of a message; raises ValueError.
    longest : int
        Most bytes of a message.
    """

    def __init__(self, schema: Schema, most: int, parse: Callable[[bytes], Any], longest: int) -> None:
        super().__init__(schema, most)
        self._parse, self._longest = parse, longest

    def _packs(self, lines: Sequence[bytes]) -> tuple[list[list[dict[int, Any]]], NDArray[np.int64]]:
        packs: list[list[dict[int, Any]]] = []
        numbers: list[int] = []
        for i, line in enumerate(lines):
            try:
                pack = self._parse(line) if len(line) <= self._longest else None
            except ValueError:
                continue
            if type(pack) is list and 0 < len(pack) <= self._most:
                packs.append(pack)
                numbers.append(i)
        if not _have_codes(packs):  # somewhere
            kept = [i for i, pack in enumerate(packs) if _have_codes([pack])]
            packs, numbers = [packs[i] for i in kept], [numbers[i] for i in kept]
        return packs, np.array(numbers, np.int64)

    def _bare(self, firsts: Sequence[dict[int, Any]]) -> list[int]:
        return [i for i, first in enumerate(firsts) if first and _BASE_CODES.issuperset(first)]

    def _column(
        self,
        label: str,
        packs: Sequence[list[dict[int, Any]]],
        firsts: Sequence[dict[int, Any]],
        counts: Sequence[int],
    ) -> list[Any] | NDArray[np.float64]:
        if label in ("n", "bn"):
            bases = _spread([first.get(CODES["bn"], "") for first in firsts], counts)
            if label == "bn":
                return bases
            names = _values(packs, label, "")
            if set(map(type, names)) <= {str}:
                return list(map(add, bases, names))
            return [base + name if type(name) is str else None for base, name in zip(bases, names, strict=True)]
        if label == "u":
            units = _spread([first.get(CODES["bu"]) for first in firsts], counts)
            entries = chain.from_iterable(packs)
            return [entry.get(CODES["u"], unit) for entry, unit in zip(entries, units, strict=True)]
        if label in _OTHERS:
            return _values(packs, label, None)
        if label != "t":
            return floats_of(_values(packs, label, None))
        bases = [float(first.get(CODES["bt"], 0.0)) for first in firsts]
        return _times(floats_of(_values(packs, "t", 0.0)), bases, counts)


def _values(packs: Sequence[list[dict[int, Any]]], label: str, otherwise: Any) -> list[Any]:
    """Return one label of all entries, as it stands there."""
    code = CODES[label]
    try:
        return list(map(itemgetter(code), chain.from_iterable(packs)))
    except KeyError:
        return [entry.get(code, otherwise) for entry in chain.from_iterable(packs)]


def _have_codes(packs: Sequence[list[Any]]) -> bool:
    """Return whether entries are maps with integers as labels, which set base values in the first one of a pack alone,
    and these can be used."""
    if not set(map(type, chain.from_iterable(packs))) <= {dict}:
        return False
    if not set(map(type, chain.from_iterable(chain.from_iterable(packs)))) <= {int}:  # True and 1.0 are equal to 1
        return False
    firsts, others = [pack[0] for pack in packs], chain.from_iterable([pack[1:] for pack in packs])
    found, later = frozenset(chain.from_iterable(firsts)), set[int]().union(*others)
    if not (_FIRST_CODES.issuperset(found) and _PLAIN_CODES.issuperset(later)):
        return False
    if len(_VALUE_CODES & (found | later)) > 1:
        entries = chain.from_iterable(packs)
        if any(len(_VALUE_CODES.intersection(entry)) > 1 for entry in entries):
            return False
    return all(map(_is_usual, firsts))


def _is_usual(first: dict[int, Any]) -> bool:
    """Return whether base values can be used."""
    for label in ("bn", "bu"):
        text = first.get(CODES[label], "")
        if type(text) is not str or len(text) > LONGEST_LABEL:
            return False
    version, time = first.get(CODES["bver"], 0), first.get(CODES["bt"], 0)
    return (
        type(version) is int
        and version <= VERSION
        and (type(time) is float or (type(time) is int and abs(time) < 2**62))
    )


def _spread(values: Iterable[Any], counts: Sequence[int]) -> list[Any]:
    return list(chain.from_iterable(map(repeat, values, counts)))


def _times(values: NDArray[np.float64], bases: Sequence[float], counts: Sequence[int]) -> NDArray[np.float64]:
    """Add base times; NaN for a time that is relative to when the pack is read."""
    times = values + np.repeat(np.array(bases, np.float64), counts)
    times[times < RELATIVE_BELOW] = math.nan
    return times
