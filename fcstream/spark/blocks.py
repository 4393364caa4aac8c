"""Blocks of records as bytes, in which records travel from tasks to the state of their window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..formats.batch import Batch
from ..formats.plain_columns import as_objects
from ..stream.admission import Admitted


class _PackedRecords(msgspec.Struct, array_like=True, frozen=True):
    """A block of records of one window and one partition."""

    partition: str
    offsets: bytes
    ordinals: bytes
    panes: bytes
    points: bytes
    times: bytes = b""
    users: list[bytes] = []
    texts: dict[str, list[str]] = {}


@dataclass(frozen=True, slots=True)
class WindowRecords:
    """The records of a window, each once, in the order of their identities: partition, offset, position in the message.

    Attributes
    ----------
    panes : int64 (n,)
    points : float64 (n, d)
        Lattice points.
    times_ms : int64 (n,), users : array of str (n,)
        Empty unless the unit is ``user``.
    texts : dict of str to array of str (n,)
        By feature.
    """

    panes: NDArray[np.int64]
    points: NDArray[np.float64]
    times_ms: NDArray[np.int64]
    users: NDArray[np.object_]
    texts: dict[str, NDArray[np.object_]]


def cut(
    partition: str,
    batch: Batch,
    found: Admitted,
    codes: NDArray[np.int64],
    answered: Sequence[int],
    texts: Sequence[str] = (),
) -> Iterator[tuple[int, int, bytes]]:
    """Pack admitted records by (key, window); a record is packed once for each window in which it lies.

    Parameters
    ----------
    partition : str
    batch : Batch
    found : Admitted
    codes : int64 (n,)
        Number of each record's key.
    answered : sequence of int
        For every key the first window without a release; earlier ones get nothing.
    texts : sequence of str
        Features of texts to pack.
    """
    ordinals = _ordinals(batch.positions)
    first = np.maximum(found.first, np.array(answered, np.int64)[codes])
    rows = np.flatnonzero(found.fine & (first <= found.last))
    spans = (found.last - first + 1)[rows]
    starts = np.cumsum(spans) - spans
    windows = np.repeat(first[rows] - starts, spans) + np.arange(int(spans.sum()))
    rows = np.repeat(rows, spans)
    parts = codes[rows]
    order = np.lexsort((windows, parts))
    rows, windows, parts = rows[order], windows[order], parts[order]
    changes = np.flatnonzero((np.diff(windows) != 0) | (np.diff(parts) != 0)) + 1
    for some in np.split(np.arange(len(rows)), changes):
        if len(some):
            here = rows[some]
            yield int(parts[some[0]]), int(windows[some[0]]), _pack(partition, batch, found, ordinals, texts, here)


def gather(packed: Sequence[bytes], dimension: int) -> WindowRecords:
    """Unpack and join the records of some blocks of one window; a record that is there twice counts once."""
    blocks = [msgspec.msgpack.decode(each, type=_PackedRecords) for each in packed]
    names = sorted({block.partition for block in blocks})
    offsets = _join(blocks, "offsets", np.int64)
    ordinals = _join(blocks, "ordinals", np.int32)
    sizes = [len(block.offsets) // 8 for block in blocks]
    partitions = np.repeat(np.array([names.index(block.partition) for block in blocks], np.int64), sizes)
    order = np.lexsort((ordinals, offsets, partitions))
    same = np.ones(len(order), np.bool_)
    for column in (partitions, offsets, ordinals):
        ordered = column[order]
        same[1:] &= ordered[1:] == ordered[:-1]
    same[:1] = False
    order = order[~same]
    times = _join(blocks, "times", np.int64)
    users: NDArray[np.object_] = as_objects(
        [name.decode("utf-8", "surrogatepass") for block in blocks for name in block.users]
    )
    panes = _join(blocks, "panes", np.int64)
    texts = {
        name: as_objects([text for block in blocks for text in block.texts[name]])[order]
        for name in (blocks[0].texts if blocks else ())
    }
    return WindowRecords(
        panes[order],
        _join(blocks, "points", np.float64).reshape(len(panes), dimension)[order],
        times[order] if len(times) else times,
        users[order] if len(users) else users,
        texts,
    )


def _pack(
    partition: str,
    batch: Batch,
    found: Admitted,
    ordinals: NDArray[np.int32],
    texts: Sequence[str],
    rows: NDArray[Any],
) -> bytes:
    block = _PackedRecords(
        partition,
        batch.positions[rows].tobytes(),
        ordinals[rows].tobytes(),
        found.panes[rows].tobytes(),
        found.points[rows].tobytes(),
        b"" if batch.users is None else batch.times_ms[rows].tobytes(),
        [] if batch.users is None else [name.encode("utf-8", "surrogatepass") for name in batch.users[rows]],
        {name: batch.texts[name][rows].tolist() for name in texts},
    )
    return msgspec.msgpack.encode(block)


def _ordinals(positions: NDArray[np.int64]) -> NDArray[np.int32]:
    """Number each record within its message, because a message may hold many."""
    n = len(positions)
    begins = np.ones(n, np.bool_)
    begins[1:] = positions[1:] != positions[:-1]
    starts = np.flatnonzero(begins)
    return (np.arange(n) - np.repeat(starts, np.diff(np.append(starts, n)))).astype(np.int32)


def _join(blocks: Sequence[_PackedRecords], name: str, kind: Any) -> NDArray[Any]:
    return np.frombuffer(b"".join(getattr(block, name) for block in blocks), kind)


def gather_positions(packed: bytes) -> list[int]:
    """Unpack the positions of a block's records."""
    block = msgspec.msgpack.decode(packed, type=_PackedRecords)
    return [int(at) for at in np.frombuffer(block.offsets, np.int64)]


def block_size(packed: bytes) -> int:
    """Count the records of a block."""
    return len(msgspec.msgpack.decode(packed, type=_PackedRecords).offsets) // 8
