"""What the numbers of a release are: along which axes they lie, what they count, and the form in which they are drawn.

The shape of a mechanism's releases is public and known before any of them. Those of this package's kinds are found by
the kind's name, so that a release need not repeat them; a release of another package's kind carries its own.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Law = Literal["count", "normal", "own", "none"]
Form = Literal["lines", "steps", "bars", "fan", "matrix", "places", "boxes", "rows"]


class Axis(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One axis along which numbers lie.

    Attributes
    ----------
    name : str
        What lies along it, as one word in the singular: ``feature``, ``bin``, ``center``.
    labels : tuple of str
        Where a release names them: ``features``, or names of `parts`, of which the first that is there counts.
        Bins are named by ``edges``, one more than bins, and values by ``categories``, which others follow. Without a
        name they are numbered from 0.
    found : bool
        Whether each window has as many of them as it needs.
    """

    name: str
    labels: tuple[str, ...] = ()
    found: bool = False

    def size(self, features: list[str] | None, parts: dict[str, Any]) -> int | None:
        """Return how many there are by what a release names; None if it does not tell."""
        told = self.told(features, parts)
        if told is None or told[0] == "columns":
            return None
        return len(told[1]) + {"edges": -1, "categories": 1}.get(told[0], 0)

    def told(self, features: list[str] | None, parts: dict[str, Any]) -> tuple[str, Any] | None:
        """Return where a release names what lies along the axis, and the names; None if it does not."""
        for name in self.labels:
            held = features if name == "features" else parts.get(name)
            if held is not None:
                return name, held
        return None


