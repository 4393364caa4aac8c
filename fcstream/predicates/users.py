"""Predicate that the caller writes as a Python function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, Shown
from .base import LANES, Arrays, Family, Predicate

_SAMPLE = 16
_TYPES = (np.dtype(np.float64), np.dtype(np.int64), np.dtype(np.uint64))


@functools.lru_cache(maxsize=64)
def _kernels(function: Callable[[Any, Any], bool]) -> tuple[Callable[..., None], Callable[..., int]]:
    """Compile a function's kernels, once in a process however many counters use it."""
    from .._kernels import users

    compare, check = users.kernels(function)  # type: ignore[no-untyped-call]
    return compare, check


class _UserFamily(Family):
    """Storage of items, unchanged, one after the other."""

    def __init__(self, function: Callable[[Any, Any], bool]) -> None:
        self._compare, self._check = _kernels(function)
        self._shape: tuple[int, ...] = ()
        self._dtype: np.dtype[Any] | None = None

    def check(self, items: object) -> NDArray[Any]:
        array = np.asarray(items)
        if array.dtype not in _TYPES or array.ndim < 1:
            raise ConfigError("must be float64, int64 or uint64 of shape (n, ...)", "items", got=array.dtype)
        if self._dtype is not None and (array.dtype, array.shape[1:]) != (self._dtype, self._shape):
            raise ConfigError(
                f"must be {self._dtype} items of shape {self._shape} like the first ones",
                "items",
                got=Shown(f"{array.dtype} of {array.shape[1:]}"),
            )
        rows = np.ascontiguousarray(array)
        sample = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), _SAMPLE)).astype(np.int64))
        wrong = self._run(self._check, rows, sample)
        if wrong:
            rule = ("reflexive: f(x, x)", "symmetric: f(x, y) == f(y, x)")[wrong - 1]
            raise ConfigError(f"must be {rule}, but it was not on a sample of the items", "function")
        self._dtype, self._shape = array.dtype, array.shape[1:]
        return rows

    def allocate(self, tiles: int) -> Arrays:
        return (np.zeros((tiles * LANES, *self._shape), self._dtype),)

    def store(self, rows: Arrays, first: int, arrays: Arrays) -> None:
        (items,) = arrays
        start, stop = max(0, -first), min(len(rows[0]), len(items) - first)
        items[first + start : first + stop] = rows[0][start:stop]

    def compare(self, rows: Arrays, arrays: Arrays, used: int, first: int, masks: NDArray[np.uint64]) -> None:
        self._run(self._compare, *rows, *arrays, used, first, masks)

    @staticmethod
    def _run(kernel: Callable[..., Any], *arguments: Any) -> Any:
        """Call a kernel; an error in it may quote items, so only the error's type is shown."""
        try:
            return kernel(*arguments)
        except Exception as error:
            raise ConfigError(
                "must compile with numba.njit for two items and must not raise",
                "function",
                got=Shown(type(error).__name__),
                remedy="try it on two invented items",
            ) from None


@dataclass(frozen=True, slots=True)
class UserPredicate(Predicate):
    """Predicate written by the caller: ``function(x, y) -> bool`` on two items, compiled by Numba.

    Parameters
    ----------
    function : callable
        An `njit` function, or a plain Python function, which is then compiled by `njit`. It gets two rows x[i], y[j] of
        arrays (n, ...) and must not write to them.

    Raises
    ------
    ConfigError
        The argument is not callable. Raised when items are added: the function does not compile for them, raises an
        error, or is not reflexive or symmetric on a sample of up to 16 items of the call.

    Notes
    -----
    Items are float64, int64 or uint64 (n, ...); the first call fixes type and shape.

    The caller is responsible for a function that is symmetric, reflexive and pure: privacy depends on it, and the check
    of a sample proves nothing. Floating-point sums must depend on nothing but the two items (no `fastmath`).

    The compiled code cannot be cached: every process that uses the function compiles for about a second.

    Complexity
    ----------
    One call per pair, which LLVM may inline, without vector instructions across pairs.


    Source
    ------
    Specification 3.5; proof 3.1; ours: Tsfadia et al. 2022, section 4, takes any reflexive predicate.
    """

    function: Callable[[Any, Any], bool]

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ConfigError("must be a function of two items", "function", got=Shown(type(self.function).__name__))

    def _family(self) -> Family:
        return _UserFamily(self.function)
