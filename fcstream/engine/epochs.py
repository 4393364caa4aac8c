"""Memories of epochs: what earlier windows left for later ones, read from the ledger once and followed from there."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, NamedTuple

from ..config import Job
from ..errors import ConfigError
from ..ledgers import EpochState, Ledger, StateLedger
from ..ledgers.history import utc
from ..releases.answers import AnswerOutcome, Answers, WindowAnswer
from ..releases.base import EpochMechanism, EpochWindow, Release, from_lines
from ..stream.windows import Window

LOG = logging.getLogger("fcstream.engine")


class _Held(NamedTuple):
    """The memory of one answer's epoch, None if it was lost, and the number of windows whose states were sealed."""

    epoch_ms: int
    memory: Any
    known: int


class Epochs:
    """The memories of all answers that have one.

    Parameters
    ----------
    job : Job
    ledger : Ledger

    Raises
    ------
    ConfigError
        An answer needs a memory, and the ledger keeps none.

    Privacy
    -------
    NOT private: memories hold exact numbers. Whether one was lost is decided by what was released and by how many rows
    the ledger has.

    Source
    ------
    Specification 5.13; proof 6.5; ours.
    """

    def __init__(self, job: Job, ledger: Ledger) -> None:
        self._job, self._ledger = job, ledger
        self._held: dict[str, _Held] = {}
        if job.answers.has_epochs and not isinstance(ledger, StateLedger):
            raise ConfigError(
                "must keep what windows leave for later ones, for running totals: sqlite:, postgresql: and memory: do",
                "ledger.url",
            )

    def within(self, answers: Answers, window: Window) -> Answers:
        """Return the answers for one window, each with its memory of the epoch before that window."""
        return replace(answers, answers=tuple(self._placed(answer, window) for answer in answers))

    def states(self, window: Window, outcomes: list[AnswerOutcome]) -> list[EpochState]:
        """Return what a window leaves for later ones; the last one of an epoch ends it, also where it is refused."""
        left = []
        for found in outcomes:
            mechanism, state = found.answer.mechanism, found.outcome.state
            if isinstance(mechanism, EpochMechanism):
                is_last = (window.index + 1) % mechanism.epoch_windows == 0
                if is_last or state is not None:
                    place = self._epoch(found.answer, window)
                    body = b"" if is_last or state is None else state
                    left.append(EpochState(_key(found.answer), place.epoch_ms, window.open_ms, body))
        return left

    def follow(self, states: list[EpochState]) -> None:
        """Take in what was sealed."""
        for answer, _, open_ms, body in states:
            if not body:
                self._held.pop(answer, None)
                continue
            held = self._held[answer]
            held.memory.add(open_ms, body)
            self._held[answer] = held._replace(known=held.known + 1)

    def forget(self) -> None:
        """Read memories anew at the next window: another process may have sealed this one."""
        self._held.clear()

    def _placed(self, answer: WindowAnswer, window: Window) -> WindowAnswer:
        if not isinstance(answer.mechanism, EpochMechanism):
            return answer
        place, key = self._epoch(answer, window), _key(answer)
        held = self._held.get(key)
        if held is None or held.epoch_ms != place.epoch_ms:
            held = self._held[key] = self._read(answer, answer.mechanism, place)
        return replace(answer, mechanism=answer.mechanism.within(held.memory, held.known, place))

    def _read(self, answer: WindowAnswer, mechanism: EpochMechanism, place: EpochWindow) -> _Held:
        assert isinstance(self._ledger, StateLedger)
        rows = [row for row in self._ledger.epoch_states(_key(answer), place.epoch_ms) if row[0] < place.open_ms]
        known = self._known(answer, place)
        memory = None
        if len(rows) == known:
            try:
                memory = mechanism.recall(rows)
            except ValueError:
                pass
        if memory is None:
            LOG.warning(
                "stream %r: the ledger has lost what windows of the epoch that began at %s left for later ones, which "
                "are refused (state_lost) until the next epoch",
                self._job.terms.stream,
                utc(place.epoch_ms),
            )
        return _Held(place.epoch_ms, memory, known)

    def _known(self, answer: WindowAnswer, place: EpochWindow) -> int:
        """Return how many windows of an epoch have left a state, as the newest release says."""
        sealed = self._ledger.last_sealed()
        for release in [] if sealed is None else from_lines(sealed[1]):
            parts = _parts(release)
            if release.name == answer.name and parts.get("epoch_open_ms") == place.epoch_ms:
                return int(parts["windows"])
        return 0

    def _epoch(self, answer: WindowAnswer, window: Window) -> EpochWindow:
        assert isinstance(answer.mechanism, EpochMechanism)
        first = window.index - window.index % answer.mechanism.epoch_windows
        return EpochWindow(self._job.schedule.window(first).open_ms, window.open_ms, window.close_ms)


def _key(answer: WindowAnswer) -> str:
    return answer.name or ""


def _parts(release: Release) -> dict[str, Any]:
    return release.parts or {}
