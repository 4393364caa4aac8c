"""Rows that a function about an array leaves out: how many and why, for the caller alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from ..errors import UnusableRecords
from ..releases.base import Release
from .arguments import GivenRows


@dataclass(frozen=True, slots=True)
class ArrayRelease(Release):
    """A release about an array, which tells its caller what was left out.

    Attributes
    ----------
    left_out : dict of str to int
        Number of rows that were left out, by `reason <fcstream.formats.batch.MEANINGS>`: ``missing``, ``not_finite``,
        ``not_a_number``, ``out_of_range``, ... **Exact and private: do not publish it.** It is for the caller, who has
        the rows, and no part of the release: neither `as_dict` nor `to_bytes` has it.
    """

    left_out: dict[str, int] = field(default_factory=dict, compare=False, repr=False)

    def as_dict(self) -> dict[str, Any]:
        values = super(ArrayRelease, self).as_dict()
        del values["left_out"]
        return values


def count_left_out(
    rows: GivenRows,
    kept: int,
    *,
    beyond: str = "out_of_range",
    name: str = "points",
    may_be_none: bool = False,
) -> dict[str, int]:
    """Count the rows of an array that are left out, by reason.

    Parameters
    ----------
    rows : GivenRows
    kept : int
        How many of them are used: none of the odd ones.
    beyond : str
        The reason of those whose cells all have values.
    may_be_none : bool
        Whether all rows may be finite and left out: a public ball may well lie beside them.

    Raises
    ------
    UnusableRecords
        There are rows, and none can be used.

    Source
    ------
    Specification 13.2.
    """
    n, found = len(rows.cells), Counter(rows.odd.values())
    found[beyond] += n - kept - len(rows.odd)
    counts = {reason: number for reason, number in sorted(found.items()) if number}
    check_some(n, kept + (counts.get(beyond, 0) if may_be_none else 0), counts, name)
    return counts


def check_some(rows: int, kept: int, counts: dict[str, int], name: str) -> None:
    """Raise an error, before anything is charged, if none of some rows can be used.

    Raises
    ------
    UnusableRecords
    """
    if rows and not kept:
        why = ", ".join(f"{number} {reason}" for reason, number in counts.items())
        where = ", and `bounds`" if "out_of_range" in counts else ""
        raise UnusableRecords(
            f"must hold rows that can be used, none of {rows} can ({why})",
            name,
            counts,
            remedy=f"check them{where}; nothing was charged",
        )
