"""Where records come from: the protocol, and sources made of Python objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Protocol, runtime_checkable

from ..formats.batch import Batch, Rejection, Schema, batch_from_rows


class Source(Protocol):
    """A stream of records, read once from front to back."""

    def poll(self, max_records: int) -> Batch | None:
        """The next records, at most about `max_records`; an empty batch if none is there yet, None at the end."""

    def close(self) -> None:
        """Let go of what is held. Idempotent."""


@runtime_checkable
class MeasuredSource(Source, Protocol):
    """A source that knows how far it has been read."""

    def part_read(self) -> float | None:
        """Between 0 and 1; None if its size is not known."""


class IterableSource:
    """Records from any iterable of mappings; their identity is their place in it.

    Parameters
    ----------
    rows : iterable of mapping
        Field name -> value; anything else is rejected as ``broken_record``.
    schema : Schema
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]], schema: Schema) -> None:
        self._rows = iter(rows)
        self._schema = schema
        self._next = 0

    def poll(self, max_records: int) -> Batch | None:
        rows = list(islice(self._rows, max_records))
        if not rows:
            return None
        positions = range(self._next, self._next + len(rows))
        self._next += len(rows)
        checked: list[Mapping[str, Any] | Rejection] = [
            row if isinstance(row, Mapping) else Rejection("broken_record", position)
            for row, position in zip(rows, positions, strict=True)
        ]
        return batch_from_rows(checked, positions, self._schema)

    def close(self) -> None:
        pass
