"""Fields of a record: which are read, on which lattice, and which texts say that a value is missing."""

from __future__ import annotations

import math

from ..errors import ConfigError
from ..formats.batch import Schema, UnusableRecord, parse_number
from ..formats.envelopes import EnvelopeField
from ..formats.paths import FieldPath, parse_path
from ..stream.lattice import Grid, Lattice
from .sections import FeatureSection, Sections, StreamSection


def schema_of(config: Sections) -> Schema:
    """Make the schema: which fields are read.

    Raises
    ------
    ConfigError
        One field has two roles, or a text for "no value" is also a value.
    """
    stream = config.stream
    features = tuple(f.name for f in config.features if not f.is_text)
    levels = {f.name: f.codes() for f in config.features if f.type in ("boolean", "category")}
    missing = {f.name: _missing_texts(f) for f in config.features}
    schema = Schema(
        stream.time,
        stream.time_unit,
        features,
        _user_field(stream),
        stream.key,
        levels,
        {name: texts for name, texts in missing.items() if texts},
        frozenset(f.name for f in config.features if f.optional),
        {f.name: f.text_bytes() for f in config.features if f.is_text},
        tuple(f.name for f in config.features),
        _paths(config),
        _records(config),
        frozenset(f.name for f in config.features if f.text) | _in_envelopes(config),
        headers=frozenset() if config.source is None else config.source.headers(),
    )
    names = [f.name for f in config.features]
    if len(set(names)) < len(names):
        raise ConfigError("must have distinct names", "features")
    if stream.time in names:
        raise ConfigError(f"must not be the time field {stream.time!r}", "features")
    for key, name in (("user", schema.user), ("key", schema.key)):
        if name is not None and name in (stream.time, *names):
            raise ConfigError(f"must be a field of its own, {name!r} is the time or a feature", f"stream.{key}")
    return schema


def _paths(config: Sections) -> dict[str, FieldPath | EnvelopeField]:
    """Return where fields stand that are not plain ones of a message."""
    stream, found = config.stream, {}
    named = [("time", stream.time), ("user", stream.user), ("key", stream.key)]
    for key, text in named:
        if text is not None:
            found[text] = parse_path(text, f"stream.{key}")
    found |= {f.name: parse_path(f.path, f"{f.key}.path") for f in config.features if f.path is not None}
    return {name: place for name, place in found.items() if place != FieldPath.named(name)}


def _in_envelopes(config: Sections) -> frozenset[str]:
    """Return the numbers that come with messages, always as text."""
    return frozenset(f.name for f in config.features if f.type == "number" and (f.path or "").startswith("@"))


def _records(config: Sections) -> FieldPath | None:
    text = None if config.source is None else config.source.records
    if text is None:
        return None
    path = parse_path(text, "source.records")
    if isinstance(path, EnvelopeField):
        raise ConfigError("must be a list in the body of a message", "source.records", got=text)
    return path


def grid_of(config: Sections) -> Grid:
    """Put the features on their lattice; a stream without features has one without coordinates.

    Raises
    ------
    ConfigError
    """
    if not config.features:
        for options in config.releases:
            if options.needs_features:
                raise ConfigError(f"must name at least one feature for a release of kind {options.kind!r}", "features")
        return Grid(Lattice(1.0), ())
    _check_texts(config)
    numbers = [f for f in config.features if not f.is_text]
    if not numbers:
        return Grid(Lattice(1.0), ())
    if config.lattice is None:
        raise ConfigError("is required with `features`: the grid that their values are rounded to", "lattice.step")
    lattice = Lattice(config.lattice.step)
    features = [f.feature() for f in numbers]
    grid = Grid(lattice, tuple(lattice.finest(own) if own.learned else own for own in features))
    if config.stream.per_user == "mean" and any(f.type == "category" for f in config.features):
        raise ConfigError("must be 'first' where a feature is a category: codes have no mean", "stream.per_user")
    return grid


def _check_texts(config: Sections) -> None:
    """Refuse what does not go with features that hold texts."""
    if config.stream.per_user == "mean" and all(options.reads_text for options in config.releases):
        raise ConfigError("must be 'first' where the answer is about texts: they have no mean", "stream.per_user")
    if config.stream.key_budgets == "shared" and any(options.reads_text for options in config.releases):
        raise ConfigError("must be 'divided' for a release of kind 'frequent'", "stream.key_budgets")
    for own in config.features:
        if own.is_text and own.optional:
            raise ConfigError("must be false for a text: a record without it does not count", f"{own.key}.optional")


def _missing_texts(feature: FeatureSection) -> frozenset[str]:
    """List the texts that stand for no value; for a Boolean or a category also whole numbers, as their text."""
    key, texts = f"features.{feature.name}.missing", set()
    for value in feature.missing:
        if isinstance(value, str):
            texts.add(value.strip())
        elif not math.isfinite(value):
            raise ConfigError("must hold texts and finite numbers", key, got=value)
        elif feature.type != "number":
            if not value.is_integer():
                raise ConfigError(f"must hold texts and whole numbers with type = {feature.type!r}", key)
            texts.add(str(int(value)))
    for text in texts:
        if feature.type == "number" and _is_number(text):
            raise ConfigError(f"must have the number {text} without quotes: quoted ones are texts", key)
        if feature.type != "number" and text in feature.codes():
            raise ConfigError(f"must not name {text!r}, which is one of the levels", key)
    return frozenset(texts)


def _is_number(text: str) -> bool:
    try:
        parse_number(text)
    except UnusableRecord:
        return False
    return True


def _user_field(stream: StreamSection) -> str | None:
    if stream.unit == "user":
        if not stream.user:
            raise ConfigError("is required with unit = 'user': the field that names whose record it is", "stream.user")
        return stream.user
    if stream.user is not None:
        raise ConfigError(f"belongs to unit = 'user', the unit is {stream.unit!r}", "stream.user")
    return None
