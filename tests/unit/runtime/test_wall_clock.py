"""This machine's clock is followed while it goes as time does, and not when it jumps."""

import logging

import pytest

from fcstream.runtime import wall_clock
from fcstream.runtime.wall_clock import ACCEPTANCE, START_MS, ClockNote, ClockNotes, WallClock

NOW = 1_767_225_600_000
HOUR = 3_600_000


class Machine:
    """A machine whose clock a test sets, and a stream on it."""

    def __init__(self, folder=None, boot="first"):
        self.wall, self.elapsed, self.boot = NOW, 50_000, boot
        self.notes = None if folder is None else ClockNotes(folder)

    def start(self, tolerance_ms=2000):
        wall, elapsed = (lambda: self.wall), (lambda: self.elapsed)
        return WallClock("s", tolerance_ms, "say so", self.notes, wall, elapsed, self.boot)

    def passes(self, ms, jump=0):
        self.elapsed += ms
        self.wall += ms + jump


@pytest.mark.parametrize("step", [1999, -1999, 0, 2000, -2000])
def test_small_steps_are_followed(step):
    machine = Machine()
    clock = machine.start()
    machine.passes(10_000, step)
    assert (clock.now_ms(), clock.jump_ms, clock.hold) == (NOW + 10_000 + step, 0, None)
    machine.passes(5_000, step)  # from where the clock is now
    assert clock.bounds_ms() == (machine.wall, machine.wall)


@pytest.mark.parametrize("rest", [0, 250_000, 500_000, 750_000])
def test_a_leap_second_is_followed(rest):
    """Both clocks are cut to milliseconds, so that a second back could look like 1,001 ms."""
    times = {"elapsed": 5_000_500_000, "ahead": NOW * 1_000_000 + 999_000}

    def elapsed():
        return times["elapsed"] // 1_000_000

    clock = WallClock("s", 0, wall=lambda: (times["elapsed"] + times["ahead"]) // 1_000_000, elapsed=elapsed)
    times["elapsed"] += 60_000_000_000 + rest
    times["ahead"] -= 1_000_000_000
    assert clock.hold is None


@pytest.mark.parametrize("pauses", [1, 5, 10_000])
@pytest.mark.parametrize("at", ["start", "look", "accept"])
def test_a_pause_between_two_readings_is_no_jump(pauses, at):
    """A thread that does not run for seconds after it has read one of the clocks took the other for wrong, for ever."""
    machine, left = Machine(), [0]

    def wall():
        now = machine.wall
        if left[0]:
            left[0] -= 1
            machine.passes(3_000)
        return now

    clock = WallClock("s", 2_000, wall=wall, elapsed=lambda: machine.elapsed)
    left[0] = pauses
    if at == "start" and pauses < 10_000:
        clock = WallClock("s", 2_000, wall=wall, elapsed=lambda: machine.elapsed)
    elif at == "accept" and pauses < 10_000:
        clock.accept()
    else:
        assert clock.hold is None
    left[0] = 0
    machine.passes(10_000)
    assert (clock.hold, clock.now_ms()) == (None, machine.wall)


@pytest.mark.parametrize("step", [HOUR, -HOUR, 2001, -2001, 10 * 365 * START_MS])
def test_a_jump_is_not_followed_until_it_is_over_or_accepted(step, caplog):
    caplog.set_level(logging.INFO)
    machine = Machine()
    clock = machine.start()
    machine.passes(10_000, step)
    assert (clock.now_ms(), clock.jump_ms) == (NOW + 10_000, step)
    machine.passes(600_000)
    assert clock.now_ms() == NOW + 610_000
    assert f"{abs(step) / 1000:,.1f} s {'ahead of' if step > 0 else 'behind'} the time that has passed" in clock.hold
    assert "say so" in clock.hold
    assert caplog.text.count("no window is closed") == 1
    machine.passes(0, -step)
    assert (clock.now_ms(), clock.hold) == (machine.wall, None)
    assert "is right again" in caplog.text
    machine.passes(0, step)
    assert clock.hold is not None
    clock.accept()
    assert (clock.now_ms(), clock.hold) == (machine.wall, None)
    machine.passes(1000)
    assert clock.now_ms() == machine.wall


def test_a_suspended_machine_has_not_jumped():
    assert wall_clock._ELAPSED == wall_clock.time.CLOCK_BOOTTIME
    machine = Machine()
    clock = machine.start()
    machine.passes(8 * HOUR)  # both go on
    assert (clock.now_ms(), clock.hold) == (NOW + 8 * HOUR, None)


def test_after_a_jump_it_may_be_either_time_but_no_more_than_a_day_ahead():
    machine = Machine()
    clock = machine.start()
    machine.passes(0, HOUR)
    assert clock.bounds_ms() == (NOW, NOW + HOUR)
    machine.passes(0, 100 * START_MS)
    assert clock.bounds_ms() == (NOW, NOW + START_MS)
    machine.passes(0, -200 * START_MS)
    assert clock.bounds_ms() == (machine.wall, NOW + 2000)


# -- at a start --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "held"),
    [(NOW, False), (NOW - START_MS, False), (NOW - START_MS - 1, True), (NOW + 2000, False), (NOW + 2001, True)],
)
def test_a_start_is_compared_with_the_newest_window(known, held):
    clock = Machine().start()
    clock.compare(known)
    assert (clock.hold is not None) == held
    clock.compare(known - 50 * START_MS)  # once is enough: later windows are this process's own
    assert (clock.hold is not None) == held


