import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.helpers import exact_counts

import fcstream
from fcstream.counting import exact as module
from fcstream.counting import tiles
from fcstream.counting.exact import LANES, FriendCounts
from fcstream.errors import ConfigError
from fcstream.stream.lattice import MAX_COORDINATE, Lattice


def lattice_points(rng, n, d, spread):
    return np.rint(rng.normal(size=(n, d)) * spread)


@pytest.fixture(scope="module", autouse=True)
def no_window_is_small():
    """Windows of few points take the way of large ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_FEW_COORDINATES", 0)
        patch.setattr(module, "_PANE_NS", 0)
        yield


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 2, 3, 7, 16])
@pytest.mark.parametrize("n", [0, 1, 2, LANES - 1, LANES, LANES + 1, 200])
def test_counts_equal_the_naive_twin_after_every_step(n, d, monkeypatch):
    monkeypatch.setattr(module, "_FEW_COORDINATES", 2**20 if (n + d) % 2 else 0)
    rng = np.random.default_rng(n * 31 + d)
    points = lattice_points(rng, n, d, 100)
    radius_squared = int(2 * d * 100**2)
    counter = FriendCounts(d, radius_squared)
    done = 0
    while done < n:
        done = min(n, done + int(rng.integers(1, 90)))
        counter.add(0, points[counter.size(0) : done])
        assert counter.view([0]).in_order().tolist() == naive.friend_counts(points[:done], radius_squared)
    assert counter.size(0) == n


@settings(max_examples=60)
@given(st.integers(1, 300), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_batches_and_order_change_no_bit(n, d, seed):
    rng = np.random.default_rng(seed)
    points = lattice_points(rng, n, d, 3)  # many exact ties
    radius_squared = int(rng.integers(1, 40))
    whole = FriendCounts(d, radius_squared)
    whole.add(5, points)
    order = rng.permutation(n)
    pieces = FriendCounts(d, radius_squared)
    for part in np.array_split(order, int(rng.integers(1, n + 1))):
        pieces.add(5, points[part])
    assert (pieces.view([5]).in_order() == whole.view([5]).in_order()[order]).all()


@pytest.mark.parametrize("scale", [1, 1000, 2**20])
def test_exact_boundary(scale):
    """Squared distances R2 - 1, R2 and R2 + 1 are told apart, also far from the origin and at the largest radius."""
    far = 2**39
    a = np.array([[far, -far, far]], np.float64)
    for legs in ([3, 4, 0], [1, 2, 2], [9, 12, 20]):
        offset = np.array(legs, np.float64) * scale
        r2 = int((offset**2).sum())
        for radius_squared, friends in ((r2 - 1, 1), (r2, 2), (r2 + 1, 2)):
            if radius_squared < 1:
                continue
            counter = FriendCounts(3, radius_squared)
            counter.add(0, a)
            counter.add(0, a + offset)
            assert counter.view([0]).counts.tolist() == [friends, friends]


def test_sums_beyond_the_exact_range_are_still_decided_right():
    """Past 2**53 a float64 sum is rounded but monotone: the bit stays the exact integer's."""
    rng = np.random.default_rng(3)
    points = np.rint(rng.uniform(-MAX_COORDINATE, MAX_COORDINATE, size=(60, 4)))
    points[1::2] = points[::2] + np.rint(rng.normal(size=(30, 4)) * 2**24)
    radius_squared = 2**53 - 1
    counter = FriendCounts(4, radius_squared)
    counter.add(0, points)
    assert counter.view([0]).in_order().tolist() == naive.friend_counts(points, radius_squared)


@pytest.mark.slow
def test_every_window_over_panes_equals_the_naive_twin():
    rng = np.random.default_rng(1)
    reach, d, radius_squared = 3, 2, 5000
    counter = FriendCounts(d, radius_squared, reach)
    held: dict[int, list] = {}
    for step in range(60):
        pane = int(rng.integers(0, 8))
        points = lattice_points(rng, int(rng.integers(1, 40)), d, 60)
        counter.add(pane, points)
        held.setdefault(pane, []).extend(points.tolist())
        if step == 40:
            counter.drop(2)
            held.pop(2, None)
        first = int(rng.integers(0, 8))
        panes = range(first, first + reach)
        view = counter.view(panes)
        rows = view.points().tolist()
        assert view.counts.tolist() == naive.friend_counts(rows, radius_squared)
        assert sorted(rows) == sorted(p for pane in panes for p in held.get(pane, []))
        assert view.size == len(rows)
    assert counter.panes == sorted(held)


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 2, 5, 16, 33])
@pytest.mark.parametrize("reach", [1, 2])
@pytest.mark.parametrize("outliers", [0.0, 0.3])
def test_buckets_and_screens_equal_the_naive_twin(d, reach, outliers, monkeypatch):
    """Ranges of pairs decided by distance, 8-bit codes, half-filled tiles of many buckets: not one bit changes."""
    monkeypatch.setattr(module, "STAGED", 60)
    monkeypatch.setattr(module, "_FEW", 20)
    monkeypatch.setattr(tiles, "_POINTS_PER_BUCKET", 8)
    monkeypatch.setattr(tiles, "_COMING_PER_BUCKET", 1)
    rng = np.random.default_rng(d)
    radius_squared = int(2 * 100**2 * (d**0.5 + 2.5) ** 2)
    counter = FriendCounts(d, radius_squared, reach)
    held = {0: np.empty((0, d)), 1: np.empty((0, d))}
    for step in range(16):
        pane = step % reach
        points = lattice_points(rng, 41, d, 100)
        points[rng.random(41) < outliers] += rng.choice([3000, 10**6])
        points[:3] = points[0]  # ties
        counter.add(pane, points)
        held[pane] = np.concatenate([held[pane], points])
        if step % 3:
            continue
        view = counter.view(range(reach))
        rows = view.points()
        everything = np.concatenate([held[0], held[1]])
        assert sorted(map(tuple, rows.tolist())) == sorted(map(tuple, everything.tolist()))
        assert (view.counts == exact_counts(rows, radius_squared)).all()
    segments = counter._panes[0].segments
    assert max(segment._open.shape[1] for segment in segments) > 1 or counter._asked() >= module._WORTH
    mask = rng.random(view.size) < 0.5
    chosen = view.select(mask)
    assert chosen.size == mask.sum() == sum(int(inside.sum()) for _, inside in chosen.parts)
    counter.drop(0)
    view = counter.view(range(reach))
    assert (view.counts == exact_counts(view.points(), radius_squared)).all()


