"""Streams with several answers, drawn at random: whatever fails between charge, draw and seal, every window is answered
once, nobody is charged twice, and what was not interrupted says what the slow twin says."""

import random
from collections import Counter

import pytest
from support import answer_twin
from support.drawn_streams import END_MS, draw_records, draw_stream, open_silent, push, salts_of

from fcstream.ledgers import each_reader
from fcstream.ledgers.sqlite.ledger import SQLiteLedger
from fcstream.releases.answers import Answers
from fcstream.releases.base import Release

SEEDS = [range(first, first + 5) for first in range(25, 45, 5)]
MOST_FAILURES = 60
STEP_MS = 3_000


class Failed(Exception):
    """What a call raises that was made to fail."""


class Failures:
    """Makes calls fail now and then, before they take effect or after it, and at last no more."""

    def __init__(self, draw, rate):
        self._draw, self._rate = draw, rate
        self.number = 0

    def around(self, call):
        def failing(*arguments):
            self._maybe_fail()
            found = call(*arguments)
            self._maybe_fail()
            return found

        return failing

    def _maybe_fail(self):
        if self.number < MOST_FAILURES and self._draw.random() < self._rate:
            self.number += 1
            raise Failed


class Run:
    """One stream, whose engine is given up after every other failure, and tried again after the others.

    Attributes
    ----------
    published : dict
        What was released, by key, opening and place.
    """

    def __init__(self, mapping, job, records, draw):
        self._mapping, self._job, self._draw = mapping, job, draw
        self._records = sorted(records, key=lambda record: record.time_ms)
        self._engine, self._pushed = None, 0
        self.published = {}

    def until(self, now_ms):
        """Push what was measured before a time, and release what is due then, however often that fails."""
        while True:
            try:
                self._try(now_ms)
                return
            except Failed:
                if self._draw.random() < 0.5:
                    self.give_up()

    def salts(self):
        return salts_of(self._engine)

    def give_up(self):
        """Let the engine go, which does not come to its end."""
        engine, self._engine, self._pushed = self._engine, None, 0
        if engine is not None:
            engine.abort()

    def _try(self, now_ms):
        if self._engine is None:
            self._engine = open_silent(self._mapping, self._job)
            self._publish(self._engine.unpublished())
            self._engine.acknowledge()
            self._engine.begin(0)
        new = [record for record in self._records[self._pushed :] if record.time_ms < now_ms]
        if new:
            self._publish(push(self._mapping, self._job, self._engine, new))
            self._pushed += len(new)
        self._publish(self._engine.advance(now_ms))
        self._engine.acknowledge()

    def _publish(self, releases):
        """Keep what is released; what is released again must be the same."""
        for release in releases:
            line = release.to_bytes()
            at = (release.key, release.window_open_ms, release.place or 0)
            assert self.published.setdefault(at, line) == line, f"two releases of {at}"


def check_ledger(url, published):
    """All that was published is sealed and the reverse; no window was charged twice, or drawn for three times."""
    sealed = []
    for reader in each_reader(url):
        reader.verify()
        rows = [(row.kind, row.open_ms) for row in reader.rows()]
        assert max(Counter(row for row in rows if row[0] in ("charge", "again")).values(), default=0) <= 1
        sealed += [line for line in reader.releases() if line]
    assert sorted(sealed) == sorted(published)


def fail_and_compare(seed, url, patch):
    """Run one stream whose calls fail, and compare it; returns how many calls failed, and windows were interrupted."""
    draw = random.Random(seed)
    mapping, job = draw_stream(draw, clock="broker", url=url)
    records = draw_records(draw, 100, delays=[0])
    failures = Failures(draw, draw.choice([0.05, 0.1, 0.15]))
    patch.setattr(Answers, "release", failures.around(Answers.release))
    for name in ("charge", "seal_with_states"):
        patch.setattr(SQLiteLedger, name, failures.around(getattr(SQLiteLedger, name)))
    for name in ("charge_together", "seal_together"):  # of all keys
        patch.setattr(SQLiteLedger, name, staticmethod(failures.around(getattr(SQLiteLedger, name))))
    run = Run(mapping, job, records, draw)
    for now_ms in range(10_000, END_MS + 10_000, STEP_MS):
        run.until(now_ms)
    salts = run.salts()
    run.give_up()
    check_ledger(url, run.published.values())
    releases = [Release.from_bytes(line) for line in run.published.values()]
    interrupted = {(each.key, each.window_open_ms) for each in releases if each.reason == "interrupted"}
    wanted = answer_twin.wanted_releases(mapping, job, records, salts, interrupted)
    answer_twin.compare(releases, wanted, f"seed {seed}")
    windows = len(wanted) // len(job.answers)
    return Counter(failures=failures.number, interrupted=len(interrupted), answered=windows - len(interrupted))


@pytest.mark.parametrize("seeds", SEEDS, ids=str)
def test_failures_between_charge_draw_and_seal_change_no_answer(seeds, tmp_path, monkeypatch):
    counts = Counter()
    for seed in seeds:
        with monkeypatch.context() as patch:
            counts += fail_and_compare(seed, f"sqlite:{tmp_path / f'{seed}.db'}", patch)
    assert counts["failures"] > 12
    assert 0 < counts["interrupted"] < counts["answered"]
