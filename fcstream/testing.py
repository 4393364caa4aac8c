"""For those who write ledgers, sinks or what surrounds an engine: a manual clock, a sink that keeps releases in a list,
and contract suites for pytest.

Subclass a contract in a test module, say how to make the thing, and run pytest::

    class TestMyLedger(LedgerContract):
        def make(self, terms, tmp_path):
            return MyLedger(tmp_path / "ledger", terms)
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .accounting.losses import PrivacyLoss
from .connectors.base import Source
from .connectors.sinks import Sink
from .ledgers.base import (
    TOTAL_BLOCK,
    USER_BLOCK,
    EpochState,
    Ledger,
    RecentLedger,
    Request,
    SealedRelease,
    StateLedger,
    Terms,
    WindowKey,
)
from .releases.base import Release
from .releases.contract import MechanismContract as MechanismContract


class ManualClock:
    """A clock that moves only by `tick`: ``engine.advance(clock.tick(60_000))``."""

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms

    def tick(self, by_ms: int) -> int:
        """Advance the clock and return the new time."""
        self.now_ms += by_ms
        return self.now_ms


class ListSink(Sink):
    """Collects releases in a list."""

    def __init__(self, releases: list[Release] | None = None) -> None:
        self.releases = [] if releases is None else releases

    def write(self, releases: Sequence[Release]) -> None:
        self.releases.extend(releases)

    def missing(self, releases: Sequence[Release]) -> list[Release]:
        return [release for release in releases if release not in self.releases]

    def last(self) -> Release | None:
        return self.releases[-1] if self.releases else None

    def close(self) -> None:
        pass


def window(index: int, length_ms: int = 60_000) -> WindowKey:
    """Return the index-th of consecutive tumbling windows."""
    return WindowKey(index * length_ms, (index + 1) * length_ms)


class LedgerContract:
    """Tests that every ledger must pass. Override `make`; if `durable` is set, the tests also reopen the ledger."""

    durable = True
    loss = PrivacyLoss.charge("0.4", "1e-9")
    terms = Terms("stream", "event", PrivacyLoss.cap("1.0", "1e-6"), "specification")

    def make(self, terms: Terms, tmp_path: Path) -> Ledger:
        raise NotImplementedError

    def request(self, index: int, *blocks: str) -> Request:
        return Request(window(index), self.loss, blocks or (str(index),))

    def test_charge_seal_acknowledge(self, tmp_path: Path) -> None:
        ledger = self.make(self.terms, tmp_path)
        result = ledger.charge([self.request(0)])[0]
        assert result.charge is not None
        assert result.charge.loss == self.loss == result.spent == ledger.spent()
        ledger.seal([SealedRelease(window(0), b"answer")])
        assert ledger.unacknowledged() == [(window(0), b"answer")]
        assert ledger.last_sealed() == (window(0), b"answer")
        ledger.acknowledge([window(0)])
        assert ledger.unacknowledged() == []
        assert ledger.last_sealed() == (window(0), b"answer")
        ledger.close()

    def test_sealed_window_is_done(self, tmp_path: Path) -> None:
        ledger = self.make(self.terms, tmp_path)
        ledger.charge([self.request(0)])
        ledger.seal([SealedRelease(window(0), b"answer")])
        result = ledger.charge([self.request(0)])[0]
        assert result.charge is None
        assert result.refusal is None
        assert result.interrupted is None
        assert ledger.spent() == self.loss
        ledger.close()

    def test_sealing_twice_is_an_error_and_changes_nothing(self, tmp_path: Path) -> None:
        import pytest

        from .errors import LedgerError

        ledger = self.make(self.terms, tmp_path)
        ledger.charge([self.request(0)])
        ledger.seal([SealedRelease(window(0), b"answer")])
        with pytest.raises(LedgerError, match="final"):
            ledger.seal([SealedRelease(window(0), b"another")])
        assert ledger.unacknowledged() == [(window(0), b"answer")]
        ledger.close()

    def test_charged_window_is_granted_once_more_then_interrupted(self, tmp_path: Path) -> None:
        ledger = self.make(self.terms, tmp_path)
        assert ledger.charge([self.request(0)])[0].charge is not None
        again = ledger.charge([self.request(0)])[0]
        assert again.charge is not None
        third = ledger.charge([self.request(0)])[0]
        assert third.charge is None
        assert third.interrupted == self.loss
        assert ledger.spent() == self.loss  # one charge for all of them
        ledger.close()

    def test_refusal_spends_nothing_and_leaves_the_rest_usable(self, tmp_path: Path) -> None:
        ledger = self.make(self.terms, tmp_path)
        results = ledger.charge([self.request(i, "shared") for i in range(3)])
        assert [v.charge is not None for v in results] == [True, True, False]
        refusal = results[2].refusal
        assert refusal is not None
        assert refusal.block == "shared"
        assert refusal.requested == self.loss
        assert refusal.remaining == PrivacyLoss.charge("0.2", "9.98e-7")
        assert ledger.charge([self.request(3, "other")])[0].charge is not None
        ledger.close()

    def test_blocks_are_charged_all_or_none(self, tmp_path: Path) -> None:
        ledger = self.make(self.terms, tmp_path)
        ledger.charge([self.request(0, "a"), self.request(1, "a")])
        assert ledger.charge([self.request(2, "b", "a")])[0].refusal is not None
        # "b" was not touched: two more charges fit.
        assert all(v.charge for v in ledger.charge([self.request(3, "b"), self.request(4, "b")]))
        ledger.close()

    def test_eleven_shares_of_one_eleventh_fit(self, tmp_path: Path) -> None:
        ledger = self.make(self.terms, tmp_path)
        shares = self.terms.capacity.split(11)
        results = ledger.charge([Request(window(i), share, ("b",)) for i, share in enumerate(shares)])
        assert all(v.charge for v in results)
        assert ledger.spent() == self.terms.capacity
        ledger.close()

    def test_refusals_can_be_sealed_without_a_charge(self, tmp_path: Path) -> None:
        ledger = self.make(self.terms, tmp_path)
        ledger.seal([SealedRelease(window(0), b"refused")])
        assert ledger.unacknowledged() == [(window(0), b"refused")]
        ledger.close()

    def test_unused_stages_go_back_to_every_block(self, tmp_path: Path) -> None:
        ledger = self.make(self.terms, tmp_path)
        result = ledger.charge([self.request(0, "a", "b")])[0]
        assert result.charge is not None
        first, second = PrivacyLoss.charge("0.1", "1e-9"), PrivacyLoss.charge("0.3")
        result.charge.open(first + second)
        result.charge.start(first)
        assert result.charge.unused == second
        ledger.seal([SealedRelease(window(0), b"too few", result.charge.unused)])
        assert ledger.spent("a") == ledger.spent("b") == ledger.spent() == first
        ledger.close()

    def test_refunds_that_were_never_charged_are_refused(self, tmp_path: Path) -> None:
        import pytest

        from .errors import LedgerError

        ledger = self.make(self.terms, tmp_path)
        ledger.charge([self.request(0)])
        for answer in (
            SealedRelease(window(0), b"more than all", self.loss + self.loss),
            SealedRelease(window(1), b"nothing was charged", self.loss),
        ):
            with pytest.raises(LedgerError, match="cannot be refunded"):
                ledger.seal([answer])
        ledger.close()

    def test_the_first_release_of_a_window_that_was_drawn_twice_is_sealed_without_its_refund(
        self, tmp_path: Path
    ) -> None:
        """Check that no seal is refused for its refund, since that would select releases by their values."""
        ledger = self.make(self.terms, tmp_path)
        first = ledger.charge([self.request(0)])[0].charge
        again = ledger.charge([self.request(0)])[0].charge
        assert first is not None
        assert again is not None
        assert again.unused == PrivacyLoss()  # what the first draw started is not known
        ledger.seal([SealedRelease(window(0), b"too few", PrivacyLoss.charge("0.1"))])
        assert ledger.last_sealed() == (window(0), b"too few")
        assert ledger.spent() == self.loss
        ledger.close()

    def test_total_is_charged_on_top_of_every_block(self, tmp_path: Path) -> None:
        terms = Terms("stream", "event", self.terms.capacity, "specification", PrivacyLoss.cap("1.0", "1e-6"))
        ledger = self.make(terms, tmp_path)
        results = ledger.charge([self.request(i) for i in range(3)])
        assert [v.charge is not None for v in results] == [True, True, False]
        refusal = results[2].refusal
        assert refusal is not None
        assert refusal.block == TOTAL_BLOCK
        assert refusal.window == window(2)
        assert refusal.difference == PrivacyLoss.charge("0.2")
        assert ledger.spent("2") == PrivacyLoss()
        assert ledger.spent() == self.loss
        assert ledger.spent(TOTAL_BLOCK) == self.loss + self.loss
        ledger.close()

    def test_settings_are_kept_once(self, tmp_path: Path) -> None:
        ledger = self.make(self.terms, tmp_path)
        assert ledger.setting("start") is None
        assert ledger.keep_setting("start", "first") == "first"
        assert ledger.keep_setting("start", "second") == ledger.setting("start") == "first"
        ledger.charge([self.request(0)])
        ledger.close()
        if self.durable:
            ledger = self.make(self.terms, tmp_path)
            assert ledger.keep_setting("start", "third") == "first"
            ledger.close()

    def stateful(self, tmp_path: Path) -> StateLedger:
        """Open the ledger, if it keeps what windows leave for later ones."""
        import pytest

        ledger = self.make(self.terms, tmp_path)
        if not isinstance(ledger, StateLedger):
            ledger.close()
            pytest.skip("this ledger keeps no states of epochs")
        return ledger

    def test_states_are_sealed_with_their_releases(self, tmp_path: Path) -> None:
        ledger = self.stateful(tmp_path)
        assert ledger.epoch_states("", 0) == []
        ledger.forget_states("", 60)
        for index in range(3):
            ledger.charge([self.request(index)])
            state = EpochState("", 0, 60_000 * index, b"left %d" % index)
            other = EpochState("other", 0, 60_000 * index, b"other")
            ledger.seal_with_states([SealedRelease(window(index), b"answer")], [state, other])
        kept = [(60_000 * index, b"left %d" % index) for index in range(3)]
        assert ledger.epoch_states("", 0) == kept
        assert ledger.unacknowledged() == [(window(index), b"answer") for index in range(3)]
        ledger.close()
        if self.durable:
            ledger = self.stateful(tmp_path)
            assert ledger.epoch_states("", 0) == kept
            ledger.close()

    def test_a_later_epoch_forgets_the_states_of_earlier_ones(self, tmp_path: Path) -> None:
        ledger = self.stateful(tmp_path)
        for index, name in ((0, "a"), (1, "b"), (2, "a")):
            ledger.charge([self.request(index)])
            state = EpochState(name, 120_000 * (index // 2), 60_000 * index, b"left")
            ledger.seal_with_states([SealedRelease(window(index), b"answer")], [state])
        assert ledger.epoch_states("a", 0) == []
        assert ledger.epoch_states("a", 120_000) == [(120_000, b"left")]
        assert ledger.epoch_states("b", 0) == [(60_000, b"left")]
        ledger.forget_states("b", 1)
        assert ledger.epoch_states("b", 0) == []
        ledger.charge([self.request(index) for index in range(3, 6)])
        found = [EpochState("a", 240_000 if i > 3 else 120_000, 60_000 * i, b"left" * (i == 4)) for i in range(3, 6)]
        ledger.seal_with_states([SealedRelease(window(i), b"answer") for i in range(3, 6)], found)
        assert (ledger.epoch_states("a", 120_000), ledger.epoch_states("a", 240_000)) == ([], [])
        ledger.close()

    def test_a_seal_that_is_refused_stores_no_state(self, tmp_path: Path) -> None:
        import pytest

        from .errors import LedgerError

        ledger = self.stateful(tmp_path)
        ledger.charge([self.request(0)])
        ledger.seal([SealedRelease(window(0), b"answer")])
        with pytest.raises(LedgerError, match="final"):
            ledger.seal_with_states([SealedRelease(window(0), b"another")], [EpochState("", 0, 0, b"left")])
        assert ledger.epoch_states("", 0) == []
        ledger.close()

    users_terms = Terms("stream", "user", PrivacyLoss.cap("1.0", "1e-6"), "specification")

    def user_request(self, index: int) -> Request:
        """Make a request for a window of users, whoever they are."""
        return Request(window(index), self.loss, (USER_BLOCK,))

    def test_users_have_one_public_filter(self, tmp_path: Path) -> None:
        """Check that a window is charged as if somebody were in every window."""
        ledger = self.make(self.users_terms, tmp_path)
        for index, is_charged in enumerate([True, True, False, False]):
            result = ledger.charge([self.user_request(index)])[0]
            assert (result.charge is not None) == is_charged
            assert result.refusal is None or result.refusal.block == USER_BLOCK
            assert result.spent == ledger.spent() == ledger.spent(USER_BLOCK) == self.loss * min(2, index + 1)
            assert ledger.charged_blocks(window(index)) == ((USER_BLOCK,) if is_charged else ())
            ledger.seal([SealedRelease(window(index), b"answer")])
        ledger.close()

    def test_a_window_of_users_that_is_not_the_last_gets_its_refund(self, tmp_path: Path) -> None:
        ledger = self.make(self.users_terms, tmp_path)
        ledger.charge([self.user_request(0)])
        ledger.charge([self.user_request(1)])
        ledger.seal([SealedRelease(window(0), b"too few", PrivacyLoss.charge("0.3"))])
        assert ledger.spent(USER_BLOCK) == self.loss + self.loss - PrivacyLoss.charge("0.3")
        ledger.seal([SealedRelease(window(1), b"answer")])
        ledger.close()

    def test_state_survives_reopening(self, tmp_path: Path) -> None:
        if not self.durable:
            return
        ledger = self.make(self.terms, tmp_path)
        ledger.charge([self.request(i) for i in range(3)])
        ledger.seal([SealedRelease(window(0), b"one"), SealedRelease(window(1), b"two")])
        ledger.acknowledge([window(0)])
        ledger.close()
        ledger = self.make(self.terms, tmp_path)
        assert ledger.unacknowledged() == [(window(1), b"two")]
        assert ledger.last_sealed() == (window(1), b"two")
        if isinstance(ledger, RecentLedger):
            assert ledger.latest_sealed(2) == [(window(0), b"one"), (window(1), b"two")]
            assert ledger.latest_sealed(1) == [(window(1), b"two")]
        assert ledger.spent() == self.loss
        assert ledger.charge([self.request(2)])[0].charge is not None  # the one redraw
        ledger.close()
        ledger = self.make(self.terms, tmp_path)
        assert ledger.charge([self.request(2)])[0].interrupted == self.loss
        ledger.close()


def sample_release(index: int = 0) -> Release:
    """Make a release of the index-th window, to test sinks."""
    key = window(index)
    cost = {"rho": 0.25, "delta": 1e-9}
    return Release(
        stream="sample",
        window_open_ms=key.open_ms,
        window_close_ms=key.close_ms,
        status="released",
        reason=None,
        kind="mean",
        value=[20.5 + index, -1.0 / 3.0],
        sigma=[0.01, 0.02],
        count=600,
        core_count=598,
        rho=0.25,
        delta=1e-9,
        guarantee={"rho": 1.0, "delta": 1e-6},
        spent=cost,
        private=True,
    )


class SinkContract:
    """Tests that every sink that can be read back must pass. Override `make` and `read`."""

    def make(self, tmp_path: Path) -> Sink:
        raise NotImplementedError

    def read(self, tmp_path: Path) -> list[Release]:
        """Return the releases that the outside system has received."""
        raise NotImplementedError

    def test_order_and_bytes(self, tmp_path: Path) -> None:
        sink = self.make(tmp_path)
        sent = [sample_release(i) for i in range(5)]
        sink.write(sent[:2])
        sink.write(sent[2:])
        sink.close()
        assert self.read(tmp_path) == sent

    def test_missing_names_what_is_not_there(self, tmp_path: Path) -> None:
        sink = self.make(tmp_path)
        sent = [sample_release(i) for i in range(3)]
        sink.write(sent[:1])
        sink.close()
        sink = self.make(tmp_path)
        assert sink.missing(sent)[-2:] == sent[1:]
        sink.close()

    def test_the_last_release_is_of_the_streams_that_are_asked_for(self, tmp_path: Path) -> None:
        sink = self.make(tmp_path)
        sent = [sample_release(i) for i in range(2)]
        sink.write(sent)
        last = sink.last_of(lambda name: name == "sample")
        assert last == (sent[1] if sink.finds_streams else sink.last())
        assert last in (None, sent[1])
        assert sink.last_of(lambda name: name == "another") is None
        sink.close()

    def test_several_answers_of_a_window_are_releases_of_their_own(self, tmp_path: Path) -> None:
        sent = [
            replace(sample_release(index), name=name, place=place)
            for index in range(2)
            for place, name in enumerate(["all", "busy hours", "idle"])
        ]
        sink = self.make(tmp_path)
        sink.write(sent[:4])
        sink.close()
        sink = self.make(tmp_path)
        assert sink.missing(sent)[-2:] == sent[4:]
        sink.write(sent[4:])
        sink.close()
        assert self.read(tmp_path) == sent


class SourceContract:
    """Tests that every live source must pass, against its real broker. Override `make` and `send`; fixtures give each
    test a fresh topic, stream or queue, named by the last part of `tmp_path`."""

    def make(self, tmp_path: Path) -> Source:
        """Open the source as a restarted process would."""
        raise NotImplementedError

    def send(self, tmp_path: Path, bodies: list[bytes]) -> None:
        """Publish messages, durably, in order."""
        raise NotImplementedError

    def drain(self, source: Source, wanted: int, seconds: float = 60.0) -> list[tuple[str, int, int, bytes]]:
        """Poll until this many messages have come: (partition, offset, timestamp, body)."""
        found: list[tuple[str, int, int, bytes]] = []
        until = time.monotonic() + seconds
        while len(found) < wanted and time.monotonic() < until:
            for chunk in source.poll(100, 0.5):
                assert len(chunk.offsets) == len(chunk.timestamps_ms) == len(chunk.bodies)
                assert (np.diff(chunk.offsets) > 0).all()
                rows = zip(chunk.offsets.tolist(), chunk.timestamps_ms.tolist(), chunk.bodies, strict=True)
                found += [(chunk.partition, *row) for row in rows]
        return found

    def test_messages_come_whole_and_in_order(self, tmp_path: Path) -> None:
        source = self.make(tmp_path)
        sent = [b"%d \x00\xff" % i * (1 + i % 7) for i in range(250)]
        before = time.time_ns() // 1_000_000
        self.send(tmp_path, sent)
        found = self.drain(source, len(sent))
        assert sorted(body for *_, body in found) == sorted(sent)
        assert len({(partition, offset) for partition, offset, *_ in found}) == len(sent)
        for _, group in itertools.groupby(sorted(found), key=lambda row: row[0]):
            bodies = [body for *_, body in group]
            assert bodies == [body for body in sent if body in set(bodies)]
        assert all(before - 60_000 <= timestamp <= time.time_ns() // 1_000_000 + 60_000 for _, _, timestamp, _ in found)
        assert source.poll(10, 0.05) == []
        source.close()
        source.close()

    def test_what_was_not_committed_comes_back_with_the_same_identity(self, tmp_path: Path) -> None:
        source = self.make(tmp_path)
        self.send(tmp_path, [b"%d" % i for i in range(60)])
        first = self.drain(source, 60)
        source.close()
        source = self.make(tmp_path)
        again = self.drain(source, 60)
        assert sorted(again) == sorted(first)
        # Commit all but the last ten of each partition.
        positions = {}
        for partition, group in itertools.groupby(sorted(again), key=lambda row: row[0]):
            offsets = [offset for _, offset, *_ in group]
            positions[partition] = offsets[max(0, len(offsets) - 10)]
        source.commit(positions)
        source.close()
        source = self.make(tmp_path)
        rest = [row for row in first if row[1] >= positions[row[0]]]
        assert sorted(self.drain(source, len(rest))) == sorted(rest)
        assert source.poll(10, 0.05) == []
        source.close()

    def test_ends_are_reported_and_reached(self, tmp_path: Path) -> None:
        source = self.make(tmp_path)
        self.send(tmp_path, [b"%d" % i for i in range(40)])
        ends, count = source.ends(), 0
        until = time.monotonic() + 60
        while source.behind(ends) and time.monotonic() < until:
            count += sum(len(chunk.bodies) for chunk in source.poll(7, 0.2))
        assert not source.behind(ends)
        assert count == 40
        assert not source.behind(source.ends())  # nothing new, nothing to wait for
        self.send(tmp_path, [b"more"])
        until = time.monotonic() + 60
        while not source.behind(source.ends()) and not source.poll(1, 0.1) and time.monotonic() < until:
            pass  # a source with acknowledgements only knows its end after it has received the messages
        assert time.monotonic() < until
        source.close()

    def ranges(self, tmp_path: Path) -> Source | None:
        """Open the same topic or stream for a reader that keeps its own positions; None if that is not possible."""
        source = self.make(tmp_path)
        if source.is_replayable():
            return source
        source.close()
        return None

    def test_ranges_are_read_from_anywhere_as_often_as_wanted(self, tmp_path: Path) -> None:
        source: Any = self.ranges(tmp_path)
        if source is None:
            return
        self.send(tmp_path, [b"%d" % i for i in range(60)])
        ends = source.ends()
        source.seek(dict.fromkeys(ends, 0))
        whole = self.drain(source, 60)
        assert len(whole) == 60
        assert not source.behind(ends)
        partition = max(ends, key=lambda name: sum(row[0] == name for row in whole))
        mine = [row for row in whole if row[0] == partition]
        first, last = len(mine) // 4, len(mine) // 2
        start, end = mine[first][1], mine[last][1]
        assert mine[last - 1][1] < source.reach(partition, start, last - first) <= end
        assert source.reach(partition, start, 1000) > mine[-1][1]
        for _ in range(2):
            source.seek({partition: start})
            assert source.behind({partition: end})
            found: list[tuple[str, int, int, bytes]] = []
            until = time.monotonic() + 60
            while source.behind({partition: end}) and time.monotonic() < until:
                for chunk in source.poll(3, 0.5):
                    rows = zip(chunk.offsets.tolist(), chunk.timestamps_ms.tolist(), chunk.bodies, strict=True)
                    found += [(chunk.partition, *row) for row in rows]
            assert [row for row in found if row[1] < end] == mine[first:last]
        source.close()

    def test_a_source_that_rewinds_gives_again_what_was_not_committed(self, tmp_path: Path) -> None:
        source = self.make(tmp_path)
        self.send(tmp_path, [b"%d" % i for i in range(10)])
        found = self.drain(source, 10)
        if source.rewind():
            assert source.prefetch(0.1)  # only what lies in a store of its own can be given again
            assert self.drain(source, 10) == found
        source.close()

    def test_an_empty_source_has_nothing(self, tmp_path: Path) -> None:
        source = self.make(tmp_path)
        assert source.poll(10, 0.1) == []
        assert not source.behind(source.ends())
        assert (source.gaps(), source.take_refused(), source.has_ended, source.duplicates) == ([], {}, False, 0)
        source.commit({})
        source.close()
