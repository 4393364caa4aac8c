"""Converts a TOML file or nested dictionaries to sections, in which every key is known and every value has its type.

Configurations of streams and of devices are both read by these functions. Errors name the key and the remedy.
"""

from __future__ import annotations

import difflib
import re
import threading
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec

from ..errors import ConfigError

Section = TypeVar("Section", bound=msgspec.Struct)
_REMOVED = {
    ("budget.exhausted", "'omit'"): ": 'omit' was removed, because numbers lacked most users and did not say so"
}
_WORDS = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "object": "a section",
    "str": "text",
}
_KNOWN = "|".join((*_WORDS, "null"))
_TYPES = re.compile(rf"Expected `((?:(?:{_KNOWN})(?: \| )?)+)`, got `({_KNOWN})`")
_ONE_AT_A_TIME = threading.RLock()
"""msgspec looks at a type's fields when it is first used; if two threads do so at once, the process crashes."""


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read the nested dictionaries of a file."""
    try:
        text = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {getattr(error, 'strerror', error)}") from None
    try:
        return tomllib.loads(text.decode())
    except (ValueError, RecursionError) as error:  # also numbers of more digits than Python reads
        raise ConfigError(f"{path} is not TOML: {error}") from None


def converted(values: Any, section: type[Section], key: str = "") -> Section:
    """Make a checked section; errors name the key. Threads wait for each other: see `_ONE_AT_A_TIME`."""
    try:
        with _ONE_AT_A_TIME:
            return msgspec.convert(values, section)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, ConfigError):
            raise error.__cause__ from None
        message, _, inner = str(error).partition(" - at `$.")
        where = ".".join(filter(None, (key, inner.rstrip("`"))))
        if message.startswith("Object missing required field"):
            where, message = ".".join(filter(None, (where, message.split("`")[1]))), "is required"
        elif message.startswith("Invalid enum value"):
            got = message.split(maxsplit=3)[3]
            why = _REMOVED.get((where, got), f", got {got}")
            message = f"must be {_choices(section, inner.rstrip('`'))}{why}"
        elif message in ("Expected `str`, got `int`", "Expected `str`, got `float`"):
            message = "must be text in quotes, got a number"
        elif (types := _TYPES.fullmatch(message)) is not None:
            wanted, got = (
                " or ".join(_WORDS[part] for part in each.split(" | ") if part != "null") for each in types.groups()
            )
            message = f"must be {wanted}, got {got or 'nothing'}"
        raise ConfigError(message[:1].lower() + message[1:], where) from None


def _choices(section: type[msgspec.Struct], path: str) -> str:
    """List in words what the key at a path below a section may be."""
    *outer, last = (part.partition("[")[0] for part in path.split("."))
    for name in outer:
        (section,) = sections_of({field.encode_name: field.type for field in msgspec.structs.fields(section)}[name])
    kind = {field.encode_name: field.type for field in msgspec.structs.fields(section)}[last]
    words = [repr(word) for part in (kind, *get_args(kind)) for word in get_args(part) if isinstance(word, str)]
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def check_keys(section: type[msgspec.Struct], values: Any, prefix: str) -> None:
    """Refuse unknown keys with an error that names the nearest known one."""
    if not isinstance(values, Mapping):
        return
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(section)}
    for key, value in values.items():
        where = f"{prefix}.{key}" if prefix else str(key)
        if key not in fields:
            near = difflib.get_close_matches(str(key), fields, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(fields)}"
            raise ConfigError("is not a known key", where, remedy=hint)
        for inner in sections_of(fields[key]):
            for item in value if isinstance(value, list) else [value]:
                check_keys(inner, item, where)


def sections_of(kind: Any) -> list[type[msgspec.Struct]]:
    """List the sections that a field of this type may hold."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return [kind]
    return [inner for part in getattr(kind, "__args__", ()) for inner in sections_of(part)]


def changed_keys(section: msgspec.Struct, free: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the keys of a section that are not at their defaults."""
    found = {}
    for own in msgspec.structs.fields(type(section)):
        value = getattr(section, own.name)
        value = value.tolist() if hasattr(value, "tolist") else value  # of numpy
        default = own.default if own.default_factory is msgspec.NODEFAULT else own.default_factory()
        if own.encode_name not in free and (own.required or value != default):
            found[own.encode_name] = value
    return found
