"""Registers calls to outside systems: reports the ones that take long, and stops their retries when the stream ends.

A client that waits for its broker reports nothing until it gives up, a minute later by default. So the caller registers
here what the call is about, and a monitor reads how long the call has lasted and why it was retried.
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
"""Seconds after which a call is reported."""
_LOOK_S = 0.25


@dataclass(slots=True, eq=False)
class ExternalCall:
    """One call: what is called, since when (`time.monotonic`), and the error of its last try."""

    part: str
    since: float = field(default_factory=time.monotonic)
    why: str = ""


class ExternalCalls:
    """The calls to outside systems that one stream waits for.

    Parameters
    ----------
    ending : threading.Event
        Set when the stream is to end or to restart: then nothing is retried.

    Attributes
    ----------
    errors : dict of str to int
        Number of failed tries, by part.
    """

    def __init__(self, ending: threading.Event) -> None:
        self.ending = ending
        self.errors: dict[str, int] = {}
        self._waits: list[ExternalCall] = []
        self._failed: tuple[str, BaseException] | None = None

    @contextmanager
    def calling(self, part: str) -> Iterator[None]:
        """Mark the block as a call to the source, the sink or the ledger."""
        wait = ExternalCall(part)
        token = _CALL.set(wait)
        self._waits.append(wait)
        try:
            yield
        except Exception as error:
            if self._failed is None or self._failed[1] is not error:  # an error may pass through two nested blocks
                self._failed = part, error
                self.count(part)
            raise
        finally:
            self._waits.remove(wait)
            _CALL.reset(token)

    def count(self, part: str) -> None:
        """Note that a try has failed."""
        self.errors[part] = self.errors.get(part, 0) + 1

    def longest(self, since: float = 0.0) -> tuple[str, float, str] | None:
        """Return the call under way, its seconds (from `since` on) and its last error; None if there is none."""
        wait = min(list(self._waits), key=lambda wait: wait.since, default=None)
        return None if wait is None else (wait.part, time.monotonic() - max(since, wait.since), wait.why)

    @property
    def trouble(self) -> str | None:
        """Return the call that has not been answered for too long."""
        found = self.longest()
        if found is None or found[1] < SLOW_S:
            return None
        part, seconds, why = found
        return f"the {part} has not answered for {seconds:.0f} s" + (f": {why}" if why else "")

    def part_of(self, error: BaseException) -> str | None:
        """Return the part that an error came from."""
        return self._failed[0] if self._failed is not None and self._failed[1] is error else None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Bind `calling` to this stream while the block runs on this thread, and log calls that take long."""
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
    """Mark the block as a call of the stream that this thread serves, if any; see `ExternalCalls.calling`."""
    outside = _CALLS.get()
    if outside is None:
        yield
    else:
        with outside.calling(part):
            yield


def note_failure(why: str) -> None:
    """Note that the call under way has failed and is retried. `why` is logged: no record's content and no secret."""
    if (wait := _CALL.get()) is not None and (outside := _CALLS.get()) is not None:
        wait.why = why
        outside.count(wait.part)


@contextmanager
def without_retry() -> Iterator[None]:
    """Forbid retries inside the block."""
    token = _IMPATIENT.set(True)
    try:
        yield
    finally:
        _IMPATIENT.reset(token)


def is_over() -> bool:
    """Tell whether retries are forbidden: the stream is to end, or the caller allows a single try."""
    outside = _CALLS.get()
    return _IMPATIENT.get() or (outside is not None and outside.ending.is_set())


def pause(seconds: float) -> None:
    """Sleep before the next try, no longer than until the stream is to end."""
    outside = _CALLS.get()
    if outside is None:
        time.sleep(seconds)
    else:
        outside.ending.wait(seconds)
