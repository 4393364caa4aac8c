"""A release as the live page draws it: a point of its history, and all of its numbers in a form that fits its kind.

Only what was released is read, and all texts are plain: the page escapes them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from ...releases.base import Release, shape_of
from ...releases.long_form import named_numbers
from ...releases.tables.documents import synthetic_shares

MAX_NUMBERS = 64
"""Numbers of a window that its point has; of releases with more only the newest one is shown."""
MAX_ROWS = 200
MAX_GROUPS = 12
_MAX_CELLS = 30
UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What is raised for a release of another package's kind whose values or parts have a form of their own."""


class PagePoint(msgspec.Struct, array_like=True, frozen=True):
    """One window in the history of a series, as the page gets it.

    Attributes
    ----------
    sigmas : float, list or None
        One for all numbers, or one for each.
    spent : float
        Rho that the window's most charged block has spent.
    labels : list of str or None
        Names of the numbers, if they are not those of the series.
    """

    open_ms: int
    close_ms: int
    reason: str | None
    values: list[float] | None
    sigmas: list[float | None] | float | None
    count: int | None
    rho: float
    spent: float
    labels: list[str] | None = None


def names_of(release: Release) -> list[str]:
    """Name the numbers that a point of this release has."""
    return [name for name, _, _ in _few(release)]


def point_of(release: Release, names: Sequence[str]) -> PagePoint:
    """Make a release's point; `names` are those of the series."""
    found = _few(release)
    own = [name for name, _, _ in found]
    return PagePoint(
        release.window_open_ms,
        release.window_close_ms,
        release.reason,
        [value for _, value, _ in found] or None,
        _shortest([sigma for _, _, sigma in found]),
        release.count,
        release.rho,
        release.spent.get("rho", 0.0),
        own if own and own != list(names) else None,
    )


def _few(release: Release) -> list[tuple[str, float, float | None]]:
    """Return the numbers of a point; none for values that mean nothing one by one, are too many or cannot be named."""
    try:
        if not shape_of(release).value.alone:
            return []
        found = list(itertools.islice(named_numbers(release), MAX_NUMBERS + 1))
    except UNREADABLE:  # the stream goes on, whatever the page cannot draw
        return []
    return [] if len(found) > MAX_NUMBERS else found


def _shortest(sigmas: list[float | None]) -> list[float | None] | float | None:
    """Return one sigma for all if they are the same, which takes less room."""
    return sigmas[0] if len(set(sigmas)) == 1 else sigmas or None


# -- all numbers of one window ---------------------------------------------------------------------------------------


def details_of(release: Release) -> dict[str, Any]:
    """Return all numbers of a release that has a value, as a document with a key ``form``.

    ``numbers`` and ``bars``: ``groups`` with ``title`` and ``rows`` of (name, number, sigma). ``tables``: also
    ``tables`` with ``title``, names of ``rows`` and ``columns``, and ``cells``. ``places``: ``features`` and ``places``
    with coordinates, their sigmas, size and width. ``matrix``: ``features``, ``cells`` and ``sigmas``. What is too much
    for a page is left out, and ``left_out`` says how many.
    """
    parts, shape, left_out = release.parts or {}, shape_of(release), 0
    about: dict[str, Any] = {"open_ms": release.window_open_ms, "close_ms": release.window_close_ms}
    if shape.form == "rows":
        shares = synthetic_shares(release)
        groups = [_group(column, ((name, share, None) for name, share in rows)) for column, rows in shares.items()]
        about |= {"form": "bars", "groups": groups[:MAX_GROUPS], "rows_drawn": parts.get("rows")}
        left_out = max(0, len(groups) - MAX_GROUPS)
    elif shape.last.name == "cell":
        found, left_out = _tables(release)
        about |= found
    elif shape.form == "places":
        about |= {"form": "places", "features": release.features or [], "places": _places(release)[:MAX_ROWS]}
        left_out = max(0, len(release.value or ()) - MAX_ROWS)
    elif shape.form == "matrix":
        most = slice(MAX_GROUPS)
        cells = [row[most] for row in (release.value or [])[most]]
        sigmas = [row[most] for row in (release.sigma or [])[most]]
        about |= {"form": "matrix", "features": (release.features or [])[most], "cells": cells, "sigmas": sigmas}
        left_out = max(0, len(release.value or ()) - MAX_GROUPS)
    else:
        about |= {"form": "bars" if shape.is_table else "numbers", "groups": list(_numbers(release))}
    left_out += sum(max(0, group["length"] - MAX_ROWS) for group in about.get("groups", ()))
    return about | {"left_out": left_out, "count": release.count}


