"""Undoes a step if a block of code raises."""

from __future__ import annotations

from collections.abc import Callable


class on_error:
    """Call `undo` with `args` if the block raises, and let the error propagate.

    It does so for every exception, an interrupt by Ctrl-C too, since an interrupted block is as incomplete as a failed
    one. If `undo` fails too, its error is a note of the first one; an interrupt of `undo` propagates itself.
    """

    __slots__ = ("_args", "_undo")

    def __init__(self, undo: Callable[..., object], *args: object) -> None:
        self._undo, self._args = undo, args

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            try:
                self._undo(*self._args)
            except Exception as second:
                error.add_note(f"Undoing it failed too: {type(second).__name__}: {second}")
