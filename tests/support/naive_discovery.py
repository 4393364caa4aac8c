"""Streams that find their keys, computed record by record, without noise: a slow twin of `DiscoveringEngine`."""

from collections import Counter
from typing import NamedTuple


class Arrival(NamedTuple):
    """A record: when it was measured, its key, and when it arrived (None for files)."""

    time_ms: int
    key: str
    arrival_ms: int | None = None


class Found(NamedTuple):
    """What a stream releases.

    Attributes
    ----------
    counts : dict
        Of each key and opening of a window, the number of records.
    searches : dict
        Of each opening of a period that is searched, the numbers of the texts that are told.
    undiscovered : int
        Number of records in time whose key is not answered in their period.
    """

    counts: dict
    searches: dict
    undiscovered: int


def discovered(records, *, length_ms, every_ms, windows, first=(), least=2, lateness_ms=0, ahead_ms=0, begin=0):
    """Answer a stream that starts at 0, whose keys have at least `least` records in the period before.

    `begin` is the first window that is released; earlier records of its period count in the search.
    """

    def is_in_time(record):
        window = record.time_ms // length_ms
        if not 0 <= window < windows or record.time_ms // every_ms < begin * length_ms // every_ms:
            return False
        if record.arrival_ms is None:
            return True
        is_late = record.arrival_ms > (window + 1) * length_ms + lateness_ms
        return not is_late and record.time_ms <= record.arrival_ms + ahead_ms

    fine = [record for record in records if is_in_time(record)]
    periods, each = -(-windows * length_ms // every_ms), every_ms // length_ms
    keys, counts, searches, undiscovered = sorted(first), {}, {}, 0
    for period in range(begin * length_ms // every_ms, periods):
        mine = [record for record in fine if record.time_ms // every_ms == period]
        undiscovered += sum(record.key not in keys for record in mine)
        for window in range(max(begin, period * each), min(windows, (period + 1) * each)):
            for key in keys:
                counts[key, window * length_ms] = sum(
                    record.key == key and record.time_ms // length_ms == window for record in mine
                )
        if period < periods - 1:
            told = {key: number for key, number in Counter(r.key for r in mine).items() if number >= least}
            searches[period * every_ms] = told
            keys = sorted(told)
    return Found(counts, searches, undiscovered)
