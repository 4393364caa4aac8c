"""No sum of integers wraps: every accumulator of the package at the size where an int64 would, and just beyond it."""

import math
from fractions import Fraction

import numpy as np
import pytest
from support import naive

from fcstream import Noise, SeededEntropy
from fcstream._kernels import sums
from fcstream.accounting.losses import PrivacyLoss
from fcstream.counting.exact import FriendCounts
from fcstream.counting.multi_radius import MultiRadiusView
from fcstream.counting.views import MAX_POINTS, Selection, numbered
from fcstream.noise.samplers import MAX_VARIANCE
from fcstream.releases.averages import BallAverage, FriendlyAverage, exact_sums
from fcstream.releases.clusters import mixtures, tuples
from fcstream.releases.clusters.shards import MAX_TUPLES
from fcstream.releases.statistics import variance
from fcstream.releases.statistics.quantiles import missing_ranks
from fcstream.releases.tables.synthetic_paper import _parts
from fcstream.stream import contributions, totals
from fcstream.stream.contributions import UserPoints
from fcstream.stream.lattice import MAX_COORDINATE, MAX_RADIUS_SQUARED
from fcstream.stream.totals import Totals, column_totals, gram_totals, rows_within, tile_totals
from fcstream.synthetic.convex import REACH, ConvexSet, RegionCounts

