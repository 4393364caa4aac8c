"""This machine's clock, compared with the time that has really passed, so that a jump of it decides nothing.

A clock jumps when somebody sets it, when a time server corrects it by much, or when a machine starts with a wrong one.
Until a person has looked, or the clock has come back by itself, the time goes on as it was before the jump.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

LOG = logging.getLogger("fcstream.clock")
TOLERANCE_MS = 1002
"""Jump, in milliseconds, that is always ignored: a leap second, and what two clocks are rounded by."""
START_MS = 86_400_000
"""By how much, in milliseconds, a clock may be ahead at a start of what was last known, because nobody was there."""
NOTES, ACCEPTANCE = "clock", "clock-accepted"
"""Files of a folder: what a process knows of the clock, and which jump a person has accepted."""
_DRIFT = 1000  # a corrected clock may be slower or faster by one part in so many while no process watches it
_NOTE_MS = 60_000
_ASK_MS = 1000
_APART_MS, _TRIES = 20, 100
_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # goes on while the machine is suspended
_BOOT = "/proc/sys/kernel/random/boot_id"


def wall_ms() -> int:
    """Return the time of this machine's clock in Unix milliseconds."""
    return time.time_ns() // 1_000_000


def elapsed_ms() -> int:
    """Return milliseconds since the machine was started; nobody can set this, and a suspended machine counts on."""
    return time.clock_gettime_ns(_ELAPSED) // 1_000_000


def boot() -> str:
    """Return the name of this run of the machine, within which `elapsed_ms` goes on; empty where there is none."""
    with suppress(OSError):
        return Path(_BOOT).read_text("ascii").strip()
    return ""


class ClockNote(NamedTuple):
    """What is known of a clock.

    Attributes
    ----------
    boot : str
        See `boot`.
    offset_ms : int
        The time less `elapsed_ms`.
    elapsed_ms : int
        When this was noted.
    ahead_ms : int
        By how much more than that time it may have been, since the machine was off for an unknown time.
    """

    boot: str
    offset_ms: int
    elapsed_ms: int
    ahead_ms: int = 0