def _group(title: str, rows: Iterable[tuple[str, float, float | None]]) -> dict[str, Any]:
    found = [(name.removeprefix(f"{title}/"), value, sigma) for name, value, sigma in rows]
    return {"title": title, "rows": found[:MAX_ROWS], "length": len(found)}


def _numbers(release: Release) -> Iterator[dict[str, Any]]:
    parts, shape = release.parts or {}, shape_of(release)
    title = str(parts.get("feature", release.kind))
    if shape.form == "steps":
        yield _group(f"{title}: since the epoch began", named_numbers(release))
        window = parts.get("window") or {}
        if window.get("value"):
            last = replace(release, value=window["value"], sigma=window.get("sigma"))
            yield _group(f"{title}: in the last window", named_numbers(last))
        return
    yield _group(title, named_numbers(release))
    for numbers in shape.numbers[1:]:
        if numbers.axes == shape.value.axes and parts.get(numbers.name):
            own = replace(release, value=parts[numbers.name], sigma=parts.get(f"{numbers.stem}_sigma"))
            yield _group(numbers.name, named_numbers(own))


def _tables(release: Release) -> tuple[dict[str, Any], int]:
    """Return contingency tables: those of two columns as tables, others as bars; and how many are left out."""
    parts = release.parts or {}
    groups: list[dict[str, Any]] = []
    tables: list[dict[str, Any]] = []
    levels = {column["name"]: _levels(column) for column in parts["columns"]}
    sigma, left_out = parts.get("cell_sigma"), 0
    for names, cells in zip(parts["tables"], release.value or (), strict=False):
        sizes = [len(levels[name]) for name in names]
        if len(groups) + len(tables) == MAX_GROUPS:
            left_out += 1
        elif len(names) == 2 and max(sizes) <= _MAX_CELLS:
            rows = [cells[i * sizes[1] : (i + 1) * sizes[1]] for i in range(sizes[0])]
            tables.append({"title": names, "rows": levels[names[0]], "columns": levels[names[1]], "cells": rows})
        else:
            told = (", ".join(cell) for cell in itertools.product(*(levels[name] for name in names)))
            groups.append(_group(" and ".join(names), ((name, n, sigma) for name, n in zip(told, cells, strict=False))))
    return {"form": "tables", "groups": groups, "tables": tables, "sigma": sigma}, left_out


def _levels(column: dict[str, Any]) -> list[str]:
    edges = column.get("edges")
    if edges:
        return [f"{low:g}..{high:g}" for low, high in itertools.pairwise(edges)]
    return [str(level) for level in column["levels"]]


def _places(release: Release) -> list[dict[str, Any]]:
    """Return the coordinates of centers or points, with their sigmas, sizes and the widths of mixtures."""
    parts, value = release.parts or {}, release.value or []
    sizes = parts.get("weights") or parts.get("counts") or [None] * len(value)
    covariances = parts.get("covariances") or [None] * len(value)
    sigmas = release.sigma or [None] * len(value)
    return [
        {
            "at": at,
            "sigma": sigma,
            "size": size,
            "width": None if matrix is None else [math.sqrt(max(0.0, row[i])) for i, row in enumerate(matrix)],
        }
        for at, sigma, size, matrix in zip(value, sigmas, sizes, covariances, strict=True)
    ]
