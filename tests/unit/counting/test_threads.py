"""Comparisons that several threads share: the same bits, in the same lanes, and the next points measured meanwhile."""

import threading

import numpy as np
import pytest
from support.helpers import exact_counts

from fcstream._kernels import blocks
from fcstream.counting import exact, threads, tiles
from fcstream.counting.exact import CrossCounts, FriendCounts
from fcstream.errors import CounterBroken


@pytest.fixture(autouse=True)
def every_comparison_is_shared(monkeypatch):
    monkeypatch.setattr(exact, "_ALONE", 1.0)
    monkeypatch.setattr(exact, "_FEW_COORDINATES", 0)
    monkeypatch.setattr(exact, "STAGED", 100)
    monkeypatch.setattr(tiles, "_POINTS_PER_BUCKET", 8)
    monkeypatch.setattr(tiles, "_COMING_PER_BUCKET", 1)
    yield
    threads.set_threads(None)


def points_of(shape, n, d):
    rng = np.random.default_rng(n + d)
    points = rng.normal(size=(n, d)) * 100
    if shape == "far first":
        points[: n // 3] *= 1000
    elif shape == "far among them":
        points[rng.random(n) < 0.3] += 10**5
    elif shape == "equal first":
        points[: n // 2] = points[0]
    return np.rint(points)


def prepared(monkeypatch):
    """Return a list that takes the sizes of the batches that were measured while others were counted."""
    sizes = []
    real = FriendCounts._prepare

    def prepare(self, pane, points):
        real(self, pane, points)
        if self._ready is not None:
            sizes.append(len(points))

    monkeypatch.setattr(FriendCounts, "_prepare", prepare)
    return sizes


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["a blob", "far first", "far among them", "equal first"])
@pytest.mark.parametrize("d", [2, 13])
@pytest.mark.parametrize("screened", [False, True])
def test_many_points_at_once_are_the_same_bits_in_the_same_lanes(shape, d, screened, monkeypatch):
    monkeypatch.setattr(blocks, "SCREENS", screened)  # products of 8 bits give the same numbers on any processor
    points, radius_squared = points_of(shape, 1500, d), int(2 * d * 100**2)
    expected = exact_counts(points, radius_squared)
    ahead = prepared(monkeypatch)
    lanes = []
    for count in (1, 2, 3):
        threads.set_threads(count)
        counter = FriendCounts(d, radius_squared)
        counter.add(0, points[:7])  # waits, and is filled up first
        counter.add(0, points[7:])
        view = counter.view([0])
        assert (view.in_order() == expected).all()
        lanes.append(view.arrival_order().tolist())
        assert (count == 1) == (not ahead)
    assert lanes[0] == lanes[1] == lanes[2]
    assert max(ahead) > exact.STAGED  # batches grow with what is there


@pytest.mark.parametrize("kind", [FriendCounts, CrossCounts])
def test_points_of_several_panes_are_the_same_bits(kind, monkeypatch):
    """One pane's points are put into their tiles before, while or after other panes' tiles are compared."""
    monkeypatch.setattr(exact, "_PANE_NS", 0)
    radius_squared = 2 * 3 * 100**2
    parts = [points_of(shape, 400, 3) for shape in ("far first", "a blob", "far among them", "a blob")]
    found = []
    for count in (1, 3):
        threads.set_threads(count)
        counter = kind(3, radius_squared, 4)
        for start in (0, 150):
            for pane, part in enumerate(parts):
                counter.add(pane, part[start : start + 250 if start else 150])
        found.append(counter.view(range(4)).in_order())
    expected = exact_counts(np.concatenate(parts), radius_squared)
    if kind is CrossCounts:
        expected = expected - np.concatenate([exact_counts(part, radius_squared) for part in parts])
    assert (found[0] == expected).all()
    assert (found[1] == expected).all()


def test_an_error_while_the_next_points_are_measured_breaks_the_counter(monkeypatch):
    threads.set_threads(2)

    def fail(self, pane, points):
        raise ZeroDivisionError

    monkeypatch.setattr(FriendCounts, "_prepare", fail)
    counter = FriendCounts(2, 100**2)
    with pytest.raises(ZeroDivisionError):
        counter.add(0, points_of("a blob", 1000, 2))
    with pytest.raises(CounterBroken):
        counter.view([0])


@pytest.mark.parametrize("count", [1, 2, 5, 1000])
def test_pieces_are_all_tiles_once_the_last_ones_first(count):
    counter = FriendCounts(2, 100**2)
    counter.add(0, points_of("a blob", 2000, 2))
    counter.view([0])
    segment = counter._panes[0].segments[0]
    pieces = segment.pieces(count)
    assert len(pieces) <= count
    covered = [(chunk, t) for piece in reversed(pieces) for chunk, here in piece for t in range(here.start, here.stop)]
    assert [t for _, t in covered] == list(range(segment.tiles))
    assert all(chunk.first <= t < chunk.first + len(chunk.tiles) for chunk, t in covered)


@pytest.mark.parametrize("hands", [1, 2, 4])
def test_each_piece_is_done_once_by_one_of_the_hands(hands):
    threads.set_threads(hands)
    done, lock = [], threading.Lock()

    def piece(number, hand):
        with lock:
            done.append((number, hand))

    threads.share([lambda hand, i=i: piece(i, hand) for i in range(50)], hands)
    assert sorted(number for number, _ in done) == list(range(50))
    assert {hand for _, hand in done} <= set(range(hands))


def test_a_piece_that_fails_is_heard_and_the_others_are_done():
    threads.set_threads(2)
    done = []

    def fail(hand):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        threads.share([done.append, fail, done.append], 2)


def test_rows_get_their_lanes_one_by_one_as_in_the_naive_twin():
    """Rows nearly sorted by distance, in two classes, into open tiles of buckets that are partly full."""
    from fcstream._kernels import tiles as kernels

    rng = np.random.default_rng(5)
    edges, lanes = np.array([1.0, 2.0, 2.0, 3.0]), tiles.LANES
    open_tile = np.full((2, 5), -1)
    twin_open = open_tile.copy()
    shape, spans = np.zeros((200, 2), np.int32), np.zeros((200, 2))
    twin_shape, twin_spans = shape.copy(), spans.copy()
    first = 0
    for size in (3, 150, 40, 1, 400):
        narrow = int(rng.integers(0, size + 1))
        classes = np.array([[0, narrow], [narrow + 8, size + 8]])
        distances = np.zeros(size + 16)
        for start, stop in classes:
            distances[start:stop] = np.sort(rng.exponential(2.0, stop - start)) + rng.normal(0, 0.01, stop - start)
        slots, twin_slots = np.full(size + 16, -1), np.full(size + 16, -1)
        self_rows, twin_rows = np.full((200, 2), -1, np.int32), np.full((200, 2), -1, np.int32)
        last = kernels.assign_slots(distances, classes, edges, open_tile, first, shape, spans, self_rows, slots)
        for c, (start, stop) in enumerate(classes):
            b = 0
            for i in range(start, stop):
                while b < len(edges) and distances[i] > edges[b]:
                    b += 1
                t = twin_open[c, b]
                if t < 0 or twin_shape[t, 0] == lanes:
                    t = twin_open[c, b] = first
                    first += 1
                    twin_shape[t] = 0, c
                    twin_spans[t] = distances[i]
                twin_slots[i] = t * lanes + twin_shape[t, 0]
                twin_shape[t, 0] += 1
                twin_spans[t] = min(twin_spans[t, 0], distances[i]), max(twin_spans[t, 1], distances[i])
                twin_rows[t] = i if twin_rows[t, 0] < 0 else twin_rows[t, 0], i + 1
        assert last == first
        for found, expected in (
            (slots, twin_slots), (shape, twin_shape), (spans, twin_spans), (self_rows, twin_rows),
            (open_tile, twin_open),
        ):  # fmt: skip
            assert (found == expected).all()