class Numbers(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Numbers of a release that lie along the same axes.

    Attributes
    ----------
    name : str
        ``value``, or where they are among `parts` of a release.
    axes : tuple of int
        Places of their axes in `ResultShape.axes`, the outer one first.
    law : str
        Law of the noise, from which an interval follows: ``count`` (one discrete Gaussian), ``normal``, or ``none``.
        ``own``: the mechanism hands the interval. The deviations of ``correlations`` are ``correlation_sigma``.
    alone : bool
        Whether a number means something by itself, so that it has a history.
    hidden : bool
        Whether they are no result but what results are drawn from: they are in no table.
    needed : bool
        Whether every release of a value has them.
    """

    name: str = "value"
    axes: tuple[int, ...] = (0,)
    law: Law = "normal"
    alone: bool = True
    hidden: bool = False
    needed: bool = False

    @property
    def stem(self) -> str:
        """What the names of their sigma and interval begin with."""
        return self.name.removesuffix("s")


class ResultShape(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What the releases of a mechanism hold.

    Attributes
    ----------
    axes : tuple of Axis
    numbers : tuple of Numbers
        The value is the first.
    form : str
        How they are drawn: ``lines`` over time, ``steps`` that rise through an epoch, ``bars``, a ``fan`` of levels, a
        ``matrix``, ``places`` in a plane, ``boxes``, or the ``rows`` that are drawn from them.
    error : str
        How releases are compared with the truth that their mechanism states: by ``difference``, also by ``rank`` among
        the records, each ``matched`` with the nearest; ``none`` if it states none.
    subject : str or None
        What of a feature the numbers are, where that is not its mean: ``variance``; ``records`` for their number.
    """

    axes: tuple[Axis, ...] = (Axis(name="feature", labels=("features",)),)
    numbers: tuple[Numbers, ...] = (Numbers(),)
    form: Form = "lines"
    subject: str | None = None
    error: Literal["difference", "rank", "matched", "none"] = "none"

    def __post_init__(self) -> None:
        if not self.numbers or any(not 0 <= at < len(self.axes) for each in self.numbers for at in each.axes):
            raise ValueError("numbers must lie along axes of their shape, and the value must be there")
        if not self.value.axes:
            raise ValueError("the value must lie along an axis")

    @property
    def value(self) -> Numbers:
        return self.numbers[0]

    def axes_of(self, numbers: Numbers) -> list[Axis]:
        return [self.axes[at] for at in numbers.axes]

    @property
    def last(self) -> Axis:
        """The axis of the value along which numbers lie side by side."""
        return self.axes[self.value.axes[-1]]

    @property
    def is_found(self) -> bool:
        """Whether windows differ in how many numbers their value has."""
        return any(axis.found for axis in self.axes_of(self.value))

    @property
    def is_table(self) -> bool:
        """Whether each window has a number for every bin, cell, text or level."""
        return self.form in ("bars", "rows") or (self.form == "steps" and self.last.name == "bin")


_FEATURE = Axis(name="feature", labels=("features",))
_ROW, _COLUMN = Axis(name="row", labels=("features",)), Axis(name="column", labels=("features",))
_CENTER, _POINT, _BOX = (Axis(name=name, found=True) for name in ("center", "point", "box"))
_BIN = Axis(name="bin", labels=("edges", "categories"))
_PLACES = (Numbers(axes=(0, 1)), Numbers(name="counts", law="none"), Numbers(name="weights", law="none"))
_ENDS = tuple(Numbers(name=name, axes=(0, 1), law="none", needed=True) for name in ("low", "high"))
_COUNT = ResultShape(
    axes=(Axis(name="answer"),), numbers=(Numbers(law="count"),), subject="records", error="difference"
)
_MEAN = Numbers(name="mean")

SHAPES = {
    "mean": ResultShape(error="difference"),
    "count": _COUNT,
    "sum": ResultShape(subject="sum", error="difference"),
    "variance": ResultShape(numbers=(Numbers(), _MEAN), subject="variance", error="difference"),
    "histogram": ResultShape(axes=(_BIN,), numbers=(Numbers(law="count"),), form="bars", error="difference"),
    "total": ResultShape(form="steps"),
    "total/count": ResultShape(axes=_COUNT.axes, form="steps", subject="records"),
    "total/sum": ResultShape(form="steps", subject="sum"),
    "total/histogram": ResultShape(axes=(_BIN,), form="steps"),
    "frequent": ResultShape(
        axes=(Axis(name="text", labels=("levels",), found=True),), numbers=(Numbers(law="count"),), form="bars"
    ),
    "quantiles": ResultShape(axes=(Axis(name="quantile", labels=("quantiles",)),), form="fan", error="rank"),
    "covariance": ResultShape(
        axes=(_ROW, _COLUMN),
        numbers=(
            Numbers(axes=(0, 1)),
            Numbers(name="correlations", axes=(0, 1)),
            _MEAN,
            Numbers(name="coefficients", axes=()),
        ),
        form="matrix",
        error="difference",
    ),
    "centers": ResultShape(axes=(_CENTER, _FEATURE), numbers=_PLACES, form="places", error="matched"),
    "mixtures": ResultShape(
        axes=(Axis(name="component", found=True), _FEATURE),
        numbers=(*_PLACES, Numbers(name="covariances", axes=(0, 1, 1))),
        form="places",
    ),
    "points": ResultShape(
        axes=(_POINT, _FEATURE), numbers=(Numbers(axes=(0, 1), alone=False), _PLACES[2]), form="places"
    ),
    "tree": ResultShape(axes=(_BOX, _FEATURE), numbers=(Numbers(), *_ENDS), form="boxes"),
    "marginals": ResultShape(
        axes=(Axis(name="table", labels=("tables",)), Axis(name="cell", labels=("columns",))),
        numbers=(Numbers(axes=(0, 1), law="own", alone=False),),
        form="bars",
        error="difference",
    ),
    "synthetic": ResultShape(
        axes=(_POINT, Axis(name="level")),
        numbers=(
            Numbers(axes=(0, 1), law="none", alone=False, hidden=True),
            Numbers(name="weights", law="none", needed=True),
        ),
        form="rows",
    ),
}
"""By kind, of a total by what it is of. The shape of another package's kind is an attribute of its mechanism."""