class ClockNotes:
    """The two small files by which processes, and the people who run them, tell each other of a stream's clock.

    Parameters
    ----------
    folder : Path
        Nothing is written while it is absent.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, name: str = NOTES) -> ClockNote | None:
        """Return what is noted; None if nothing is, or nothing that can be read."""
        try:
            found = ClockNote(**json.loads((self.folder / name).read_bytes()))
        except (OSError, ValueError, TypeError):
            return None
        is_sound = isinstance(found.boot, str) and all(isinstance(number, int) for number in found[1:])
        return found if is_sound else None

    def save(self, note: ClockNote, name: str = NOTES) -> None:
        """Replace what is noted.

        Raises
        ------
        OSError
        """
        fresh = self.folder / f"{name}.new"
        file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(file, "w", encoding="ascii") as writer:
            json.dump(note._asdict(), writer)
        os.replace(fresh, self.folder / name)

    def take_acceptance(self) -> ClockNote | None:
        """Return what a person has accepted, once."""
        found = self.load(ACCEPTANCE)
        if found is not None:
            with suppress(OSError):
                (self.folder / ACCEPTANCE).unlink()
        return found


class WallClock:
    """The time of one stream by this machine's clock, which does not follow a jump.

    Parameters
    ----------
    stream : str
        Its name, for the log.
    tolerance_ms : int
        Larger steps of the clock, ahead or back, are jumps; smaller ones are followed.
    remedy : str
        What a person does who finds that the clock is right after a jump.
    notes : ClockNotes, optional
        Where the next process finds what this one knows, and this one what a person has accepted.
    wall, elapsed : callable
        See `wall_ms` and `elapsed_ms`.
    boot_name : str, optional
        See `boot`.

    Notes
    -----
    A clock that comes back within the tolerance is followed again. May be used by several threads.

    Privacy
    -------
    Depends on clocks, on public times of the ledger and on what a person does, never on a record.

    Source
    ------
    Specification 13.3; ours.
    """

    def __init__(
        self,
        stream: str,
        tolerance_ms: int = TOLERANCE_MS,
        remedy: str = "call `clock.accept()` of the engine",
        notes: ClockNotes | None = None,
        wall: Callable[[], int] = wall_ms,
        elapsed: Callable[[], int] = elapsed_ms,
        boot_name: str | None = None,
    ) -> None:
        self._stream, self._remedy, self._notes = stream, remedy, notes
        self._tolerance_ms = max(tolerance_ms, TOLERANCE_MS)
        self._wall, self._elapsed = wall, elapsed
        self._boot = "" if notes is None else boot() if boot_name is None else boot_name
        self._lock = threading.RLock()
        _, now, after = self._read()
        self._offset_ms = now - after
        self._ahead_ms = self._tolerance_ms  # how far the clock may be ahead
        self._since = "the time that has passed"
        self._jump_ms = 0
        self._known_ms: int | None = None  # the time that an earlier run of the machine has seen
        self._is_compared = False
        self._ask_at = self._note_at = after
        noted = None if notes is None else notes.load()
        if noted is not None and noted.boot == self._boot != "":
            self._offset_ms, self._is_compared = noted.offset_ms, True
            self._ahead_ms = max(self._ahead_ms, noted.ahead_ms) + max(0, elapsed() - noted.elapsed_ms) // _DRIFT
        elif noted is not None:
            self._known_ms = noted.elapsed_ms + noted.offset_ms

    def now_ms(self) -> int:
        """Return the time, in Unix milliseconds, as it is without a jump."""
        return self._look()[0]

    @property
    def jump_ms(self) -> int:
        """By how much the machine's clock is ahead of `now_ms` (negative: behind it); 0 if it is followed."""
        self._look()
        return self._jump_ms

    def bounds_ms(self) -> tuple[int, int]:
        """Return the earliest and the latest time that it may be now; after a jump nobody knows which.

        A clock that is ahead is believed for `START_MS` at most, so that no record can be kept for a window that lies
        years ahead.
        """
        now, wall = self._look()
        if not self._jump_ms:
            return now, now
        return min(now, wall), now + min(START_MS, max(self._ahead_ms, wall - now))

    @property
    def hold(self) -> str | None:
        """Why no window may be closed, and what to do; None if windows may be closed."""
        jump = self.jump_ms
        return self._text(jump) if jump else None

    def compare(self, known_ms: int | None, slack_ms: int = 0) -> None:
        """Compare the clock, at the first call, with the newest time that is known from before this process.

        Parameters
        ----------
        known_ms : int or None
            For instance the close of the newest window of the ledger.
        slack_ms : int
            By how much more than `START_MS` the clock may be ahead of it.
        """
        with self._lock:
            if self._is_compared:
                return
            self._is_compared = True
            known = max((each for each in (known_ms, self._known_ms) if each is not None), default=None)
            if known is None or self.jump_ms:
                return
            now = self.now_ms()
            if not known - self._tolerance_ms <= now <= known + START_MS + slack_ms:
                self._offset_ms, self._ahead_ms = known - self._elapsed(), START_MS + slack_ms
                self._since = (
                    f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(known // 1000))}, the newest time known"
                )
                self._look()

    def accept(self) -> None:
        """Follow the machine's clock as it is now."""
        with self._lock:
            _, wall, elapsed = self._read()
            self._follow(wall - elapsed, "was accepted")

    def _text(self, jump: int) -> str:
        where = "ahead of" if jump > 0 else "behind"
        return (
            f"this machine's clock is {abs(jump) / 1000:,.1f} s {where} {self._since}: no window is closed until it is "
            f"right again, or, if it is right now, until you {self._remedy}"
        )

    def _read(self) -> tuple[int, int, int]:
        """Read the time that has passed, the clock, and that time again: as close together as this thread runs."""
        for _ in range(_TRIES):
            found = self._elapsed(), self._wall(), self._elapsed()
            if found[2] - found[0] <= _APART_MS:
                break
        return found

    def _look(self) -> tuple[int, int]:
        """Return the time without a jump, and that of the machine's clock."""
        with self._lock:
            before, wall, after = self._read()
            self._ask(wall - after, after)
            early, late = wall - after - self._offset_ms, wall - before - self._offset_ms
            # While this thread did not run, the two clocks were not read together: the smaller difference counts.
            jump = 0 if early <= 0 <= late else early if early > 0 else late
            if -self._tolerance_ms <= jump <= self._ahead_ms:
                self._follow(self._offset_ms + jump, "is right again")
                now = wall
            else:
                now = after + self._offset_ms
                is_new = not self._jump_ms
                self._jump_ms = jump
                if is_new:
                    LOG.warning("stream %r: %s", self._stream, self._text(jump))
                    self._note_at = after
            if after >= self._note_at:
                self._note(after)
            return now, wall

    def _follow(self, offset_ms: int, why: str) -> None:
        self._offset_ms, self._ahead_ms = offset_ms, self._tolerance_ms
        self._since = "the time that has passed"
        if self._jump_ms:
            self._jump_ms, self._note_at = 0, self._elapsed()
            LOG.warning("stream %r: this machine's clock %s: windows are closed again", self._stream, why)

    def _ask(self, offset_ms: int, elapsed: int) -> None:
        """Look whether a person has accepted the clock as it is now."""
        if self._notes is None or not self._jump_ms or elapsed < self._ask_at:
            return
        self._ask_at = elapsed + _ASK_MS
        accepted = self._notes.take_acceptance()
        if accepted is None:
            return
        if accepted.boot == self._boot and abs(accepted.offset_ms - offset_ms) <= self._tolerance_ms:
            self._follow(offset_ms, "was accepted")
        else:
            LOG.warning(
                "stream %r: the clock was accepted when it showed another time: this counts no more", self._stream
            )

    def _note(self, elapsed: int) -> None:
        self._note_at = elapsed + _NOTE_MS
        if self._notes is not None and self._notes.folder.is_dir():
            with suppress(OSError):  # the next process then compares with what the ledger knows
                self._notes.save(ClockNote(self._boot, self._offset_ms, elapsed, self._ahead_ms))
