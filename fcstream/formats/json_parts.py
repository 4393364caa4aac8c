"""Reads JSON texts in which an element of a list is no JSON: it is left out alone, and the others are read.

Where an element ends say the brackets and commas outside of quotation marks, whatever else it holds. So only an element
whose own brackets or quotation marks do not match decides about others.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .bounds import JSON_DEPTH
from .paths import FieldPath

_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_KEY = re.compile(rb'\s*("(?:[^"\\]|\\.)*")\s*:\s*', re.DOTALL)
_STEPS = np.zeros(256, np.int64)
_STEPS[list(b"[{")], _STEPS[list(b"]}")] = 1, -1
_IS_MARK = np.isin(np.arange(256), list(b"[]{},"))


class Broken:
    """Stands for an element that is no JSON; no check accepts it."""


BROKEN = Broken()


def is_deep(line: bytes) -> bool:
    """Return whether a JSON text has more than `JSON_DEPTH` levels; of any other text something."""
    if line.count(b"[") + line.count(b"{") <= JSON_DEPTH:
        return False
    return bool(_Outline.of(line).depths.max(initial=0) > JSON_DEPTH)


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
    outline = _Outline.of(line)
    start = _blank(line, 0)
    for step in path.steps:
        start = outline.member(line, start, step)
    spans, end = outline.parts(line, start, b"[")
    message = parse_json(line[: start + 1] + line[end:])
    path.find(message).extend(_element(line[a:b]) for a, b in islice(spans, most + 1))
    return message


def split_list(line: bytes) -> list[bytes]:
    """Return the elements of a text that is a list, not all of which need be JSON.

    Raises
    ------
    ValueError
        It is no list that ends.
    """
    spans, end = _Outline.of(line).parts(line, _blank(line, 0), b"[")
    if line[end + 1 :].strip():
        raise ValueError
    return [line[a:b] for a, b in spans]


class _Outline(NamedTuple):
    """The brackets and commas of a text that stand outside of quotation marks, and the depth after each."""

    at: NDArray[np.int64]
    kinds: NDArray[np.uint8]
    depths: NDArray[np.int64]

    @classmethod
    def of(cls, line: bytes) -> _Outline:
        codes = np.frombuffer(_ESCAPED.sub(b"__", line) if b"\\" in line else line, np.uint8)
        is_outside = np.cumsum(codes == ord('"')) % 2 == 0
        at = np.flatnonzero(_IS_MARK[codes] & is_outside)
        return cls(at, codes[at], np.cumsum(_STEPS[codes[at]]))

    def parts(self, line: bytes, start: int, opening: bytes) -> tuple[Sequence[tuple[int, int]], int]:
        """Return where the parts of a list or an object stand that begins at `start`, and where it ends."""
        first = int(np.searchsorted(self.at, start))
        if line[start : start + 1] != opening or first == len(self.at) or self.at[first] != start:
            raise ValueError
        inside = self.depths[first + 1 :]
        ends = np.flatnonzero(inside < self.depths[first])
        if not len(ends):
            raise ValueError
        last = first + 1 + int(ends[0])
        inner = slice(first + 1, last)
        commas = self.at[inner][(self.kinds[inner] == ord(",")) & (self.depths[inner] == self.depths[first])].tolist()
        end = int(self.at[last])
        spans = list(zip([start + 1, *(comma + 1 for comma in commas)], [*commas, end], strict=True))
        if not line[slice(*spans[-1])].strip():  # nothing, or a comma behind the last one
            spans.pop()
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
            if key is not None and parse_json(key[1]) == step:
                return key.end()
        raise ValueError


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
