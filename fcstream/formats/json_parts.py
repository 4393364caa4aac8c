"""Reads JSON texts in which an element of a list is no JSON: it is left out alone, and the others are read.

Where an element ends say the brackets and commas outside of quotation marks, whatever else it holds. So only an element
whose own brackets or quotation marks do not match decides about others.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .bounds import JSON_DEPTH, LIST_ELEMENTS, READ_AT_ONCE, BeyondBounds
from .paths import FieldPath

_KEY = re.compile(rb'\s*+("(?:[^"\\]++|\\.)*+")\s*+:\s*+', re.DOTALL)
_STEPS = np.zeros(256, np.int8)
_STEPS[list(b"[{")], _STEPS[list(b"]}")] = 1, -1
_IS_MARK = np.isin(np.arange(256), list(b"[]{},"))
_KEY_BYTES = 12
"""Most bytes that a character of a key takes."""
_PIECE = 2**16
"""Bytes of a text whose brackets are looked for together."""


class Broken:
    """Stands for an element that is no JSON; no check accepts it."""


BROKEN = Broken()


def is_deep(line: bytes) -> bool:
    """Return whether a JSON text has more than `JSON_DEPTH` levels; of any other text something."""
    if line.count(b"[") + line.count(b"{") <= JSON_DEPTH:
        return False
    return any(depths.max(initial=0) > JSON_DEPTH for _, _, depths in _marks(line))


def parse_json(line: bytes) -> Any:
    """Read a JSON text, in which numbers may be too large and texts may be no Unicode.

    Raises
    ------
    ValueError, RecursionError
    """
    if is_deep(line):
        raise ValueError
    text = line.decode("utf-8", "surrogateescape")
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError:  # a whole number of more digits than Python reads
        return json.loads(text, parse_int=_int_or_inf)


def parse_elements(line: bytes, path: FieldPath, most: int) -> Any:
    """Read a text with a list at a path, of which each element that is no JSON becomes `BROKEN`.

    Parameters
    ----------
    most : int
        Of a longer list one element more is read.

    Raises
    ------
    ValueError, RecursionError
        There is no list at that path that ends, or what is around it is no JSON.

    Source
    ------
    Specification 8.10; ours.
    """
    outline = _Outline.of(line, path)
    start = outline.find(line, path)
    spans, end = outline.parts(line, start, b"[")
    message = parse_json(line[: start + 1] + line[end:])
    path.find(message).extend(_element(line[a:b]) for a, b in islice(spans, most + 1))
    return message


def check_list(line: bytes, path: FieldPath) -> None:
    """Look for a list at a path of a text, of which each element may be no JSON.

    Raises
    ------
    ValueError, RecursionError
        There is no list at that path that ends, or what is around it is no JSON, or it is beyond a bound.
    """
    outline = _Outline.of(line, path)
    start = outline.find(line, path)
    _, end = outline.commas(line, start, b"[")
    _around(line, start, end)


def _around(line: bytes, start: int, end: int) -> tuple[bytes, bytes]:
    """Return what is around a list, which is JSON."""
    head, tail = line[: start + 1], line[end:]
    if len(head) + len(tail) > READ_AT_ONCE:
        raise BeyondBounds
    parse_json(head + tail)
    return head, tail


def slices(line: bytes, path: FieldPath) -> Iterator[bytes]:
    """Return a text with a list at a path as several texts, which hold a part of the list each, of about
    `READ_AT_ONCE` bytes, and all that is around it.

    Raises
    ------
    BeyondBounds
        Too much is around the list, or it has too many elements.
    ValueError, RecursionError
        See `check_list`.
    """
    outline = _Outline.of(line, path)
    start = outline.find(line, path)
    cuts, end = outline.commas(line, start, b"[")
    head, tail = _around(line, start, end)
    return _slices(line, head, tail, cuts, end)


def _slices(line: bytes, head: bytes, tail: bytes, cuts: NDArray[np.int32], end: int) -> Iterator[bytes]:
    begin, k = len(head), 0
    while end - begin > READ_AT_ONCE and k < len(cuts):
        k = max(k, int(np.searchsorted(cuts, begin + READ_AT_ONCE)) - 1)
        cut = int(cuts[k])
        last = int(cuts[k - 1]) + 1 if k else begin
        # an element of nothing would not be seen before a closing bracket
        yield head + line[begin:cut] + (tail if line[max(begin, last) : cut].strip() else b"!" + tail)
        begin, k = cut + 1, k + 1
    yield head + line[begin:end] + tail


def split_list(line: bytes) -> list[bytes]:
    """Return the elements of a text that is a list, not all of which need be JSON.

    Raises
    ------
    ValueError
        It is no list that ends.
    """
    spans, end = _Outline.of(line, _WHOLE).parts(line, _blank(line, 0), b"[")
    if line[end + 1 :].strip():
        raise ValueError
    return [line[a:b] for a, b in spans]


_WHOLE = FieldPath(())


def _marks(line: bytes) -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint8], NDArray[np.int64]]]:
    """Yield where brackets and commas stand outside of quotation marks, which they are and the depth after each, of a
    piece of a text after the other."""
    depth, is_inside, is_escaped = 0, 0, False
    for start in range(0, len(line), _PIECE):
        piece = line[start : start + _PIECE]
        if is_escaped:
            piece = b"_" + piece[1:]
        is_escaped = False
        if b"\\" in piece:
            piece = piece.replace(b"\\\\", b"__")
            is_escaped = piece.endswith(b"\\")
            piece = piece.replace(b'\\"', b"__")
        codes = np.frombuffer(piece, np.uint8)
        inside = np.cumsum(codes == ord('"'), dtype=np.uint8) + np.uint8(is_inside)  # odd inside
        is_inside = int(inside[-1]) & 1
        at = np.flatnonzero(_IS_MARK[codes] & (inside & 1 == 0))
        kinds = codes[at]
        depths = depth + np.cumsum(_STEPS[kinds], dtype=np.int64)
        depth = int(depths[-1]) if len(depths) else depth
        yield at + start, kinds, depths


class _Outline(NamedTuple):
    """The brackets and commas of a text that stand outside of quotation marks, and the depth after each; those inside
    of the elements of a list at a path are left out."""

    at: NDArray[np.int32]
    kinds: NDArray[np.uint8]
    depths: NDArray[np.int32]

    @classmethod
    def of(cls, line: bytes, path: FieldPath) -> _Outline:
        """Find the marks of a text.

        Raises
        ------
        BeyondBounds
            They are more than `LIST_ELEMENTS`.
        """
        deepest, count = len(path.steps) + 1, 0
        found = []
        for at, kinds, depths in _marks(line):
            kept = np.maximum(depths, depths - _STEPS[kinds]) <= deepest
            found.append((at[kept].astype(np.int32), kinds[kept], depths[kept].astype(np.int32)))
            count += len(found[-1][0])
            if count > LIST_ELEMENTS:
                raise BeyondBounds
        if not found:
            raise ValueError
        return cls(*map(np.concatenate, zip(*found, strict=True)))

    def find(self, line: bytes, path: FieldPath) -> int:
        """Return where what stands at a path begins."""
        start = _blank(line, 0)
        for step in path.steps:
            start = self.member(line, start, step)
        return start

    def commas(self, line: bytes, start: int, opening: bytes) -> tuple[NDArray[np.int32], int]:
        """Return the commas between the parts of a list or an object that begins at `start`, and where it ends."""
        first = int(np.searchsorted(self.at, start))
        if line[start : start + 1] != opening or first == len(self.at) or self.at[first] != start:
            raise ValueError
        is_end = self.depths[first + 1 :] < self.depths[first]
        last = first + 1 + int(is_end.argmax()) if len(is_end) else first
        if last == first or not is_end[last - first - 1]:
            raise ValueError
        inner = slice(first + 1, last)
        commas = self.at[inner][(self.kinds[inner] == ord(",")) & (self.depths[inner] == self.depths[first])]
        return commas, int(self.at[last])

    def parts(self, line: bytes, start: int, opening: bytes) -> tuple[Sequence[tuple[int, int]], int]:
        """Return where the parts of a list or an object stand that begins at `start`, and where it ends."""
        commas, end = self.commas(line, start, opening)
        spans = _Spans(np.concatenate([[start], commas]), np.concatenate([commas, [end]]))
        if not line[slice(*spans[-1])].strip():  # nothing, or a comma behind the last one
            spans = _Spans(spans.befores[:-1], spans.ends[:-1])
        return spans, end

    def member(self, line: bytes, start: int, step: str | int) -> int:
        """Return where a field of an object, or an element of a list, begins."""
        spans, _ = self.parts(line, start, b"[" if isinstance(step, int) else b"{")
        if isinstance(step, int):
            if step >= len(spans):
                raise ValueError
            return _blank(line, spans[step][0])
        for begin, end in reversed(spans):  # the last of several counts, as everywhere
            key = _KEY.match(line, begin, end)
            if key is not None and len(key[1]) <= _KEY_BYTES * len(step) + 2 and parse_json(key[1]) == step:
                return key.end()
        raise ValueError


class _Spans(Sequence[tuple[int, int]]):
    """Where the parts of a list or an object begin and end, by what stands before each and behind it."""

    def __init__(self, befores: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        self.befores, self.ends = befores, ends

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, i: int) -> tuple[int, int]:  # type: ignore[override]
        return int(self.befores[i]) + 1, int(self.ends[i])


def _blank(line: bytes, start: int) -> int:
    """Return where the next character stands that is not blank."""
    return len(line) - len(line[start:].lstrip())


def _element(text: bytes) -> Any:
    try:
        return parse_json(text)
    except (ValueError, RecursionError):
        return BROKEN


def _int_or_inf(digits: str) -> float:
    return int(digits) if len(digits.removeprefix("-")) <= sys.get_int_max_str_digits() else math.inf
