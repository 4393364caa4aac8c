import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import naive

from fcstream.errors import ConfigError
from fcstream.stream.windows import Schedule, group_by_pane

schedules = st.builds(
    lambda start, slide, times, rest, count: (start, slide * times + rest % slide if times else slide, slide, count),
    st.integers(-(10**6), 10**6),
    st.integers(1, 60),
    st.integers(1, 6),
    st.integers(0, 59),
    st.one_of(st.none(), st.integers(1, 20)),
)


def build(start, length, slide, count):
    end = None if count is None else start + (count - 1) * slide + length
    return Schedule(start, length, slide, 0, end)


@given(schedules, st.lists(st.integers(-2000, 2000), min_size=1, max_size=50))
def test_each_time_lies_in_the_windows_that_hold_it(shape, offsets):
    """Also before the start and after the end, and for lengths that slides do not divide."""
    start, length, slide, count = shape
    schedule = build(start, length, slide, count)
    times = np.array(offsets, np.int64) + start
    panes, first, last = schedule.locate(times)
    for time, pane, a, b in zip(times.tolist(), panes.tolist(), first.tolist(), last.tolist(), strict=True):
        assert list(range(a, b + 1)) == naive.windows_of(time, start, length, slide, count)
        for k in range(a, b + 1):
            assert pane in schedule.panes(schedule.window(k))
        assert schedule.pane_open_ms(pane) <= time < schedule.pane_open_ms(pane) + schedule.pane_ms


@given(schedules)
def test_interior_times_lie_in_floor_or_ceil_windows(shape):
    start, length, slide, _ = shape
    schedule = build(start, length, slide, None)
    times = np.arange(start + length, start + length + 3 * slide)
    _, first, last = schedule.locate(times)
    assert set((last - first + 1).tolist()) <= {length // slide, -(-length // slide)}
    assert (last - first + 1).max() <= schedule.overlap


@given(schedules, st.integers(-100, 3000), st.integers(0, 50))
def test_due_and_lateness_agree(shape, after, lateness):
    """A window closes only when every arrival that is still in time for it lies in the past."""
    start, length, slide, count = shape
    end = None if count is None else start + (count - 1) * slide + length
    schedule = Schedule(start, length, slide, lateness, end)
    now = start + after
    due = schedule.due(now)
    for k in range(due):
        assert schedule.window(k).close_ms + lateness < now
    if count is None or due < count:
        assert schedule.window(due).close_ms + lateness >= now
    first = int(schedule.first_not_late(np.array([now]))[0])
    assert schedule.window(first).close_ms + lateness >= now
    assert schedule.window(first - 1).close_ms + lateness < now


@given(schedules)
def test_panes_are_dropped_after_their_last_window(shape):
    schedule = build(*shape[:3], None)
    for pane in range(12):
        last = schedule.last_window_of_pane(pane)
        assert pane not in schedule.panes(schedule.window(last + 1))
        assert schedule.index_after(schedule.window(last).open_ms) == last + 1


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ((0, 0, 1), "length"),
        ((0, 10, 0), "slide"),
        ((0, 10, 11), "gaps"),
        ((0, 10, 10, -1), "lateness"),
        ((0, 10, 10, 0, 9), "at least one window"),
        ((0, 1_000_003, 1), "10_?000|panes"),
    ],
)
def test_schedules_that_make_no_sense(arguments, what):
    with pytest.raises(ConfigError, match=what):
        Schedule(*arguments)


@given(st.lists(st.integers(-3, 3), max_size=40))
def test_group_by_pane_keeps_rows_and_order(panes):
    array = np.array(panes, np.int64)
    rows = np.arange(len(panes))
    seen = {}
    for pane, part in group_by_pane(array):
        assert pane not in seen
        seen[pane] = rows[part].tolist()
    assert seen == {p: [i for i, q in enumerate(panes) if q == p] for p in set(panes)}
