"""What to undo where a block does not end well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def on_error(undo: Callable[..., object], *args: object) -> Iterator[None]:
    """Call `undo` with `args` if the block raises; its error goes on.

    For every error, an interrupt by Ctrl-C among them: a block that was interrupted leaves as much half done as one
    that failed.
    """
    try:
        yield
    except BaseException:
        undo(*args)
        raise