@pytest.mark.parametrize(("late", "held"), [(0, False), (START_MS - 60_000, False), (2 * START_MS, True)])
def test_a_clock_that_starts_far_behind_is_followed_once_it_is_possible(late, held):
    """A machine without a battery begins in 1970, and asks for the time later."""
    machine = Machine()
    machine.wall = 0
    clock = machine.start()
    clock.compare(NOW)
    assert "behind 2026-01-01T00:00:00Z, the newest time known" in clock.hold
    machine.passes(30_000)
    assert clock.bounds_ms() == (machine.wall, NOW + 30_000 + START_MS)  # nobody knows how long it was off
    machine.wall = NOW + late + 30_000
    assert (clock.hold is not None) == held


def test_a_jump_during_the_start_is_not_forgotten():
    machine = Machine()
    clock = machine.start()
    machine.passes(50_000, HOUR)
    clock.compare(NOW)
    assert clock.jump_ms == HOUR


def test_a_stream_without_a_past_believes_its_clock():
    clock = Machine().start()
    clock.compare(None)
    assert clock.hold is None


# -- from process to process -------------------------------------------------------------------------------------------


def test_another_process_knows_of_the_jump(tmp_path):
    """Whoever sees that nothing is released restarts the service first."""
    machine = Machine(tmp_path)
    machine.start().now_ms()
    machine.passes(60_000, HOUR)
    clock = machine.start()
    assert (clock.jump_ms, clock.now_ms()) == (HOUR, NOW + 60_000)
    clock.compare(NOW + 40_000)  # which an hour is near enough to
    assert clock.jump_ms == HOUR
    machine.passes(0, -HOUR)
    assert machine.start().hold is None


def test_a_month_of_corrections_is_no_jump(tmp_path):
    machine = Machine(tmp_path)
    machine.start().now_ms()
    machine.passes(30 * START_MS, 20 * 60_000)  # a process that is started after 30 days on a machine that was on
    assert machine.start().hold is None
    machine.passes(0, HOUR)
    assert machine.start().hold is not None


@pytest.mark.parametrize(("after", "held"), [(HOUR, False), (START_MS + HOUR, True), (-HOUR, True)])
def test_after_a_new_start_of_the_machine_the_last_time_that_was_seen_counts(tmp_path, after, held):
    machine = Machine(tmp_path)
    machine.start().now_ms()
    machine.boot, machine.elapsed = "second", 1000
    machine.wall = NOW + after
    clock = machine.start()
    assert clock.hold is None  # the ledger is not read yet
    clock.compare(NOW - 10_000)
    assert (clock.hold is not None) == held


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"boot": 1, "offset_ms": 2, "elapsed_ms": 3}', b"\xff"])
def test_a_damaged_note_is_none(tmp_path, content):
    (tmp_path / "clock").write_bytes(content)
    machine = Machine(tmp_path)
    assert machine.notes.load() is None
    assert machine.start().hold is None


def test_an_acceptance_counts_for_the_jump_that_was_looked_at(tmp_path, caplog):
    machine = Machine(tmp_path)
    clock = machine.start()
    machine.passes(10_000, HOUR)
    assert clock.hold is not None
    machine.notes.save(ClockNote("first", machine.wall - machine.elapsed, machine.elapsed), ACCEPTANCE)
    machine.passes(1_000)
    assert (clock.hold, clock.now_ms()) == (None, machine.wall)
    assert not (tmp_path / ACCEPTANCE).exists()
    assert machine.start().hold is None  # the next process knows too
    for wrong in (
        ClockNote("first", machine.wall - machine.elapsed, machine.elapsed),
        ClockNote("second", machine.wall - machine.elapsed + HOUR, machine.elapsed),
    ):
        machine.notes.save(wrong, ACCEPTANCE)
        machine.passes(2_000, HOUR)
        assert clock.hold is not None
        machine.passes(2_000)
        assert clock.hold is not None
        assert not (tmp_path / ACCEPTANCE).exists()
        assert "this counts no more" in caplog.text
        machine.passes(0, -HOUR)
        assert clock.hold is None
        caplog.clear()
