"""Paths of fields: where in a message a value stands, as a configuration writes it.

``temp`` is a field, ``object.readings.temp`` a field inside others, ``acc[0]`` an element of a list, counted from 0,
and ``.`` the whole. A name that itself holds dots or brackets stands in double quotes: ``"data.temp"``. What begins
with an at sign is not in the body of a message but comes with it, see `fcstream.formats.envelopes`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigError
from .envelopes import EnvelopeField, parse_envelope_field

MAX_STEPS = 32
"""Most steps of a path."""
ABSENT = object()
"""Stands for what is not there, where null is something else."""
_STEP = re.compile(r'"((?:[^"\\]|\\.)+)"|\[(\d{1,6})\]|([^".\[\]\s][^".\[\]]*)')
_PLAIN = re.compile(r'[^".\[\]@\s][^".\[\]]*')


@dataclass(frozen=True, slots=True)
class FieldPath:
    """Where a value stands in a message: names of fields, and numbers of elements of lists.

    Attributes
    ----------
    steps : tuple of str or int
        Nothing for the whole message.
    """

    steps: tuple[str | int, ...]

    @classmethod
    def named(cls, name: str) -> FieldPath:
        """Return the path of a field by its literal name, whatever characters it holds."""
        return cls((name,))

    @property
    def column(self) -> str:
        """Return the name of its column in formats that have columns: ``at.s`` for ``at.s`` as for ``"at.s"``."""
        found = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.steps)
        return found.removeprefix(".")

    def find(self, value: Any, absent: Any = None) -> Any:
        """Return what stands there in a decoded message; `absent` if a field or an element on the way is not there, and
        None if something else stands in its stead."""
        for step in self.steps:
            if isinstance(step, int):
                if not isinstance(value, (list, tuple)):
                    return None
                value = value[step] if step < len(value) else absent
            else:
                value = value.get(step, absent) if isinstance(value, Mapping) else None
            if value is absent or value is None:
                break
        return value


def parse_path(text: str, key: str) -> FieldPath | EnvelopeField:
    """Read a path that a configuration gives as `key`.

    Raises
    ------
    ConfigError
    """
    if text.startswith("@"):
        return parse_envelope_field(text, key)
    if _PLAIN.fullmatch(text):
        return FieldPath((text,))
    if text == ".":
        return FieldPath(())
    steps: list[str | int] = []
    at = 0
    while at < len(text):
        if text[at] == "." and steps and at + 1 < len(text) and text[at + 1] != "[":
            at += 1
        elif steps and text[at] != "[":
            raise _odd(text, key)
        found = _STEP.match(text, at)
        if found is None or len(steps) == MAX_STEPS:
            raise _odd(text, key)
        quoted, number, plain = found.groups()
        steps.append(int(number) if number else plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
        at = found.end()
    if not steps:
        raise _odd(text, key)
    return FieldPath(tuple(steps))


def _odd(text: str, key: str) -> ConfigError:
    return ConfigError(
        "must be a field such as 'temp', 'data.temp', 'acc[0]', or '\"a.b\"' for a name that holds "
        f"a dot, with at most {MAX_STEPS} steps",
        key,
        got=text,
    )
