"""Arguments that several functions about arrays take: each is checked once, and errors name it."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from ..noise.samplers import Noise
from ..stream.lattice import as_doubles

P = ParamSpec("P")
R = TypeVar("R")
_KEY = re.compile(r"^(?P<section>release|features|lattice|budget)(\.(?P<name>[\w.]+))?$")
_KEY_IN_TEXT = re.compile(r"(?<=`)(?P<section>release|features|lattice|budget)\.(?P<name>[\w.]+)(?=`)")
_ELSEWHERE = re.compile(r", or set `features\.origin`")  # what only a configuration can do
Bounds = tuple[float | Sequence[float], float | Sequence[float]]
"""A public box: its lower and its upper end, a number for all columns or a sequence with one for each."""


def naming_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function name its arguments, not keys of a configuration, in errors: the key, and what the text names."""
    known = list(inspect.signature(function).parameters)

    def argument(found: re.Match[str], is_dp: bool) -> str:
        section, name = found["section"], found["name"] or ""
        if section in ("budget", "release"):
            name = name or ("epsilon" if is_dp else "rho")
        if section == "features":  # of one, the range or another key; of all, the rows
            name = name.partition(".")[2] if "." in name or not name else "bounds"
            name = "bounds" if name in ("min", "max") else name
        elif section == "release":
            name = {"rows": "size"}.get(name, name) if "size" in known else name
        return name if name in known else known[0]

    @wraps(function)
    def asked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except ConfigError as error:
            named = partial(argument, is_dp=kwargs.get("epsilon") is not None)
            error.key, text = _KEY.sub(named, error.key), _ELSEWHERE.sub("", error.message)
            error.message = _KEY_IN_TEXT.sub(named, text)
            error.args = (f"{error.key}: {error.message}",)
            raise

    return asked


def number_of(value: Any, name: str) -> float:
    """Return a number as a float.

    Raises
    ------
    ConfigError
        It is a text, a truth value, or anything else.
    """
    is_number = isinstance(value, (int, float, np.integer, np.floating))
    if not is_number or isinstance(value, (bool, np.timedelta64)) or value != value:
        raise ConfigError(f"must be a number, got {_told(value)}", name)
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _told(value: Any) -> str:
    """Return what an error says about a value: of anything but one cell its type, since it may hold records."""
    is_plain = value is None or isinstance(value, (str, bool, int, float, np.generic))
    return repr(value) if is_plain else f"a {type(value).__name__}"


def check_delta(delta: float) -> None:
    """Refuse a number that is no delta.

    Raises
    ------
    ConfigError
    """
    if not 0 <= delta < 1:
        raise ConfigError(f"must be in [0, 1), got {delta:g}", "delta")


def whole_of(value: Any, name: str) -> int:
    """Return a whole number as an int.

    Raises
    ------
    ConfigError
        It is a float, a text, a truth value, or anything else.
    """
    if not isinstance(value, (int, np.integer)) or isinstance(value, (bool, np.timedelta64)):
        raise ConfigError(f"must be a whole number, got {_told(value)}", name)
    return int(value)


def whole_or_none(value: Any, name: str) -> int | None:
    """Return a whole number as an int, or None for None; see `whole_of`."""
    return None if value is None else whole_of(value, name)


def noise_of(noise: Any) -> Noise:
    """Return the noise that was given, or exact noise from the operating system for None.

    Raises
    ------
    ConfigError
        It is no `Noise`.
    """
    if noise is not None and not isinstance(noise, Noise):
        raise ConfigError(f"must be a `Noise`, such as Noise(SeededEntropy(1)), got a {type(noise).__name__}", "noise")
    return noise or Noise()


def ends_of(bounds: Any, dimension: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the lower and the upper ends (d,) of a public box, see `Bounds`.

    Raises
    ------
    ConfigError
    """
    wanted = f"(low, high) of two numbers, or of two lists of {dimension}, all lower ends before all upper ones"
    ends = [as_doubles(end, "bounds", wanted) for end in _pair(bounds, wanted)]
    if any(end.shape not in ((), (dimension,)) for end in ends):
        raise ConfigError(f"must be {wanted}", "bounds")
    low, high = (np.broadcast_to(end, (dimension,)).astype(np.float64) for end in ends)
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        raise ConfigError("must be finite, the lower ends below the upper ones", "bounds")
    return low, high


def _pair(bounds: Any, wanted: str) -> Sequence[Any]:
    try:
        ends = [] if isinstance(bounds, (str, bytes)) else list(bounds)
    except TypeError:
        ends = []
    if len(ends) != 2:
        raise ConfigError(f"must be {wanted}", "bounds")
    return ends


def number_or_none(value: Any, name: str) -> float | None:
    """Return a number as a float, or None for None; see `number_of`."""
    return None if value is None else number_of(value, name)


def numbers_of(values: Any, name: str) -> list[float]:
    """Return a list of numbers as floats.

    Raises
    ------
    ConfigError
        It is anything else.
    """
    found = as_doubles(values, name, "a list of numbers")
    if found.ndim != 1:
        raise ConfigError("must be a list of numbers", name)
    return list(map(float, found))


def cluster_number(k: Any) -> int | str:
    """Return a number of clusters as an int, or the word ``auto``.

    Raises
    ------
    ConfigError
        It is anything else.
    """
    if isinstance(k, str) and k != "auto":
        raise ConfigError(f"must be a whole number or 'auto', got {k!r}", "k")
    return k if isinstance(k, str) else whole_of(k, "k")


def texts_of(values: Any, name: str) -> list[str]:
    """Return a list of texts.

    Raises
    ------
    ConfigError
        It is anything else.
    """
    found = list(values) if isinstance(values, Iterable) and not isinstance(values, (str, bytes)) else [None]
    if not all(isinstance(value, str) for value in found):
        raise ConfigError("must be a list of texts", name)
    return list(map(str, found))


def check_method(method: Any) -> None:
    """Refuse what is no method of finding clusters.

    Raises
    ------
    ConfigError
    """
    if method not in ("auto", "tree", "friendly", "ktuples"):
        raise ConfigError(f"must be 'auto', 'tree', 'friendly' or 'ktuples', got {method!r}", "method")
