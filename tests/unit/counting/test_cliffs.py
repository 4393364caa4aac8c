"""Data and windows that were slow once: what they cost is counted in pairs that are looked at, not in seconds."""

import numpy as np
import pytest
from support import naive
from support.helpers import exact_counts

from fcstream._kernels import blocks
from fcstream.counting import exact as module
from fcstream.counting import tiles
from fcstream.counting.exact import CrossCounts, FriendCounts

N, D = 4000, 16
RADIUS_SQUARED = (700 * 8) ** 2


def blob(n=N, d=D, seed=0):
    return np.rint(np.random.default_rng(seed).normal(size=(n, d)) * 500)


def looked_at(points, radius_squared=RADIUS_SQUARED):
    """Pairs that distances from a pivot do not decide; the counts are checked on the way, and the order of arrival."""
    counter = FriendCounts(points.shape[1], radius_squared)
    for part in np.array_split(points, 5):
        counter.add(0, part)
        counter._flush(0)
    view = counter.view([0])
    assert (view.points()[np.argsort(view.arrival_order())] == points).all()
    some = np.random.default_rng(0).integers(0, len(points), 20)
    distances = ((points[some, None] - points[None]) ** 2).sum(axis=2)
    assert (view.in_order()[some] == (distances <= radius_squared).sum(axis=1)).all()
    return int(counter._state[2]), counter


def test_far_points_that_come_first_cost_what_they_cost_anywhere():
    rng = np.random.default_rng(1)
    points = blob()
    points[:1200] = np.rint(rng.normal(size=(1200, D)) * 10**4 + rng.normal(size=(1200, 1)) * 25_000)
    first, counter = looked_at(points)
    shuffled, _ = looked_at(points[rng.permutation(N)])
    assert first < 1.5 * shuffled
    assert 2 <= len(counter._panes[0].segments) <= 3


def test_near_points_among_the_far_ones_that_come_first_are_counted_apart():
    rng = np.random.default_rng(1)
    points = blob()
    far = rng.random(1200) < 0.95
    points[:1200][far] = np.rint(rng.normal(size=(1200, D)) * 10**4)[far]
    first, counter = looked_at(points)
    shuffled, _ = looked_at(points[rng.permutation(N)])
    assert first < 1.5 * shuffled
    assert [segment.size for segment in counter._panes[0].segments] == [far[:800].sum(), N - far[:800].sum()]


def test_equal_points_that_come_first_are_not_taken_for_the_middle():
    points = blob()
    points[:750] = points[0]
    first, _ = looked_at(points)
    shuffled, _ = looked_at(points[np.random.default_rng(1).permutation(N)])
    assert first < 1.5 * shuffled
    points[:800] = points[0]  # a whole batch of them
    assert looked_at(points)[0] < 1.5 * shuffled


@pytest.mark.parametrize("spread", [10**6, 10**10])
def test_points_far_wider_apart_than_the_radius_are_not_all_looked_at(spread):
    points = np.rint(np.random.default_rng(2).uniform(-spread, spread, (N, 2)))
    assert looked_at(points, 100)[0] < 0.1 * N * N / 2


def test_a_pane_does_not_get_a_segment_for_each_batch(monkeypatch):
    monkeypatch.setattr(module, "_FEW", 10)
    counter = FriendCounts(2, 100)
    for k in range(60):
        counter.add(0, np.rint(np.random.default_rng(k).normal(size=(20, 2)) * 10.0 ** (k % 9)) + 10.0 ** (k % 7))
        counter._flush(0)
    view = counter.view([0])
    assert (view.counts == exact_counts(view.points(), 100)).all()
    assert len(counter._panes[0].segments) <= 6 + np.log(1200 / 20) / np.log(tiles._GROWTH)


