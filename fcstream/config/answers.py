"""Answers of a configuration: which records and features each is about, and the mechanism that makes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import ConfigError
from ..formats.texts import UnusableRecord, parse_text
from ..releases.answers import Answers, WindowAnswer
from ..releases.options import BuildContext, Options
from ..releases.record_gate import build_gated
from ..releases.statistics.learned import build_mechanism
from ..stream.lattice import Feature, Grid
from ..stream.selection import Condition, RecordSelection, Rows, TextCodes
from ..stream.windows import Schedule
from .sections import FeatureSection, Sections

_LONGEST_NAME = 64
_LEVELS = "kind 'marginals' with `order` = 1 counts records by level"


def answers_of(config: Sections, grid: Grid, schedule: Schedule) -> Answers:
    """Make the answers of a stream.

    Raises
    ------
    ConfigError
        An answer's options cannot work, or two have the same name.
    """
    _check_names(config.releases)
    max_records = config.window.max_records
    if max_records is not None and len(config.releases) > 1 and not any(o.holds_records for o in config.releases):
        raise ConfigError("belongs to kinds that hold a window's records", "window.max_records", remedy="leave it out")
    found = []
    for options in config.releases:
        with naming(options, config.releases):
            found.append(_answer(config, options, grid, schedule))
    return Answers(tuple(found), config.stream.unit)


@contextmanager
def naming(options: Options, releases: Sequence[Options]) -> Iterator[None]:
    """Say in errors, if there are several answers, which one they are about: ``release[NAME].rho``."""
    try:
        yield
    except ConfigError as error:
        own = own_section(options, releases)
        error.rename(lambda key: own + key.removeprefix("release") if key.startswith("release") else key)
        raise


def own_section(options: Options, releases: Sequence[Options]) -> str:
    """Return the section of an answer as errors name it: ``release``, or ``release[NAME]`` of several."""
    return "release" if len(releases) == 1 else f"release[{options.name or releases.index(options)}]"


def named(text: str, options: Options, releases: Sequence[Options]) -> str:
    """Return a text about an answer with the keys of that answer, as errors name them where there are several."""
    return text.replace("`release.", f"`{own_section(options, releases)}.")


def _check_names(releases: Sequence[Options]) -> None:
    names = [options.name for options in releases]
    for i, name in enumerate(names):
        key = f"release[{i}].name" if len(names) > 1 else "release.name"
        if name is None:
            if len(names) > 1:
                raise ConfigError("is required where there are several `[[release]]`", key)
        elif not 0 < len(name) <= _LONGEST_NAME or not name.isprintable() or "/" in name:
            raise ConfigError(f"must be 1 to {_LONGEST_NAME} printable characters without '/'", key, got=name)
        elif name in names[:i]:
            raise ConfigError(f"must be different for each answer, {name!r} is there twice", key)


def _answer(config: Sections, options: Options, grid: Grid, schedule: Schedule) -> WindowAnswer:
    columns = _columns(config, options)
    where = _conditions(config, options, grid)
    if options.reads_text:
        rows = Rows(where, text=options.text_use(texts_of(config)))
    else:
        rows = Rows(where, _per_user(config, options, columns))
    own, bounds = Grid(grid.lattice, tuple(grid.features[i] for i in columns)), None
    if rows.per_user == "sum":
        own, bounds = _summed(options, own)
    _check_optional(config, options, own)
    setting = BuildContext(own, schedule.reach, config.stream.unit, texts_of(config), schedule.length_ms)
    taken, why = options.chosen(setting)
    max_records = config.window.max_records
    if len(config.releases) > 1 and not taken.needs_record_gate(config.stream.unit):
        max_records = None
    mechanism = build_gated(taken, setting, max_records, build_mechanism)
    width = grid.dimension + len(text_codes(config))
    chosen = None if columns == tuple(range(width)) or options.reads_text else columns
    return WindowAnswer(options.name, mechanism, own, RecordSelection(rows, chosen, bounds), why)


def texts_of(config: Sections) -> tuple[str, ...]:
    """Return the names of the features that hold texts."""
    return tuple(feature.name for feature in config.features if feature.is_text)


def text_codes(config: Sections) -> tuple[TextCodes, ...]:
    """Return the coordinates that stand for the texts that conditions name."""
    found: dict[str, set[str]] = {}
    for options in config.releases:
        for name in options.where or {}:
            if name in texts_of(config):
                with naming(options, config.releases):
                    found.setdefault(name, set()).update(_texts_wanted(config, options, name))
    return tuple(TextCodes(name, tuple(sorted(found[name]))) for name in sorted(found))


def _texts_wanted(config: Sections, options: Options, name: str) -> set[str]:
    """Return the texts that a condition names, in the form in which records are read."""
    wanted, key = (options.where or {})[name], f"release.where.{name}"
    if not isinstance(wanted, list) or not wanted:
        raise ConfigError("must be a list of texts", key)
    most = next(feature.text_bytes() for feature in config.features if feature.name == name)
    try:
        return {parse_text(text, most) for text in wanted}
    except UnusableRecord as refused:
        raise ConfigError(f"must hold texts of at most {most} bytes, one is {refused.reason!r}", key) from None


def _columns(config: Sections, options: Options) -> tuple[int, ...]:
    """Return the indices of an answer's features: the named ones, or all that its kind can read."""
    if options.reads_text:
        for name in ("features", "per_user", "user_bounds"):
            if getattr(options, name) is not None:
                raise ConfigError("must be left out with kind 'frequent', which reads one text", f"release.{name}")
        return ()
    names = [feature.name for feature in config.features if not feature.is_text]
    if options.features is not None:
        for i, name in enumerate(options.features):
            if name in texts_of(config):
                raise ConfigError(
                    f"must not name {name!r}, which is a text: `where` and kind 'frequent' read those",
                    "release.features",
                )
            if name not in names:
                raise ConfigError(f"must name declared features, {name!r} is none", "release.features")
            if name in options.features[:i]:
                raise ConfigError(f"must name each feature once, {name!r} is there twice", "release.features")
        chosen = options.features
    elif options.takes_categories:
        chosen = names
    else:
        chosen = [feature.name for feature in config.features if feature.type in ("number", "boolean")]
    if not chosen and options.needs_features:
        only_codes = bool(names) and options.features is None
        what = "a number or Boolean" if only_codes else "at least one feature"
        remedy = f"; {_LEVELS}" if only_codes else ""
        raise ConfigError(f"must name {what} for a release of kind {options.kind!r}{remedy}", "features")
    asked = [*chosen, getattr(options, "feature", None)]
    categories = [f.name for f in config.features if f.type == "category" and f.name in asked]
    if categories and not options.takes_categories:
        raise ConfigError(
            f"must not be a category for a release of kind {options.kind!r}: its codes are no quantities; {_LEVELS}",
            f"features.{categories[0]}.type",
        )
    return tuple(names.index(name) for name in chosen)


