"""Undoes a step if a block of code raises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def on_error(undo: Callable[..., object], *args: object) -> Iterator[None]:
    """Call `undo` with `args` if the block raises, and let the error propagate.

    It does so for every exception, an interrupt by Ctrl-C too, since an interrupted block is as incomplete as a failed
    one. If `undo` fails too, its error is a note of the first one; an interrupt of `undo` propagates itself.
    """
    try:
        yield
    except BaseException as error:
        try:
            undo(*args)
        except Exception as second:
            error.add_note(f"Undoing it failed too: {type(second).__name__}: {second}")
        raise
