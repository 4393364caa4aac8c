"""Specification: the part of a configuration to which a ledger is bound, as canonical JSON that people can read.

It holds public keys only. Every key at its default is left out, so a key that is added later changes no ledger. A key
is part of the specification unless it is named here as free to change.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from ..releases.options import Options
from ..releases.registry import first_method
from .conversion import changed_keys
from .durations import NOW, duration_ms, instant_ms
from .sections import KeyDiscoverySection, Sections

_FREE_IN_STREAM = ("keys", "keys_per_user", "iso_times")
"""Which other keys there are shapes nothing, nor do times as texts; `promise` says how the budget is divided."""
_FREE_IN_WINDOW = ("lateness", "clock", "end", "ahead", "backlog")
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))


def specification(config: Sections) -> str:
    """Make the specification: everything that shapes a release. The schedule's end may change, its start and steps may
    not.

    Returns
    -------
    str
        Canonical JSON: sections by name, keys sorted, each only where it is not at its default.
    """
    window = _window(config)
    shape: dict[str, Any] = {
        "stream": _stream(config),
        "lattice": {} if config.lattice is None else changed_keys(config.lattice),
        "features": [changed_keys(feature) for feature in config.features],
        "window": window,
        "release": _release(config.releases[0])
        if len(config.releases) == 1
        else [_release(options) for options in config.releases],
    }
    if config.budget.savings != "none":
        shape["budget"] = {"savings": config.budget.savings}
        if config.window.end is not None:
            window["end"] = _instant(config.window.end, "window.end")
    if config.budget.group is not None:
        shape.setdefault("budget", {})["group"] = config.budget.group
    return canonical(shape)


def promise(config: Sections) -> str:
    """Return what the whole stream may cost, and the number of keys by which it is divided; it may only get smaller."""
    budget = {name: getattr(config.budget, name) for name in ("rho", "delta", "total_rho", "total_delta")}
    found: dict[str, Any] = {"budget": {name: value for name, value in budget.items() if value is not None}}
    if config.stream.keys_per_user is not None:
        found["stream"] = {"keys_per_user": config.stream.keys_per_user}
    return canonical(found)


def canonical(value: Any) -> str:
    """Return one spelling of a JSON value."""
    return json.dumps(msgspec.to_builtins(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _release(options: Options) -> dict[str, Any]:
    """Return the release's keys: always its kind, and its method if that is not the kind's first."""
    found = changed_keys(options, (*options.without_effect, "method")) | {"kind": options.kind}
    method = getattr(options, "method", None)
    if method != first_method(options.kind) and "method" not in options.without_effect:
        found["method"] = method
    return found


def _stream(config: Sections) -> dict[str, Any]:
    found, keys = changed_keys(config.stream, _FREE_IN_STREAM), config.stream.keys
    if isinstance(keys, KeyDiscoverySection):  # which key is found when follows from it; those of the first are free
        found["keys"] = changed_keys(keys, ("first",))
        found["keys"]["every"] = _duration(duration_ms(keys.every, "stream.keys.every"))
    return found


def _window(config: Sections) -> dict[str, Any]:
    found = changed_keys(config.window, _FREE_IN_WINDOW)
    if config.window.start != NOW:
        found["start"] = _instant(config.window.start, "window.start")
    for name in ("length", "slide"):
        if name in found:
            found[name] = _duration(duration_ms(found[name], f"window.{name}"))
    if found.get("slide") == found["length"]:
        del found["slide"]
    return found


def _instant(text: str, key: str) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=instant_ms(text, key))
    return moment.replace(tzinfo=None).isoformat(timespec="auto") + "Z"


def _duration(millis: int) -> str:
    """Return one spelling of a duration: in the largest unit that divides it."""
    unit, size = next(each for each in _UNITS if millis % each[1] == 0)
    return f"{millis // size}{unit}"
