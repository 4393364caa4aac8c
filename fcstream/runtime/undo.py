"""Undoes a step if a block of code raises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def on_error(undo: Callable[..., object], *args: object) -> Iterator[None]:
    """Call `undo` with `args` if the block raises, and let the error propagate.

    It does so for every exception, an interrupt by Ctrl-C too, since an interrupted block is as incomplete as a failed
    one.
    """
    try:
        yield
    except BaseException:
        undo(*args)
        raise