@pytest.mark.parametrize("d", [1, 2, 16])
@pytest.mark.parametrize("n", [1, 31, 32, 33, 100])
def test_small_windows_are_compared_as_they_are(n, d):
    points = blob(n, d)
    counter = FriendCounts(d, 500**2 * 2 * d)
    counter.add(0, points[: n // 2])
    counter.view([0])
    counter.add(0, points[n // 2 :])
    view = counter.view([0])
    assert 0 not in counter._panes  # all wait
    assert view.in_order().tolist() == naive.friend_counts(points, 500**2 * 2 * d)
    assert (view.points() == points).all()
    mask = np.arange(n) % 3 == 0
    assert view.select(mask).parts[0][1][view.lanes[0]].tolist() == mask.tolist()
    uncounted = FriendCounts(d, None)
    uncounted.add(0, points)
    assert (uncounted.view([0]).points() == points).all()
    assert len(uncounted.view([0]).counts) == 0


def test_shares_of_pairs_across_panes_are_never_taken_from_points_alone():
    points = blob(40, 2)
    counter = CrossCounts(2, 10**6, 2)
    counter.add(0, points[:20])
    counter.add(1, points[20:])
    both = np.array(naive.friend_counts(points, 10**6))
    alone = [naive.friend_counts(part, 10**6) for part in (points[:20], points[20:])]
    assert counter.view([0, 1]).in_order().tolist() == (both - np.concatenate(alone)).tolist()


@pytest.mark.parametrize("pane_ns", [0.0, 5e4, 1e12])
def test_sliding_windows_equal_the_naive_twin_however_they_are_counted(pane_ns, monkeypatch):
    """Counted anew, with kept sums, and both in turn: late points, dropped panes, windows in any order."""
    monkeypatch.setattr(module, "_FEW_COORDINATES", 500)
    monkeypatch.setattr(module, "_PANE_NS", pane_ns)
    monkeypatch.setattr(module, "_WINDOW_NS", 0.0)
    rng = np.random.default_rng(7)
    reach, radius_squared, held = 4, 300**2, {}
    counter = FriendCounts(2, radius_squared, reach)
    for pane in range(14):
        for late in {pane, max(0, pane - int(rng.integers(0, 3)))}:
            held.setdefault(late, []).append(blob(int(rng.choice([1, 9, 40])), 2, pane))
            counter.add(late, held[late][-1])
        for last in (pane, pane - 1, pane):
            wanted = [k for k in range(max(0, last - reach + 1), last + 1) if k in held]
            points = np.concatenate([part for k in wanted for part in held[k]] or [np.empty((0, 2))])
            view = counter.view(range(last - reach + 1, last + 1))
            assert (view.in_order() == exact_counts(points, radius_squared)).all()
        if pane % 3:
            counter.drop(pane - reach)
            held.pop(pane - reach, None)
    if pane_ns == 1e12:
        assert not counter._panes  # no pair was compared for keeps
    if pane_ns == 0:
        assert counter._panes


def test_views_stay_as_they_are_until_the_next_change(monkeypatch):
    """Windows that were counted anew do not share memory, and the memory is used again after a pane is dropped."""
    monkeypatch.setattr(module, "_FEW_COORDINATES", 0)
    monkeypatch.setattr(module, "_PANE_NS", 1e12)
    counter = FriendCounts(2, 300**2, 2)
    for pane in range(3):
        counter.add(pane, blob(50, 2, pane))
    early, late = counter.view([0, 1]), counter.view([1, 2])
    assert (early.points()[np.argsort(early.arrival_order())][50:] == blob(50, 2, 1)).all()
    assert (late.points()[np.argsort(late.arrival_order())][50:] == blob(50, 2, 2)).all()
    used = early.tiles[0]
    del early, late
    counter.drop(0)
    assert np.shares_memory(counter.view([1, 2]).tiles[0], used)
    counter.drop(1)
    counter.free_spare()
    assert counter.view([2]).size == 50


def test_far_points_that_come_first_leave_the_others_without_codes_in_their_frame(monkeypatch):
    """Distances decide nearly all pairs of points far apart, so that codes are made where pairs are left."""
    monkeypatch.setattr(blocks, "SCREENS", True)  # products of 8 bits give the same numbers on any processor
    rng = np.random.default_rng(1)
    points = blob()
    points[:1200] = np.rint(rng.normal(size=(1200, D)) * 10**4 + rng.normal(size=(1200, 1)) * 25_000)
    coded, measured = [], []
    for name, made in (("encode", coded), ("measure", measured)):
        real = getattr(tiles.Frame, name)

        def noted(frame, rows, real=real, made=made):
            made.append((frame, len(rows)))
            return real(frame, rows)

        monkeypatch.setattr(tiles.Frame, name, noted)
    counter = looked_at(points)[1]
    first = counter._panes[0].segments[0]
    assert first.frame.scale > 0
    assert sum(size for frame, size in coded if frame is first.frame) <= 1200
    assert measured  # some pairs are left to compare, but too few for codes


@pytest.mark.parametrize("order", ["ascending", "a few first", "shuffled"])
def test_how_many_coordinates_are_looked_at_first_is_chosen_again(order):
    """Points that come near first, or only a few, show nothing of the pairs that come later."""
    if not blocks.SCREENS:
        pytest.skip("this processor has no 8-bit dot products")
    points, radius_squared = blob(6000, 64), 500**2 * 2 * 12**2
    if order == "ascending":
        points = points[np.argsort((points**2).sum(axis=1))]
    counter = FriendCounts(64, radius_squared)
    for part in np.split(points, [16 if order == "a few first" else 1500, 2500, 4000]):
        counter.add(0, part)
        counter._flush(0)
    counts = counter.view([0]).in_order()
    for some in (0, 17, 2000, 5999):
        assert counts[some] == (((points - points[some]) ** 2).sum(axis=1) <= radius_squared).sum()
    assert all(segment.frame.first_words < 16 for segment in counter._panes[0].segments)
    assert counter._state[5] > 1000


@pytest.mark.parametrize("before", [1, 5, 18])
@pytest.mark.parametrize("after", [2, 17, 18])
def test_stored_points_begin_as_if_their_first_words_had_been_known(before, after, monkeypatch):
    monkeypatch.setattr(tiles, "_POINTS_PER_BUCKET", 8)
    points = blob(200, 70)
    points[:40] *= 10**4  # without codes

    def segment(words):
        monkeypatch.setattr(tiles, "first_words", lambda *_: words)
        frame = tiles.Frame(points[40:], 10.0**7, True)
        held = tiles.TileSegment(70, frame, 1, [])
        for part in (points[:90], points[90:]):
            batch = frame.encode(part)
            held.insert(batch, np.arange(len(part), dtype=np.int32))
            held.store(batch)
            held.forget_batch()
        return held

    changed, expected = segment(before), segment(after)
    monkeypatch.setattr(tiles, "first_words", lambda *_: after)
    assert changed.frame.choose(points, 200) == (before != after)
    changed.restart()
    coded = changed.columns.shape[: changed.tiles, 1] == 0
    assert 0 < np.count_nonzero(coded) < changed.tiles
    for (one, here), (other, _) in zip(changed.parts(), expected.parts(), strict=True):
        wanted = coded[here]
        size = here.stop - here.start
        assert (one.starts[:size][wanted] == other.starts[:size][wanted]).all()


def test_pairs_that_distances_leave_are_estimated_before_they_are_compared():
    from fcstream._kernels import pairs

    points = blob(900, 3)
    for radius in (100.0, 700.0, 3000.0):
        frame = tiles.Frame(points, radius**2, True)
        held = tiles.TileSegment(3, frame, 1, [])
        batch = frame.encode(np.concatenate([points, points[:5] * 10**4]))
        held.insert(batch, np.arange(905, dtype=np.int32))
        spans, shape = held.columns.spans[: held.tiles], held.columns.shape[: held.tiles]
        assert 0 < np.count_nonzero(shape[:, 1]) < held.tiles
        for every, tile_every in ((1, 1), (7, 1), (40, 3)):
            left = pairs.undecided(points, every, frame.pivot, spans, shape, tile_every, radius)
            expected = 0
            for row in points[::every]:
                distance = np.linalg.norm(row - frame.pivot)
                for (low, high), (used, wide) in zip(spans[::tile_every], shape[::tile_every], strict=True):
                    sure, far = distance + high <= radius, distance - high > radius or low - distance > radius
                    expected += 0 if wide or sure or far else int(used)
            assert left == expected * tile_every / len(points[::every])


@pytest.mark.parametrize("gap", [-1, 0, 1])
def test_segments_out_of_reach_are_not_compared_and_those_just_in_reach_are(gap):
    """Two panes on a line, whose nearest points are a radius, one less and one more apart."""
    radius = 10**5
    left = np.rint(np.random.default_rng(0).uniform(-1000, 0, (200, 1)))
    left[0], left[1] = 0, -1000
    right = radius + gap - left
    counter = CrossCounts(1, radius**2, 2)
    counter.add(0, left)
    counter.add(1, right)
    counts = counter.view([0, 1]).in_order()
    expected = np.abs(left - right.T) <= radius
    assert (counts == np.concatenate([expected.sum(axis=1), expected.sum(axis=0)])).all()
    assert expected.any() == (gap <= 0)
    assert counter._panes[0].segments[0].undecided(right + 1000) is None