def _conditions(config: Sections, options: Options, grid: Grid) -> tuple[Condition, ...]:
    """Return the conditions of ``where``, on lattice coordinates."""
    sections = {section.name: (i, section) for i, section in enumerate(f for f in config.features if not f.is_text)}
    codes = text_codes(config)
    found = []
    for name, wanted in (options.where or {}).items():
        key = f"release.where.{name}"
        if name in texts_of(config):
            place = next(i for i, each in enumerate(codes) if each.feature == name)
            wished = sorted(codes[place].texts.index(text) for text in _texts_wanted(config, options, name))
            spans = tuple((float(code), float(code)) for code in wished)
            found.append(Condition(grid.dimension + place, spans))
            continue
        if name not in sections:
            raise ConfigError("must be a declared feature", key, remedy="add it to `[[features]]`")
        column, section = sections[name]
        if section.optional:
            raise ConfigError("must not be optional: a record without a value has no place here", key)
        feature = grid.features[column]
        if section.type == "number":
            spans = (_interval(grid, feature, wanted, key),)
        else:
            spans = _levels(grid, section, wanted, key)
        found.append(Condition(column, spans))
    return tuple(found)


def _levels(grid: Grid, section: FeatureSection, wanted: Any, key: str) -> tuple[tuple[float, float], ...]:
    """Return the lattice numbers of some levels, each as an interval."""
    if not isinstance(wanted, list) or not wanted:
        raise ConfigError("must be a list of levels of this feature", key)
    codes, feature = section.codes(), section.feature()
    for level in wanted:
        if level not in codes:
            raise ConfigError(f"must hold declared levels ({', '.join(feature.levels)}), {level!r} is none", key)
    scaled = feature.scaled(np.array(sorted({codes[level] for level in wanted}), np.float64))
    return tuple((at, at) for at in grid.lattice.coordinates(scaled).tolist())


