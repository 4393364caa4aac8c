"""TOML -> a checked configuration. Every key is public; nothing here looks at data."""

from __future__ import annotations

import datetime
import difflib
import tomllib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec

from ..errors import ConfigError
from ..releases.options import Options, keys_of
from ..releases.registry import check_keys, find
from .job import Job
from .sections import Sections

Section = TypeVar("Section", bound=msgspec.Struct)


class Config(Sections, frozen=True, forbid_unknown_fields=True, kw_only=True, dict=True):
    """A whole configuration, checked when made. `load` reads a file, `from_mapping` takes nested dictionaries.

    What it means is its `job`.

    Raises
    ------
    ConfigError
        Any rule broken; the message names the key.
    """

    def __post_init__(self) -> None:
        if not isinstance(self.release, Options):
            raise ConfigError(f"must be the options of a kind, got {type(self.release).__name__}", "release")
        dead_letter, others = self.dead_letter, [section.url for section in (self.source, self.sink) if section]
        if dead_letter and "://" in dead_letter.url and dead_letter.url in others:
            raise ConfigError(
                "must be a queue of its own: there, rejections would be read as records, or as releases",
                "dead_letter.url",
            )
        _ = self.job  # building it checks the rules that sections share

    @cached_property
    def job(self) -> Job:
        """What the configuration means, built once."""
        return Job.of(self)

    @classmethod
    def load(cls, path: str | Path) -> Config:
        """Read a TOML file."""
        try:
            text = Path(path).read_bytes()
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path} cannot be read: {getattr(error, 'strerror', error)}") from None
        try:
            sections = tomllib.loads(text.decode())
        except (ValueError, RecursionError) as error:  # also numbers of more digits than Python reads
            raise ConfigError(f"{path} is not TOML: {error}") from None
        return cls.from_mapping(sections)

    @classmethod
    def from_mapping(cls, sections: Mapping[str, Any]) -> Config:
        """Check nested dictionaries of the same shape as the file."""
        try:
            _check_keys(cls, sections, "")
            values = _dates_as_text(sections)
            if isinstance(values, dict) and "release" in values:
                values["release"] = _release(values["release"])
            return _converted(values, cls)
        except UnicodeEncodeError:
            raise ConfigError("holds a text that cannot be written as UTF-8: take its lone surrogates out") from None
        except RecursionError:
            raise ConfigError("is nested too deeply: no section has more than three levels") from None


def _converted(values: Any, section: type[Section], key: str = "") -> Section:
    """A checked section; errors name the key."""
    try:
        return msgspec.convert(values, section)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, ConfigError):
            raise error.__cause__ from None
        message, _, inner = str(error).partition(" - at `$.")
        where = ".".join(filter(None, (key, inner.rstrip("`"))))
        if message.startswith("Invalid enum value"):
            message = f"must be {_choices(section, inner.rstrip('`'))}, got {message.split(maxsplit=3)[3]}"
        elif message in ("Expected `str`, got `int`", "Expected `str`, got `float`"):
            message = "must be text in quotes, got a number"
        raise ConfigError(message[:1].lower() + message[1:], where) from None


def _choices(section: type[msgspec.Struct], path: str) -> str:
    """What the key at a path below a section may be, as words."""
    *outer, last = (part.partition("[")[0] for part in path.split("."))
    for name in outer:
        (section,) = _sections({field.encode_name: field.type for field in msgspec.structs.fields(section)}[name])
    kind = {field.encode_name: field.type for field in msgspec.structs.fields(section)}[last]
    words = [repr(word) for part in (kind, *get_args(kind)) for word in get_args(part) if isinstance(word, str)]
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _release(values: Any) -> Options:
    """``[release]``, by the options of its kind."""
    if isinstance(values, Options):
        return values
    if not isinstance(values, Mapping):
        raise ConfigError(f"must be a section of keys, got {type(values).__name__}", "release")
    options = find(values.get("kind", "mean"), values.get("method"))
    check_keys(options, values)
    for name, kind in keys_of(options).items():
        for inner in _sections(kind):
            for item in values[name] if isinstance(values.get(name), list) else [values.get(name)]:
                _check_keys(inner, item, f"release.{name}")
    return _converted(values, options, "release")


def _dates_as_text(values: Any) -> Any:
    """TOML dates without quotes are as good as their text."""
    if isinstance(values, Mapping):
        return {key: _dates_as_text(value) for key, value in values.items()}
    if isinstance(values, list):
        return [_dates_as_text(value) for value in values]
    return values.isoformat() if isinstance(values, (datetime.date, datetime.time)) else values


def _check_keys(section: type[msgspec.Struct], values: Any, prefix: str) -> None:
    """Unknown keys are errors that name the nearest known one."""
    if not isinstance(values, Mapping):
        return
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(section)}
    for key, value in values.items():
        where = f"{prefix}.{key}" if prefix else str(key)
        if key not in fields:
            near = difflib.get_close_matches(str(key), fields, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(fields)}"
            raise ConfigError(f"is not a known key: {hint}", where)
        for inner in _sections(fields[key]):
            for item in value if isinstance(value, list) else [value]:
                _check_keys(inner, item, where)


def _sections(kind: Any) -> list[type[msgspec.Struct]]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return [kind]
    return [inner for part in getattr(kind, "__args__", ()) for inner in _sections(part)]
