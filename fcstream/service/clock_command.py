"""What ``fcstream clock`` tells and does: a person has looked at a clock after a jump, and says that it is right."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from ..config import Config
from ..connectors import is_queue
from ..errors import ConfigError, FcstreamError
from ..ledgers import each_reader
from ..ledgers.history import utc
from ..ledgers.terms_check import folded_name
from ..runtime.wall_clock import ACCEPTANCE, START_MS, TOLERANCE_MS, ClockNote, ClockNotes, boot, elapsed_ms, wall_ms
from ..runtime.words import many


class ClockState(NamedTuple):
    """What is known of a stream's clock.

    Attributes
    ----------
    notes : ClockNotes
    now_ms : int
        The time of this machine's clock.
    jump_ms : int or None
        By how much it has jumped ahead of the time that has passed; None if no process has noted that since the machine
        was started.
    newest_ms : int or None
        Close of the newest window that the ledger has charged; None if it has none.
    """

    notes: ClockNotes
    now_ms: int
    jump_ms: int | None
    newest_ms: int | None


def clock_state(config: Config) -> ClockState:
    """Read what is known of a stream's clock; nothing is changed.

    Raises
    ------
    ConfigError
        This machine's clock does not close the stream's windows.
    LedgerError
    """
    source = config.source
    if source is None or source.spool is None or not is_queue(source.url):
        raise ConfigError(
            "must be of a source with a spool: windows of other streams are closed by their broker's clock",
            "source.url",
        )
    notes = ClockNotes(Path(source.spool))
    note, elapsed, now = notes.load(), elapsed_ms(), wall_ms()
    jump = None
    if note is not None and note.boot == boot() != "":
        gap = now - elapsed - note.offset_ms
        limit = max(TOLERANCE_MS, config.job.schedule.lateness_ms)
        jump = gap if not -limit <= gap <= max(limit, note.ahead_ms) else 0
    return ClockState(notes, now, jump, _newest_close(config))


def _newest_close(config: Config) -> int | None:
    """Return the close of the newest window that is charged for the stream, or for any of its keys."""
    url, name = None if config.ledger is None else config.ledger.url, config.stream.name
    if url is None or url.startswith("memory:"):
        return None
    if url.startswith("sqlite:") and not Path(url.removeprefix("sqlite:")).exists():
        return None
    closes = []
    with closing(each_reader(url)) as readers:
        for reader in readers:
            if not reader.is_retired and folded_name(reader.terms.root) == folded_name(name):
                closes += [window.close_ms for window, _ in reader.charges()]
    return max(closes, default=None)


def trouble(state: ClockState) -> str | None:
    """Return what is wrong with a clock by which windows are to close; None if nothing is known to be."""
    if state.jump_ms:
        where = "ahead of" if state.jump_ms > 0 else "behind"
        return f"this machine's clock is {abs(state.jump_ms) / 1000:,.1f} s {where} the time that has passed"
    ahead = 0 if state.newest_ms is None else state.newest_ms - state.now_ms
    if ahead > TOLERANCE_MS:
        return f"the newest window of the ledger closes {ahead / 1000:,.1f} s ahead of this machine's clock"
    if state.jump_ms is None and -ahead > START_MS:
        return f"this machine's clock is {-ahead / START_MS:,.1f} days ahead of the newest window of the ledger"
    return None


def consequences(state: ClockState, config: Config) -> list[str]:
    """Say in sentences what happens if the clock is accepted as it is."""
    job, lines = config.job, [f"This machine's clock says {utc(state.now_ms)}."]
    if state.jump_ms:
        where = "ahead of" if state.jump_ms > 0 else "behind"
        lines.append(f"It is {abs(state.jump_ms) / 1000:,.1f} s {where} the time that has passed.")
    schedule, newest = job.schedule, state.newest_ms
    if newest is None:
        lines.append("The ledger has no window of this stream yet, so its first windows close by this clock.")
        return lines
    lines.append(f"The newest window of the ledger closed at {utc(newest)}.")
    due = schedule.due(state.now_ms) - schedule.index_after(newest - schedule.length_ms)
    if due > 0:
        lines.append(
            f"If the clock is accepted, {many(due, 'window')} {'is' if due == 1 else 'are'} released and charged at "
            "once (for each key); records that are timed before their ends and come later are rejected."
        )
    else:
        lines.append(
            f"If the clock is accepted, no window is released before {utc(newest + schedule.slide_ms)}, and records "
            "that are timed before the newest close are rejected, since their windows have been released."
        )
    return lines


def accept(state: ClockState) -> None:
    """Tell the process that serves the stream, or the next one, that the clock is right as it is.

    Raises
    ------
    FcstreamError
        The note cannot be written.
    """
    if not state.notes.folder.is_dir():
        raise ConfigError(
            "must be there: no process has served this stream yet", "source.spool", got=state.notes.folder
        )
    elapsed = elapsed_ms()
    try:
        state.notes.save(ClockNote(boot(), wall_ms() - elapsed, elapsed), ACCEPTANCE)
    except OSError as error:
        raise FcstreamError(f"{state.notes.folder} cannot be written: {error.strerror}") from None