def _interval(grid: Grid, feature: Feature, wanted: Any, key: str) -> tuple[float, float]:
    """Return the lattice numbers of the ends of an interval, of which those of the range are its own."""
    if not isinstance(wanted, Mapping) or not wanted or set(wanted) - {"min", "max"}:
        raise ConfigError("must be { min = ..., max = ... } for a number; one of them may be left out", key)
    low, high = wanted.get("min", feature.minimum), wanted.get("max", feature.maximum)
    ends = grid.number(feature, float(low)), grid.number(feature, float(high))
    if ends[0] is None or ends[1] is None or low > high:
        raise ConfigError(
            f"must be an interval within the feature's range {feature.interval}, got [{low:g}, {high:g}]", key
        )
    least, most = grid.ends(feature)
    return float(least if low <= feature.minimum else ends[0]), float(most if high >= feature.maximum else ends[1])


def _per_user(config: Sections, options: Options, columns: tuple[int, ...]) -> str:
    if config.stream.unit != "user":
        for name in ("per_user", "user_bounds"):
            if getattr(options, name) is not None:
                raise ConfigError(f"belongs to unit = 'user', the unit is {config.stream.unit!r}", f"release.{name}")
        return config.stream.per_user
    per_user = options.per_user or config.stream.per_user
    if (options.user_bounds is None) == (per_user == "sum"):
        raise ConfigError(
            "is required with per_user = 'sum': the least and the largest sum of one user that counts in full"
            if per_user == "sum"
            else "belongs to per_user = 'sum'",
            "release.user_bounds",
        )
    if per_user != "first" and any(config.features[i].type == "category" for i in columns):
        raise ConfigError(
            "must be 'first' where a feature is a category: codes have no mean or sum", "release.per_user"
        )
    return per_user


def _summed(options: Options, grid: Grid) -> tuple[Grid, tuple[float, float]]:
    """Return the grid of users' sums of one feature, and the lattice coordinates to which they are clipped."""
    if grid.dimension != 1:
        raise ConfigError(
            "must name one feature with per_user = 'sum', whose sum has the bounds",
            "release.features",
            got=grid.dimension,
        )
    (feature,), (low, high) = grid.features, options.user_bounds or (0.0, 0.0)
    if feature.origin or feature.transform != "none" or feature.levels:
        raise ConfigError(
            f"must be 'first' or 'mean' for {feature.name!r}: only a number without `origin` and `transform` adds up",
            "release.per_user",
        )
    try:
        summed = Grid(grid.lattice, (replace(feature, minimum=float(low), maximum=float(high)),))
    except ConfigError as error:
        error.key = "release.user_bounds"
        raise
    return summed, (float(summed.lowest[0]), float(summed.highest[0]))


def _check_optional(config: Sections, options: Options, grid: Grid) -> None:
    """Refuse optional features that an answer is about, because a record without one could not enter it."""
    used = options.uses([feature.name for feature in grid.features])
    for feature in config.features:
        if feature.optional and feature.name in used:
            raise ConfigError(
                f"must be false where the answer (kind {options.kind!r}) is about this feature: a record "
                "without it is rejected as 'missing' and does not count",
                f"features.{feature.name}.optional",
            )
