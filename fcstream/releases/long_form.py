"""Releases in long form: one row for each published number, with a name that says which one it is."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from .base import Release, shape_of


class LongRow(NamedTuple):
    """One number of a release, or a refusal.

    Attributes
    ----------
    window_open, window_close : int
        The window, in Unix milliseconds.
    stream, key : str, str or None
        The stream's name as configured, and the key of a sibling stream.
    answer : str
        Name of the answer among those of the window; its kind, if it has none.
    kind : str
    name : str or None
        Which number of the value it is; None for a refusal, and for made-up rows. See `named_numbers`.
    value, sigma : float or None
        The number and the standard deviation of its noise, if that is one number.
    low, high : float or None
        Ends of the interval that holds the number without its noise with a probability of 95%.
    status : str
        ``released`` or ``refused``.
    reason : str or None
        Why it was refused.
    """

    window_open: int
    window_close: int
    stream: str
    key: str | None
    answer: str
    kind: str
    name: str | None
    value: float | None
    sigma: float | None
    low: float | None
    high: float | None
    status: str
    reason: str | None


HOLDS = dict.fromkeys(LongRow._fields, "text")
HOLDS |= dict.fromkeys(("window_open", "window_close"), "time")
HOLDS |= dict.fromkeys(("value", "sigma", "low", "high"), "number")
"""What each column holds: ``time``, ``text`` or ``number``."""


def long_columns(releases: Iterable[Release]) -> dict[str, tuple[str, list[Any]]]:
    """Return the rows of some releases as columns, by name what each holds and its cells."""
    rows = list(long_form(releases))
    return {name: (HOLDS[name], [row[i] for row in rows]) for i, name in enumerate(LongRow._fields)}


def long_form(releases: Iterable[Release]) -> Iterator[LongRow]:
    """Yield the rows of some releases; a release without numbers has one row, without name and value."""
    for release in releases:
        stream = release.stream if release.key is None else release.stream.removesuffix(f"/{release.key}")
        answer = release.name or release.kind
        about = (release.window_open_ms, release.window_close_ms, stream, release.key, answer, release.kind)
        is_empty = True
        for (name, value, sigma), (low, high) in zip(named_numbers(release), intervals(release), strict=True):
            yield LongRow(*about, name, value, sigma, low, high, release.status, release.reason)
            is_empty = False
        if is_empty:
            yield LongRow(*about, None, None, None, None, None, release.status, release.reason)


def named_numbers(release: Release) -> Iterator[tuple[str, float, float | None]]:
    """Yield name, value and sigma of every number of a release, in order.

    A name is a feature (``temp_c``), or a feature and which of its numbers it is: a level (``temp_c/0.5``), a bin or a
    category (``temp_c/20..25``, ``temp_c/other``), a text (``app/maps``), the other feature of a covariance
    (``temp_c/rh_pct``), or the number of a center, from 0 (``temp_c/2``). A box of a tree is ``tree/7``. A cell of a
    table is ``smoker,age/true,30..40``. Where no feature is known, the kind stands in its place. What made-up rows are
    drawn from has no numbers: `fcstream.synthetic_rows` draws the rows.
    """
    values = list(_leaves(_shown(release), ()))
    sigmas = dict(_leaves(release.sigma or [], ()))
    names = _names(release)
    for at, value in values:
        fallback = "/".join([release.kind, *(map(str, at) if len(values) > 1 else ())])
        yield names.get(at, fallback), value, sigmas.get(at)


def intervals(release: Release) -> Iterator[tuple[float | None, float | None]]:
    """Yield both ends of the interval of every number of a release, in the order of `named_numbers`."""
    ends = dict(_leaves(release.interval or [], ()))
    for at, _ in _leaves(_shown(release), ()):
        yield ends.get((*at, 0)), ends.get((*at, 1))


def _shown(release: Release) -> list[Any]:
    return [] if shape_of(release).value.hidden else release.value or []


def _leaves(value: Any, at: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], float]]:
    """Yield the numbers of nested lists, each with where it stands; nulls and texts are no numbers."""
    if isinstance(value, list):
        for i, item in enumerate(value):
            yield from _leaves(item, (*at, i))
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield at, value


def _names(release: Release) -> dict[tuple[int, ...], str]:
    """Name the numbers of a value by what the release says of its axes; those that it says nothing of are left out."""
    shape, parts = shape_of(release), release.parts or {}
    axes = shape.axes_of(shape.value)
    told = [axis.told(release.features, parts) for axis in axes]
    if shape.last.name == "cell":
        return {} if None in told else _cells(parts["tables"], {column["name"]: column for column in parts["columns"]})
    if told[-1] is None or any(each is None and axis.labels for axis, each in zip(axes, told, strict=True)):
        return {}
    sizes = _sizes(release.value)
    labels = [list(map(str, range(size))) if each is None else _labels(*each) for each, size in zip(told, sizes)]  # noqa: B905
    about = [] if told[-1][0] == "features" else [str(parts.get("feature", release.kind))]
    names = {}
    for at in itertools.product(*(range(len(each)) for each in labels)):
        own = [each[i] for each, i in zip(labels, at, strict=True)]
        names[at] = "/".join([*about, *own] if about else reversed(own))
    return names


def _sizes(value: Any) -> list[int]:
    """Return the lengths of nested lists, the outer one first."""
    return [len(value), *_sizes(value[0])] if isinstance(value, list) and value else []


def _labels(held: str, names: Sequence[Any]) -> list[str]:
    """Write the names along an axis, from where a release holds them."""
    if held == "edges":
        return _bins(names)
    written = [_number(name) if isinstance(name, float) else str(name) for name in names]
    return [*written, "other"] if held == "categories" else written


def _bins(edges: Sequence[float]) -> list[str]:
    return [f"{_number(low)}..{_number(high)}" for low, high in itertools.pairwise(edges)]


def _cells(tables: Sequence[Sequence[str]], columns: dict[str, Any]) -> dict[tuple[int, ...], str]:
    """Name the cells of contingency tables, of which the last column changes fastest."""
    levels = {
        name: _bins(column["edges"]) if column.get("edges") else list(map(str, column["levels"]))
        for name, column in columns.items()
    }
    return {
        (i, j): f"{','.join(table)}/{','.join(cell)}"
        for i, table in enumerate(tables)
        for j, cell in enumerate(itertools.product(*(levels[name] for name in table)))
    }


def _number(value: float) -> str:
    """Write a number as short as it can be read back."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))
