"""Checks of numbers that functions about losses take: each is checked where it comes in, and errors name it."""

from __future__ import annotations

import math
import numbers
from decimal import Decimal
from typing import Any

from ..errors import ConfigError, Shown


def whole(value: Any, name: str, least: int = 0) -> int:
    """Return a whole number of at least `least` as an int; ConfigError for anything else, truth values too."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < least:
        raise ConfigError(f"must be a whole number, at least {least}", name, got=Shown(_reported(value)))
    return int(value)


def _finite(value: Any, name: str) -> float:
    """Return a finite number as a float; ConfigError for nan, infinities, texts, truth values and anything else."""
    is_number = isinstance(value, (numbers.Real, Decimal)) and not isinstance(value, bool)
    if not is_number or not -math.inf < value < math.inf:
        raise ConfigError("must be a finite number", name, got=Shown(_reported(value)))
    return float(value)


def nonnegative(value: Any, name: str) -> float:
    """Return a finite number of at least 0 as a float; ConfigError for anything else."""
    found = _finite(value, name)
    if found < 0:
        raise ConfigError("must not be negative", name, got=Shown(_reported(value)))
    return found


def chance(value: Any, name: str) -> float:
    """Return a probability in (0, 1) as a float; ConfigError for anything else."""
    found = _finite(value, name)
    if not 0 < found < 1:
        raise ConfigError("must be in (0, 1)", name, got=Shown(_reported(value)))
    return found


def left_of(delta: Any) -> float:
    """Return what is left of a delta, below 1; 0 or less means that it is used up."""
    found = _finite(delta, "delta")
    if found >= 1:
        raise ConfigError("must be below 1", "delta", got=Shown(_reported(delta)))
    return found


def _reported(value: Any) -> str:
    """Return what an error says about a value: of anything but one plain value its type, since it may hold records."""
    is_plain = value is None or isinstance(value, (str, numbers.Number))
    return repr(value) if is_plain else f"a {type(value).__name__}"
