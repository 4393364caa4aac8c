"""Loading of a configuration: TOML becomes a checked `Config`. Every key is public; nothing here reads data."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from ..errors import ConfigError, Shown
from ..releases.options import Options, keys_of
from ..releases.registry import check_keys as check_release_keys
from ..releases.registry import find, method_of, section_name
from .conversion import changed_keys, check_keys, converted, read_toml, sections_of
from .job import Job
from .sections import Sections


class Config(Sections, frozen=True, forbid_unknown_fields=True, kw_only=True, dict=True):
    """A whole configuration, checked when made. `load` reads a file, `from_mapping` takes nested dictionaries.

    What it means is its `job`.

    Raises
    ------
    ConfigError
        A rule is broken; the message names the key.
    """

    def __post_init__(self) -> None:
        if not self.releases:
            raise ConfigError("must name at least one answer", "release")
        for options in self.releases:
            if not isinstance(options, Options):
                raise ConfigError("must be the options of a kind", "release", got=Shown(type(options).__name__))
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
        return cls.from_mapping(read_toml(path))

    @classmethod
    def of(cls, **sections: Any) -> Config:
        """Check typed sections by the rules of the file, each given as its class (or as a mapping), by its name there.

        Sections that are None are left out. A section's own constructor checks no types, so that each value is checked
        here, once, with the message that the same value has in a file.
        """
        return cls.from_mapping({name: _written(value) for name, value in sections.items() if value is not None})

    @classmethod
    def from_mapping(cls, sections: Mapping[str, Any]) -> Config:
        """Check nested dictionaries of the same shape as the file."""
        try:
            check_keys(cls, sections, "")
            values = _dates_as_text(sections)
            if isinstance(values, dict) and "release" in values:
                values["release"] = _releases(values["release"])
            return converted(values, cls)
        except UnicodeEncodeError:
            raise ConfigError(
                "holds a text that cannot be written as UTF-8", remedy="take its lone surrogates out"
            ) from None
        except RecursionError:
            raise ConfigError("is nested too deeply: no section has more than three levels") from None


def _releases(values: Any) -> Options | tuple[Options, ...]:
    """Read ``[release]``, or every ``[[release]]``; a single one of these means the same as ``[release]``."""
    if not isinstance(values, (list, tuple)):
        return _release(values)
    found = []
    for i, each in enumerate(values):
        try:
            found.append(_release(each))
        except ConfigError as error:
            which = each.get("name", i) if isinstance(each, Mapping) else i
            if len(values) > 1:
                error.key = f"release[{which}]{error.key.removeprefix('release')}"
            raise
    return found[0] if len(found) == 1 else tuple(found)


def _release(values: Any) -> Options:
    """Read the options of one answer, by its kind."""
    if isinstance(values, Options):
        return values
    if not isinstance(values, Mapping):
        raise ConfigError("must be a section of keys", "release", got=Shown(type(values).__name__))
    options = find(values.get("kind", "mean"), values.get("method"))
    check_release_keys(options, values)
    for name, kind in keys_of(options).items():
        for inner in sections_of(kind):
            for item in values[name] if isinstance(values.get(name), list) else [values.get(name)]:
                check_keys(inner, item, f"release.{name}")
    return converted(values, options, "release")


def _written(section: Any) -> Any:
    """Return what a file would say of a section."""
    if isinstance(section, Options):
        return _written_release(section)
    if isinstance(section, msgspec.Struct):
        return {name: _written(value) for name, value in changed_keys(section).items()}
    return list(map(_written, section)) if isinstance(section, Sequence) and not isinstance(section, str) else section


def _written_release(options: Options) -> dict[str, Any]:
    """Write the options of a kind, which must be those that their own ``kind`` and ``method`` stand for."""
    written, method = changed_keys(options) | {"kind": options.kind}, method_of(options)
    if method is not None:
        written["method"] = method
    found = find(options.kind, method)
    if not (set(found.__mro__) & set(type(options).__mro__)) - set(Options.__mro__):
        name = repr(options.kind) if method is None else f"{options.kind!r} with the method {method!r}"
        wanted, given = section_name(found), section_name(type(options))
        if wanted and given:
            raise ConfigError(
                f"must be `fcstream.sections.{wanted}` for the kind {name}",
                "release",
                got=Shown(f"`{given}`"),
                remedy=f"give {wanted} the same keys",
            )
        raise ConfigError(
            f"must be a {found.__name__} for the kind {name}",
            "release",
            got=Shown(f"a {type(options).__name__}"),
            remedy="give it the `kind` that it is registered as (`fcstream.register_release`)",
        )
    return written


def _dates_as_text(values: Any) -> Any:
    """Replace TOML dates without quotes by their text, and numbers and arrays of numpy by Python's."""
    if isinstance(values, Mapping):
        return {key: _dates_as_text(value) for key, value in values.items()}
    if isinstance(values, list):
        return [_dates_as_text(value) for value in values]
    if hasattr(values, "tolist"):
        return values.tolist()
    return values.isoformat() if isinstance(values, (datetime.date, datetime.time)) else values
