"""The list of all kinds of releases, one line each. Other packages add kinds by entry points or in code."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from ..errors import ConfigError, Shown
from .options import Options, keys_of

KINDS = {
    "mean/recentered": "means.searched:SearchOptions",
    "mean/friendly": "means.searched:SearchOptions",
    "mean/ball": "means.mean:MeanOptions",
    "mean/tracking": "means.tracking:TrackingOptions",
    "mean/auto": "means.automatic:AutoMeanOptions",
    "mean/basic": "means.approximate_dp:BasicOptions",
    "count": "statistics.count:CountOptions",
    "sum": "statistics.sum:SumOptions",
    "histogram": "statistics.histogram:HistogramOptions",
    "total": "totals.total:TotalOptions",
    "frequent": "statistics.frequent:FrequentOptions",
    "quantiles": "statistics.quantiles:QuantilesOptions",
    "variance": "statistics.variance:VarianceOptions",
    "centers/auto": "clusters.automatic:AutoCentersOptions",
    "centers/friendly": "clusters.automatic:AutoCentersOptions",
    "centers/ktuples": "clusters.automatic:AutoCentersOptions",
    "centers/tree": "clusters.tree_release:TreeCentersOptions",
    "mixtures/auto": "clusters.automatic:AutoMixturesOptions",
    "mixtures/friendly": "clusters.automatic:AutoMixturesOptions",
    "mixtures/ktuples": "clusters.automatic:AutoMixturesOptions",
    "mixtures/tree": "clusters.tree_mixtures:TreeMixturesOptions",
    "covariance/clipped": "statistics.clipped:ClippedCovarianceOptions",
    "covariance/friendly": "statistics.covariance:CovarianceOptions",
    "synthetic": "tables.synthetic:SyntheticOptions",
    "marginals": "tables.marginals:MarginalsOptions",
    "points/auto": "trees.automatic:AutoPointsOptions",
    "points/cells": "trees.automatic:AutoPointsOptions",
    "points/tree": "trees.drawn:TreePointsOptions",
    "tree": "trees.release:TreeOptions",
}
"""File and class of the options, by ``kind`` or ``kind/method``. The first method of a kind is its default."""
GROUP = "fcstream.releases"
_registered: dict[str, type[Options]] = {}


def register_release(name: str, options: type[Options]) -> None:
    """Make a kind of release known to configurations read by this process.

    Parameters
    ----------
    name : str
        ``KIND``, or ``KIND/METHOD`` for a method of a kind that has several. A package can declare the same by an entry
        point of the group ``fcstream.releases``, which the command line finds too.
    options : type
        Subclass of `fcstream.releases.options.Options`: its keys, and how they make a mechanism.

    Raises
    ------
    ConfigError
        The name is taken, or `options` is no subclass of `Options`.
    """
    if not (isinstance(options, type) and issubclass(options, Options)):
        raise ConfigError("must be a subclass of Options", f"release kind {name!r}", got=options)
    before = _registered.get(name, options)
    # A notebook's cell or a module may be run twice, which makes a new class of the same name: that is allowed.
    if name in KINDS or (before.__module__, before.__qualname__) != (options.__module__, options.__qualname__):
        raise ConfigError("is taken", f"release kind {name!r}", remedy="choose another name")
    _registered[name] = options


def find(kind: Any, method: Any = None) -> type[Options]:
    """Find the options class of a configuration's ``kind`` and ``method``.

    Raises
    ------
    ConfigError
        There is no such kind or method; the message lists the known ones.
    """
    names = [*KINDS, *_registered]
    if f"{kind}/{method}" not in names and (method is not None or kind not in names):
        names = list(dict.fromkeys([*names, *(entry.name for entry in entry_points(group=GROUP))]))
    methods = [name.partition("/")[2] for name in names if name.startswith(f"{kind}/")]
    if not methods:
        if kind not in names:
            kinds = list(dict.fromkeys(name.partition("/")[0] for name in names))
            raise ConfigError(f"must be {_listed(kinds)}", "release.kind", got=Shown(f"{kind!r}{_near(kind, kinds)}"))
        return _load(kind)
    if method is None:
        return _load(f"{kind}/{methods[0]}")
    if method not in methods:
        raise ConfigError(
            f"must be {_listed(methods)}", "release.method", got=Shown(f"{method!r}{_near(method, methods)}")
        )
    return _load(f"{kind}/{method}")


def check_keys(options: type[Options], values: Mapping[str, Any]) -> None:
    """Refuse keys that this kind does not have; the message says if another method or kind has the key.

    Raises
    ------
    ConfigError
    """
    own = keys_of(options)
    for key in values:
        if key in own:
            continue
        here = values.get("kind", "mean")
        methods = [name.partition("/")[2] for name in KINDS if name.startswith(f"{here}/") and _means(key, _load(name))]
        if methods:
            method = values.get("method", first_method(here))
            raise ConfigError(
                f"belongs to method {_listed(methods)}, not to {method!r}", f"release.{key}", remedy="leave it out"
            )
        others = sorted({name.partition("/")[0] for name in KINDS if _means(key, _load(name))} - {here})
        if others:
            raise ConfigError(
                f"belongs to kind {_listed(others)}, not to {here!r}", f"release.{key}", remedy="leave it out"
            )
        near = difflib.get_close_matches(str(key), own, n=1, cutoff=0.0)
        raise ConfigError("is not a known key", f"release.{key}", remedy=f"did you mean {near[0]!r}?")


def _means(key: str, options: type[Options]) -> bool:
    return key in keys_of(options) and key not in options.without_effect


def method_of(options: Options) -> str | None:
    """Return the method of a kind that has several, else None; for reports."""
    method = getattr(options, "method", None)
    is_known = any(name.startswith(f"{options.kind}/") for name in (*KINDS, *_registered))
    return method if method is not None and is_known else None


def first_method(kind: str) -> str | None:
    """Return the default method of a kind that has several, else None."""
    names = (*KINDS, *_registered)
    return next((name.partition("/")[2] for name in names if name.startswith(f"{kind}/")), None)


def section_name(options: type[Options]) -> str | None:
    """Return what a class of options is called in `fcstream.sections`: its kind, after a method that is no default.

    None for those of other packages.
    """
    for name in KINDS:
        kind, _, method = name.partition("/")
        if _load(name) is options:
            return kind.title() if issubclass(find(kind), options) else f"{method.title()}{kind.title()}"
    return None


def _load(name: str) -> type[Options]:
    if name in KINDS:
        module, _, cls = KINDS[name].partition(":")
        found = getattr(import_module(f"{__package__}.{module}"), cls)
    elif name in _registered:
        return _registered[name]
    else:
        found = next(iter(entry_points(group=GROUP, name=name))).load()
        if not (isinstance(found, type) and issubclass(found, Options)):
            raise ConfigError("its entry point must be a subclass of Options", f"release kind {name!r}", got=found)
    return found  # type: ignore[no-any-return]


def _listed(names: list[str]) -> str:
    quoted = [repr(name) for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"


def _near(name: Any, known: list[str]) -> str:
    near = difflib.get_close_matches(str(name), known, n=1)
    return f": did you mean {near[0]!r}?" if near else ""