def test_the_public_function_answers_in_the_order_of_its_points():
    rng = np.random.default_rng(4)
    points = np.rint(rng.normal(size=(9000, 2)) * 1000)
    counts = fcstream.friend_counts(points, 700.0, step=1.0)
    for i in rng.integers(0, 9000, 50):
        assert counts[i] == (((points - points[i]) ** 2).sum(axis=1) <= 700**2).sum()


def test_dropped_pane_is_gone_from_all_counts():
    counter = FriendCounts(1, 100, 2)
    counter.add(0, np.zeros((5, 1)))
    counter.add(1, np.zeros((3, 1)))
    assert counter.view([0, 1]).counts.tolist() == [8] * 8
    counter.drop(0)
    counter.drop(0)
    assert counter.view([0, 1]).counts.tolist() == [3] * 3
    counter.add(0, np.zeros((2, 1)))
    assert counter.view([0, 1]).counts.tolist() == [5] * 5


def test_input_is_copied_and_not_changed():
    points = np.ones((3, 2))
    before = points.copy()
    counter = FriendCounts(2, 4)
    counter.add(0, points)
    assert (points == before).all()
    points[:] = 1e9
    assert counter.view([0]).points().tolist() == before.tolist()


def test_memory_is_bounded_by_the_points():
    n, d = 50_000, 16
    counter = FriendCounts(d, 1)
    rng = np.random.default_rng(0)
    for _ in range(10):
        counter.add(0, np.rint(rng.normal(size=(n // 10, d)) * 1000))
    tiles = sum(tiles.nbytes for tiles in counter.view([0]).tiles)
    assert tiles <= 2.5 * n * d * 8


def test_friend_counts_function_rounds_half_to_even_and_counts_self():
    # 0.0005 rounds to 0 and 0.0015 to 2 steps: a distance of two steps.
    assert fcstream.friend_counts([[0.0005], [0.0015]], 0.001, step=0.001).tolist() == [1, 1]
    assert fcstream.friend_counts([[0.0005], [0.0015]], 0.002, step=0.001).tolist() == [2, 2]
    counts = fcstream.friend_counts(np.empty((0, 3)), 1.0, step=0.1)
    assert counts.dtype == np.int64
    assert counts.shape == (0,)


@pytest.mark.parametrize(
    ("points", "radius", "step", "what"),
    [
        ([[np.nan]], 1, 0.1, "finite"),
        ([[np.inf]], 1, 0.1, "finite"),
        ([1.0, 2.0], 1, 0.1, "shape"),
        ([["a"]], 1, 0.1, "numbers"),
        ([[1.0], [1.0, 2.0]], 1, 0.1, "numbers"),
        ([[1e300]], 1, 0.1, "2\\*\\*40"),
        ([[0.0]], 0.0, 0.1, "positive"),
        ([[0.0]], 0.01, 0.1, "at least one lattice step"),
        ([[0.0]], 1e9, 1e-3, "2\\*\\*26.5"),
        ([[0.0]], 1, 0.0, "positive"),
        ([[0.0]], 1, np.nan, "positive"),
    ],
)
def test_bad_arguments(points, radius, step, what):
    with pytest.raises(ConfigError, match=what):
        fcstream.friend_counts(points, radius, step=step)


@pytest.mark.parametrize(("radius", "step"), [("3", "0.001"), ("0.1", "0.01"), ("1e-3", "1e-9"), ("7.77", "0.3")])
def test_radius_is_an_exact_integer(radius, step):
    assert Lattice(float(step)).radius_squared(float(radius)) == naive.radius_squared(radius, step)


def test_fuzz_against_the_naive_twin_near_the_boundary():
    """Pairs at R2 - 1, R2, R2 + 1 in random dimensions and scales, ties included."""
    rng = np.random.default_rng(99)
    for _ in range(40):
        d = int(rng.integers(1, 9))
        scale = float(rng.choice([1, 7, 1000, 10**6]))
        base = np.rint(rng.normal(size=(20, d)) * scale)
        twin = base + np.rint(rng.normal(size=(20, d)) * scale / 3)
        points = np.concatenate([base, twin])
        i, j = rng.integers(0, 40, 2)
        r2 = int(((points[i] - points[j]) ** 2).sum()) or 1
        for radius_squared in {max(1, r2 - 1), r2, r2 + 1}:
            counter = FriendCounts(d, radius_squared)
            counter.add(0, points)
            assert counter.view([0]).in_order().tolist() == naive.friend_counts(points, radius_squared)
