"""What a stream waits for outside of this process: reported while it lasts, and abandoned when the stream is to end.

A client that waits for its broker says nothing until it gives up, a minute later by default. So whoever calls one says
here what the call is about; somebody else looks how long it takes, and why it was tried again.
"""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

LOG = logging.getLogger("fcstream.runtime")
SLOW_S = 2.5
"""A call that takes longer is reported."""
_LOOK_S = 0.25


@dataclass(slots=True, eq=False)
class ExternalCall:
    """One call: of what, since when (`time.monotonic`), and what went wrong at its last try."""

    part: str
    since: float = field(default_factory=time.monotonic)
    why: str = ""


class ExternalCalls:
    """What one stream waits for.

    Parameters
    ----------
    ending : threading.Event
        The stream is to end, or to begin anew: nothing is tried again.

    Attributes
    ----------
    errors : dict of str to int
        How many tries failed, by part.
    """

    def __init__(self, ending: threading.Event) -> None:
        self.ending = ending
        self.errors: dict[str, int] = {}
        self._waits: list[ExternalCall] = []
        self._failed: tuple[str, BaseException] | None = None

    @contextmanager
    def calling(self, part: str) -> Iterator[None]:
        """The block is a call to the source, the sink or the ledger, or waits for kernels."""
        wait = ExternalCall(part)
        token = _CALL.set(wait)
        self._waits.append(wait)
        try:
            yield
        except Exception as error:
            if self._failed is None or self._failed[1] is not error:  # it may pass through two of these
                self._failed = part, error
                self.count(part)
            raise
        finally:
            self._waits.remove(wait)
            _CALL.reset(token)

    def count(self, part: str) -> None:
        """A try has failed."""
        self.errors[part] = self.errors.get(part, 0) + 1

    def longest(self, since: float = 0.0) -> tuple[str, float, str] | None:
        """What is waited for, for how many seconds (from `since` on), and why; None: nothing."""
        wait = min(list(self._waits), key=lambda wait: wait.since, default=None)
        return None if wait is None else (wait.part, time.monotonic() - max(since, wait.since), wait.why)

    @property
    def trouble(self) -> str | None:
        """What has not answered for too long."""
        found = self.longest()
        if found is None or found[1] < SLOW_S:
            return None
        part, seconds, why = found
        if part == "kernels":
            return f"kernels have been compiled for {seconds:.0f} s"
        return f"the {part} has not answered for {seconds:.0f} s" + (f": {why}" if why else "")

    def part_of(self, error: BaseException) -> str | None:
        """Where an error came from."""
        return self._failed[0] if self._failed is not None and self._failed[1] is error else None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """While the block runs, on its thread: `calling` is about this stream, and what takes long is logged."""
        token, over = _CALLS.set(self), threading.Event()
        about = contextvars.copy_context()
        watcher = threading.Thread(target=about.run, args=(self._watch, over), name="fcstream-waiting", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()
            _CALLS.reset(token)

    def _watch(self, over: threading.Event) -> None:
        reported: str | None = None
        while not over.wait(_LOOK_S):
            found = self.longest()
            if found is not None and found[1] >= SLOW_S:
                if reported != found[0]:
                    LOG.warning("%s", self.trouble or f"the {found[0]} does not answer")
                reported = found[0]
            elif reported is not None:
                LOG.info("no longer waited for: %s", reported)
                reported = None


_CALLS: contextvars.ContextVar[ExternalCalls | None] = contextvars.ContextVar("outside", default=None)
_CALL: contextvars.ContextVar[ExternalCall | None] = contextvars.ContextVar("wait", default=None)

_IMPATIENT: contextvars.ContextVar[bool] = contextvars.ContextVar("impatient", default=False)


@contextmanager
def calling(part: str) -> Iterator[None]:
    """See `ExternalCalls.calling`; of the stream that this thread serves, if it serves one."""
    outside = _CALLS.get()
    if outside is None:
        yield
    else:
        with outside.calling(part):
            yield


def note_failure(why: str) -> None:
    """The call under way has failed, and is tried again. `why` is logged: nothing of a record, no secret."""
    if (wait := _CALL.get()) is not None and (outside := _CALLS.get()) is not None:
        wait.why = why
        outside.count(wait.part)


@contextmanager
def without_retry() -> Iterator[None]:
    """Inside the block nothing is tried again."""
    token = _IMPATIENT.set(True)
    try:
        yield
    finally:
        _IMPATIENT.reset(token)


def is_over() -> bool:
    """Whether nothing is to be tried again: the stream is to end, or something new is tried out."""
    outside = _CALLS.get()
    return _IMPATIENT.get() or (outside is not None and outside.ending.is_set())


def pause(seconds: float) -> None:
    """Sleep before the next try, no longer than until the stream is to end."""
    outside = _CALLS.get()
    if outside is None:
        time.sleep(seconds)
    else:
        outside.ending.wait(seconds)