LANES = 32
LAST = 2**63 - 1
BEYOND = 2**23 + 1  # points at the end of the range whose plain int64 sum wraps
BALL = math.isqrt(MAX_RADIUS_SQUARED) + 1
COUNTED = 2**40  # records of a window that some functions are stated for
BOUNDS = {  # accumulator -> largest term, how many come together, and what must hold them
    "coordinates of one tile, in a double": (2 * MAX_COORDINATE, LANES, 2**53),
    "coordinates of one tile, clipped, in a double": (BALL, LANES, 2**53),
    "one squared offset in a ball, in a double": (MAX_RADIUS_SQUARED, 1, 2**53),
    "coordinates (masked_sum)": (MAX_COORDINATE, rows_within(MAX_COORDINATE), LAST),
    "clipped offsets (clipped_sum), offsets in a ball (inside_sum)": (BALL, rows_within(BALL), LAST),
    "squared offsets (inside_squares)": (2**variance.BITS, rows_within(2**variance.BITS), LAST),
    "products of clipped offsets": (2**mixtures._PRODUCT_BITS, rows_within(2**mixtures._PRODUCT_BITS), LAST),
    "points of tuples": (2 * MAX_COORDINATE, rows_within(2 * MAX_COORDINATE), LAST),
    "second moments of small integers": (REACH**2, rows_within(REACH**2), LAST),
    "second moments of small integers, in doubles": (REACH**2, 8192, 2**53),
    "sums of small integers": (REACH, COUNTED, LAST),
    "a user's coordinates": (MAX_COORDINATE, contributions._TOGETHER + contributions._LARGE // MAX_COORDINATE, LAST),
    "friends of a point in one pane, int32": (1, MAX_POINTS, 2**31 - 1),
    "pairs of one part and one pane (radius_totals)": (MAX_POINTS, MAX_POINTS, LAST),
    "pairs of tuples": (MAX_TUPLES, MAX_TUPLES, LAST),
    "numerators of a core's coins": (2**20, 2 * COUNTED, LAST),
    "costs of a quantile": (10**6, COUNTED, LAST),
    "second moments of bits with their shifts": (4 + 2 + 2 + 1, COUNTED, LAST),
    "a rounded average and its noise": (MAX_COORDINATE * 2**20 + 2**7 * math.isqrt(MAX_VARIANCE), 1, LAST),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_what_one_accumulation_may_hold_follows_from_public_ranges(name):
    largest, rows, limit = BOUNDS[name]
    assert largest * rows <= limit


def selection(points, lanes=LANES):
    """One part for all points, as a view of secretly chosen pairs has it."""
    count = -(-len(points) // lanes)
    rows = np.full((count * lanes, points.shape[1]), np.inf)
    rows[: len(points)] = points
    tiles = np.ascontiguousarray(rows.reshape(count, lanes, -1).transpose(0, 2, 1))
    mask = np.arange(count * lanes) < len(points)
    return Selection(((tiles, mask),), len(points), points.shape[1])


@pytest.mark.parametrize("sign", [1, -1])
def test_one_record_more_in_a_window_of_one_part_does_not_flip_the_mean(sign):
    """From 2**23 points at the end of the range on an int64 sum wraps, and with it the released mean."""
    part = selection(np.full((BEYOND, 1), sign * float(MAX_COORDINATE)))
    assert exact_sums(part) == [sign * BEYOND * MAX_COORDINATE]
    average = FriendlyAverage(PrivacyLoss.charge(1.0, 1e-9), 4, 1000)
    for size in (BEYOND - 1, BEYOND):
        tiles, mask = part.parts[0]
        some = Selection(((tiles, np.arange(len(mask)) < size),), size, 1)
        found = average.release(some, Noise(SeededEntropy(size)))
        assert abs(found.value[0] - sign * MAX_COORDINATE) < 1


@pytest.fixture
def narrow(monkeypatch):
    """Partial sums are flushed after a few tiles: what is beyond them must come back all the same."""
    monkeypatch.setattr(totals, "WIDE", 2**46)


def far_points(n, dimension, seed):
    return np.random.default_rng(seed).choice([-MAX_COORDINATE, MAX_COORDINATE - 1, 5.0], size=(n, dimension))


@pytest.mark.parametrize("n", [1, 63, 64, 65, 127, 128, 129, 1000])
def test_sums_go_on_beyond_every_flush(narrow, n):
    points = far_points(n, 3, n)
    kept = np.random.default_rng(n).random(n) < 0.8
    part = selection(points)
    (tiles, mask) = part.parts[0]
    mask[:n] &= kept
    twice = Selection(((tiles, mask), (tiles, mask)), 2 * int(kept.sum()), 3)
    assert exact_sums(twice) == [2 * x for x in naive.masked_sum(points, kept)]


def test_offsets_and_squares_go_on_beyond_every_flush(monkeypatch):
    monkeypatch.setattr(totals, "WIDE", 2**20)
    rng = np.random.default_rng(1)
    points = rng.integers(-300, 300, size=(777, 2)).astype(float)
    part, center, everyone = selection(points), np.array([7.0, -3.0]), np.ones(777, bool)

    def inside(tiles, mask, out):
        return sums.inside_sum(tiles, len(mask), mask, center, 250.0**2, out)

    def squares(tiles, mask, out):
        return sums.inside_squares(tiles, len(mask), mask, center, 120.0**2, 3, out)

    assert tile_totals(part.parts, 2, 251, inside)[::-1] == naive.inside_sum(points, everyone, center, 250**2)
    rows = points.astype(int).tolist()
    assert tile_totals(part.parts, 2, 120**2 // 8 + 1, squares)[::-1] == naive.inside_squares(rows, [7, -3], 120**2, 3)


def test_clipped_sums_go_on_beyond_every_flush(monkeypatch):
    """All points lie in the ball: the sum is exact, whatever number of flushes it took."""
    points = np.tile([[2000.0, -2000.0], [2000.0, 0.0]], (3000, 1))
    answers = []
    for wide in (totals.WIDE, 2**18):
        monkeypatch.setattr(totals, "WIDE", wide)
        noise = Noise(SeededEntropy(4))
        answers.append(BallAverage(10**9, 10**9).release(selection(points), np.zeros(2), 3000**2, noise))
    assert (answers[0][0].value == answers[1][0].value).all()
    assert np.abs(answers[0][0].value - [2000, -1000]).max() < 5


def test_rows_products_and_small_integers_go_on_beyond_every_flush(monkeypatch):
    monkeypatch.setattr(totals, "WIDE", 2**34)
    rng = np.random.default_rng(2)
    rows = rng.integers(-1000, 1001, size=(50_000, 3))
    python = rows.astype(object)
    assert column_totals(rows, 2**24) == python.sum(axis=0).tolist()
    assert (gram_totals(rows, 1000**2) == python.T @ python).all()
    counter = RegionCounts(ConvexSet("ball", (0, 0), REACH))
    points = rng.choice([-REACH, REACH], size=(40_000, 1)) * np.array([[1.0, 0.0]])
    monkeypatch.setattr(totals, "WIDE", 8192 * REACH**2)
    for pane, some in enumerate(np.split(points, [100, 20_000, 20_001])):
        counter.add(pane, some)
    view = counter.view([0, 1, 2, 3])
    assert view.moments.tolist() == [[len(points) * REACH**2, 0], [0, 0]]


def test_partial_sums_refuse_more_than_they_certainly_hold():
    held = Totals(1, 2**40)
    held.make_room(2**22)
    with pytest.raises(OverflowError):
        held.make_room(2**22 + 1)


@pytest.mark.slow
def test_pairs_of_a_window_beyond_2_to_the_63_are_counted():
    """Some 3 * 10**9 points that are all friends: their ordered pairs no longer fit an int64."""
    by_radius = np.full((2**15, 1, LANES), 2**31 - 1, np.int32)
    many = 4200
    view = MultiRadiusView(((np.empty((0, 1, LANES)), np.empty(0, np.int64), (by_radius,) * many),), 1, 1)
    wanted = many * by_radius.size * (2**31 - 1)
    assert wanted > LAST
    assert view.pairs.tolist() == [wanted]


def test_indices_of_points_beyond_2_to_the_31_do_not_turn_negative():
    came = np.array([0, 5, 9], np.int32)
    for before in (0, 7, MAX_POINTS - 10, MAX_POINTS - 9, MAX_POINTS, 2**35):
        assert numbered(came, before, 10).tolist() == [before, before + 5, before + 9]


def test_damped_means_of_very_many_records_do_not_wrap():
    ones, sizes, grain = np.array([[2**50, 3]]), np.array([[2**50]]), 2**30
    assert _parts(ones, sizes, grain).tolist() == [[grain, 3 * grain >> 50]]
    small = np.array([[7, 3]])
    assert _parts(small, np.array([[9]]), 100).tolist() == [[77, 33]]


def test_costs_of_a_quantile_do_not_wrap():
    n = np.array([COUNTED])
    assert missing_ranks(n, 0 * n, COUNTED, Fraction(1, 10**6)).tolist() == [COUNTED * (10**6 - 1)]
    assert missing_ranks(0 * n, n, COUNTED, 1 - Fraction(1, 10**6)).tolist() == [COUNTED * (10**6 - 1)]


# -- users ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", [1, -1])
def test_a_user_with_more_than_2_to_the_22_records_at_the_end_of_the_range_keeps_the_sign(sign):
    found, batch = UserPoints(1, "mean"), 2**20
    names, times = np.full(batch, "a", object), np.zeros(batch, np.int64)
    for _ in range(4):
        found.add(0, names, times, np.full((batch, 1), sign * float(MAX_COORDINATE)))
        found.add(0, names[:1], times[:1], np.zeros((1, 1)))
    records = 4 * batch + 4
    exact = (2 * 4 * batch * sign * MAX_COORDINATE + records) // (2 * records)
    assert found.read(0, b"s")[1].tolist() == [[float(exact)]]


def test_all_records_of_a_user_count_in_any_order_and_by_any_way(monkeypatch):
    """Which records count must not depend on the order of reading: so none is left out, however many there are."""
    monkeypatch.setattr(contributions, "_LARGE", 50)
    monkeypatch.setattr(contributions, "_TOGETHER", 4)
    rng = np.random.default_rng(3)
    names = np.array([f"u{i}" for i in rng.integers(0, 5, 300)], object)
    points = rng.integers(-40, 41, size=(300, 2)).astype(float)
    wanted = naive.user_points(names, np.zeros(300, int), points, "mean")
    one, two, three = (UserPoints(2, "mean") for _ in range(3))
    one.add(0, names, np.zeros(300, np.int64), points)
    order = rng.permutation(300)
    for some in np.array_split(order, 7):
        two.add(0, names[some], np.zeros(len(some), np.int64), points[some])
    three.enter(0, *one.give(0))
    for each in (one, two, three):
        keys, means = each.read(0, b"s")
        found = dict(zip(keys.tolist(), means.tolist(), strict=True))
        assert found == {contributions.user_key(b"s", name).rstrip(b"\0"): mean for name, mean in wanted.items()}


def test_quotients_are_rounded_without_doubling():
    rng = np.random.default_rng(4)
    tops = np.concatenate([rng.integers(-(2**62), 2**62, 500), [2**62, -(2**62), 2**62 - 1, 0, -1, 1]])
    bottoms = np.concatenate([2 ** rng.integers(0, 62, 500), [2**22, 2**22, 1, 3, 2, 2]])
    wanted = [(2 * a + b) // (2 * b) for a, b in zip(tops.tolist(), bottoms.tolist(), strict=True)]
    assert contributions._nearest(tops, bottoms).tolist() == wanted


def test_tuples_at_the_end_of_the_range_are_averaged(monkeypatch):
    average = FriendlyAverage(PrivacyLoss.charge(5.0, 1e-6), 100, 500)
    ordered = np.full((500, 2, 1), float(MAX_COORDINATE))
    monkeypatch.setattr(totals, "WIDE", 2**45)
    reason, found = tuples._averaged(average, ordered, Noise(SeededEntropy(0)), lambda loss: None)
    assert reason is None
    assert np.abs(found.value - MAX_COORDINATE).max() < 10


def test_a_view_of_several_parts_is_summed_like_one():
    points = far_points(5000, 2, 9)
    counter = FriendCounts(2, None)
    for some in np.array_split(points, 7):
        counter.add(0, some)
    view = counter.view([0])
    assert exact_sums(view.select(np.ones(5000, bool))) == naive.masked_sum(points, np.ones(5000, bool))
