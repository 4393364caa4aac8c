"""Checks that the folder of compiled code is safe to run code from, and reports when code is compiled."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..errors import ConfigError

VARIABLE = "NUMBA_CACHE_DIR"


def check_cache(folder: str) -> None:
    """Refuse a cache folder into which other users can put compiled code.

    Such code would run with this user's rights and see the data.

    Parameters
    ----------
    folder : str
        The folder that `NUMBA_CACHE_DIR` names, or an empty text. A folder that does not exist is made at once, for
        this user alone: in a shared folder such as /tmp another user could otherwise make it first.

    Raises
    ------
    ConfigError
    """
    if not folder or os.name != "posix":
        return
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError:
        return  # no compiled code can be stored in such a folder, so none can be loaded from it
    reason = _why_unsafe(folder)
    if reason is not None:
        raise ConfigError(
            f"must be a folder that no other user can write to: {reason}, so that somebody else's code would run here",
            VARIABLE,
            remedy=f"name a folder of your own (mkdir -m 700) or unset the variable, got {folder}",
        )


def _why_unsafe(folder: str) -> str | None:
    path = os.path.realpath(folder)
    ours = {0, os.geteuid()}
    for ancestor in _up(path):
        state = os.stat(ancestor)
        # In a sticky folder such as /tmp others cannot replace what we own.
        may_be_replaced = bool(state.st_mode & stat.S_IWOTH) and (ancestor == path or not state.st_mode & stat.S_ISVTX)
        if may_be_replaced:
            return f"{ancestor} is writable by everybody"
        if state.st_uid not in ours:
            return f"{ancestor} belongs to another user"
    if os.path.isdir(path):
        for entry in os.scandir(path):
            state = entry.stat(follow_symlinks=False)
            if state.st_uid not in ours or (state.st_mode & stat.S_IWOTH and not stat.S_ISLNK(state.st_mode)):
                return f"{entry.path} is another user's, or writable by everybody"
    return None


def _up(path: str) -> list[str]:
    """List a folder and all its parent folders, as far as they exist."""
    found = []
    while True:
        if os.path.lexists(path):
            found.append(path)
        parent = os.path.dirname(path)
        if parent == path:
            return found
        path = parent


compiled = threading.Event()
"""Cleared while a process compiles what it needs, and must use none of it yet."""
compiled.set()
_watchers: list[Callable[[], object]] = []


@contextmanager
def watching_compilation(callback: Callable[[], object]) -> Iterator[None]:
    """Call `callback`, on the compiling thread, whenever a function that is not in the cache begins to be compiled."""
    _watchers.append(callback)
    try:
        yield
    finally:
        _watchers.remove(callback)


def compilation_begins() -> None:
    """Report that a function is about to be compiled; kernels call this."""

    for tell in list(_watchers):
        tell()
