"""How long what was spent is kept, by the URL of a ledger, in words for people."""

from __future__ import annotations

from typing import NamedTuple

from .base import is_shared

MEMORY = "memory:"


class Keeping(NamedTuple):
    """What a ledger does with what was spent.

    Attributes
    ----------
    lasts : str
        How long the guarantee holds, as in "the guarantee ... holds for ever".
    place : str
        Where the ledger is, as in "charged to a ledger on disk".
    forgets : bool
        Whether it ends with the process.
    """

    lasts: str
    place: str
    forgets: bool = False


def keeping_of(url: str | None) -> Keeping:
    """Say how the ledger of a URL keeps what was spent; None stands for one that a program hands over."""
    scheme = None if url is None else url.partition(":")[0]
    if scheme == "memory":
        return Keeping("in this process only", "a ledger in this process's memory", forgets=True)
    if scheme == "sqlite":
        return Keeping("for ever", "a ledger on disk")
    if url is not None and is_shared(url):
        return Keeping("for ever", "a ledger in a database")
    return Keeping(
        "for ever", "the ledger that the program hands over" if url is None else "a ledger of another package"
    )
