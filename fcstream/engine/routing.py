"""Gives the records of a batch to the engines of their keys; what is the same for all keys is decided once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..config import Job
from ..formats.batch import Batch, Rejection
from ..stream.admission import Admitted, admit
from ..stream.selection import with_codes
from .engine import Engine


class RoutedRecords(NamedTuple):
    """Records of a batch, and what becomes of them.

    Attributes
    ----------
    batch : Batch
        Records of keys that are answered.
    arrivals : int64 (n,) or None
    codes : int64 (n,)
        Number of each record's key.
    admitted : Admitted or None
        The decision about records that the engines of their keys need not look at again; None if they are to decide.
    others : RoutedRecords or None
        Records of keys whose engines decide.
    """

    batch: Batch
    arrivals: NDArray[np.int64] | None
    codes: NDArray[np.int64]
    admitted: Admitted | None = None
    others: RoutedRecords | None = None

    def pick(self, rows: NDArray[np.bool_]) -> RoutedRecords:
        """Select some records, about which nothing was decided yet."""
        arrivals = None if self.arrivals is None else self.arrivals[rows]
        return RoutedRecords(self.batch.pick(rows), arrivals, self.codes[rows])


def route(
    job: Job,
    engines: Mapping[int, Engine],
    batch: Batch,
    arrivals: NDArray[np.int64] | None,
    codes: NDArray[np.int64],
    rejections: list[Rejection],
) -> RoutedRecords:
    """Decide which records may enter a window, and note the others as rejected.

    Where a record of a key is late, or its window has its release, the engine of that key decides about all records of
    that key in the batch.

    Parameters
    ----------
    job : Job
        Of the whole stream; all keys have its features and windows.
    engines : mapping of int to Engine
        By the number of the key.
    codes : int64 (n,)
        Number of each record's key; of records with another key a negative number.
    rejections : list of Rejection
        Gets those of the records that are decided about here.
    """
    is_known = codes >= 0
    if is_known.all():  # no column is copied; the batch's own rejections are noted already
        mine = RoutedRecords(replace(batch, rejections=[]), arrivals, codes)
    else:
        mine = RoutedRecords(batch, arrivals, codes).pick(is_known)
    if job.terms.unit == "user":
        return mine
    found = admit(job, mine.batch, mine.arrivals)
    there = np.bincount(mine.codes) > 0
    next_of = np.zeros(len(there), np.int64)
    next_of[there] = [engines[key].next_index for key in np.flatnonzero(there).tolist()]
    open_from = next_of[mine.codes]
    is_left = found.fine & ((found.last < open_from) | (found.first > np.maximum(found.covering, open_from)))
    if not is_left.any():
        rejections += found.rejections
        return mine._replace(admitted=found)
    is_left = np.isin(mine.codes, mine.codes[is_left])
    plain, others = mine.pick(~is_left), mine.pick(is_left)
    found = admit(job, plain.batch, plain.arrivals)
    rejections += found.rejections
    return plain._replace(admitted=found, others=others)


def distribute(job: Job, engines: Mapping[int, Engine], routed: RoutedRecords) -> None:
    """Give the engine of every key its records, in their order."""
    if routed.admitted is None:
        _by_key(routed.codes, lambda key, rows: _take(engines[key], routed, rows))
        return
    if routed.others is not None:
        distribute(job, engines, routed.others)
    found = routed.admitted
    points = with_codes(found.points, job.text_codes, routed.batch.texts)
    fine = np.flatnonzero(found.fine)
    if len(fine) == 0:
        return
    panes, codes = found.panes[fine], routed.codes[fine]
    least = int(panes.min())
    span = int(panes.max()) - least + 1
    places = codes * span + (panes - least)
    if places.max() < 2**16:
        places = places.astype(np.uint16)  # which NumPy sorts several times as fast
    order = fine[np.argsort(places, kind="stable")]
    codes, panes, points = routed.codes[order], found.panes[order], points[order]
    texts = {name: routed.batch.texts[name][order] for name in job.texts}
    starts = np.flatnonzero(np.r_[True, (codes[1:] != codes[:-1]) | (panes[1:] != panes[:-1])])
    ends = [*starts[1:].tolist(), len(order)]
    groups: dict[int, list[tuple[int, NDArray[np.float64], dict[str, NDArray[np.object_]]]]] = {}
    for key, pane, start, end in zip(
        codes[starts].tolist(), panes[starts].tolist(), starts.tolist(), ends, strict=True
    ):
        part = {name: column[start:end] for name, column in texts.items()} if texts else texts
        groups.setdefault(key, []).append((pane, points[start:end], part))
    for key, mine in groups.items():
        engines[key].take_counted(mine)


def _by_key(codes: NDArray[np.int64], hand: Callable[[int, NDArray[np.int64]], None]) -> None:
    order = np.argsort(codes, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        if len(rows):
            hand(int(codes[rows[0]]), rows)


def _take(engine: Engine, routed: RoutedRecords, rows: NDArray[np.int64]) -> None:
    engine.take(routed.batch.pick(rows), None if routed.arrivals is None else routed.arrivals[rows])
