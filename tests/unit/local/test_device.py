"""Devices that hold their own budget: noise, journal, filter, and an adversary who asks."""

import json
import math
import subprocess
import sys
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from support import naive
from support.distributions import chi_square_p

from fcstream.accounting.losses import PrivacyLoss, geo_epsilon
from fcstream.errors import ConfigError
from fcstream.local import (
    Ask,
    Box,
    Component,
    Discrete,
    Distance,
    Euclidean,
    GreatCircle,
    Hamming,
    LocalBudget,
    LocalFilter,
    Mismatches,
    Named,
    Outside,
    Point,
    Records,
    Share,
    answer_all,
    turned,
)
from fcstream.local import noise as local_noise
from fcstream.local.device import device
from fcstream.local.device.drawing import exact_values
from fcstream.local.protocol import REASONS
from fcstream.noise.samplers import Noise, SeededEntropy, _WordReader

PLANE = Euclidean((0.0, 0.0), (1000.0, 1000.0), step=0.5, unit=10.0)
LINE = Euclidean((-500.0,), (500.0,), step=1.0)


def ask(query="q", round=1, nano=10**8, function=None, space=PLANE, component="place", pure=False):
    return Ask(query, round, component, space.as_dict(), (function or Point()).as_dict(), nano, pure)


def make(budget=None, journal=None, value=(300.0, 400.0), seed=1, space=PLANE, **more):
    budget = budget or LocalBudget.concentrated(1)
    return LocalFilter(budget, {"place": Component(space, value)}, journal, noise=Noise(SeededEntropy(seed)), **more)


def reply(data):
    return json.loads(data)


# -- noise -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_tables(monkeypatch):
    monkeypatch.setattr(local_noise, "_shared", lambda *_: None)


@pytest.mark.usefixtures("no_tables")
@pytest.mark.parametrize("variance", [Fraction(1, 10), Fraction(4), Fraction(1000, 7), Fraction(10**12, 3)])
def test_compiled_bins_equal_their_twin(variance):
    n, top, bottom = 300, variance.numerator, variance.denominator
    fast = local_noise.gaussians(Noise(SeededEntropy(5)), top, np.full(n, bottom), 1)[:, 0]
    reader = _WordReader(SeededEntropy(5))
    assert fast.tolist() == [local_noise._one(top, bottom, reader, reader) for _ in range(n)]


@pytest.mark.parametrize("kind", ["bins", "tables"])
@pytest.mark.parametrize("variance", [Fraction(1, 10), Fraction(4), Fraction(1000, 7)])
def test_draws_have_the_right_law_and_no_other(variance, kind, monkeypatch):
    if kind == "bins":
        monkeypatch.setattr(local_noise, "_shared", lambda *_: None)
    draws = local_noise.gaussians(
        Noise(SeededEntropy(6)), variance.numerator, np.full(20_000, variance.denominator), 2
    ).ravel()
    reach = 12 * math.isqrt(math.ceil(variance)) + 20
    assert chi_square_p(draws, naive.gaussian_pmf(float(variance), reach)) > 1e-4
    for wrong in (0.7, 1.3):
        assert chi_square_p(draws, naive.gaussian_pmf(float(variance) * wrong**2, reach)) < 1e-12


def test_every_draw_has_its_own_deviation_and_far_numbers_are_exact_too():
    denominators = np.repeat(np.array([1, 4, 100], np.int64), 20_000)
    draws = local_noise.gaussians(Noise(SeededEntropy(7)), 10**8, denominators, 1)[:, 0].reshape(3, -1)
    for row, sigma in zip(draws, (1e4, 5e3, 1e3), strict=True):
        assert stats.kstest((row + 0.5) / sigma, "norm").pvalue > 1e-4
        assert stats.kstest(0.9 * row / sigma, "norm").pvalue < 1e-6
    huge = local_noise.gaussians(Noise(SeededEntropy(8)), 2**60, np.ones(50, np.int64), 2)
    assert 0.7 < huge.std() / 2**30 < 1.3
    large = local_noise.gaussians(Noise(SeededEntropy(8)), 2**60 + 1, np.full(4000, 2**18 + 1), 1)
    assert 0.95 < large.std() / 2**21 < 1.05
    assert local_noise.gaussians(Noise(), 5, np.empty(0, np.int64), 3).shape == (0, 3)
    with pytest.raises(ConfigError):
        local_noise.gaussians(Noise(), 5, np.zeros(2, np.int64), 3)


@pytest.mark.usefixtures("no_tables")
def test_undecided_bins_are_decided_exactly(monkeypatch):
    """A prefix on the border of two bins leaves the kernel; digits beyond it decide."""
    border = int(local_noise._table()[1])
    word = (border << 32) | 5
    low, high = (local_noise._bin(border, lambda extra=extra: extra) for extra in (0, 2**64 - 1))
    assert (low, high) == (1, 2)

    class Planned:
        private = False

        def __init__(self):
            self.rest = SeededEntropy(1)
            self.first = [np.array([word], np.uint64)]

        def words(self, count):
            return np.concatenate([self.first.pop() if self.first else self.rest.words(0), self.rest.words(count)])

    calls = []
    original = local_noise.gaussian_bin_draw
    monkeypatch.setattr(local_noise, "gaussian_bin_draw", lambda *a: calls.append(a) or original(*a))
    local_noise.gaussians(Noise(Planned()), 10**6, np.ones(20, np.int64), 1)
    assert len(calls) == 1


def test_ends_of_tables_are_exact():
    """Against sums of `decimal`'s correctly rounded exponentials, to every digit."""
    for variance in (Fraction(1, 10), Fraction(7, 3), Fraction(900)):
        with localcontext() as context:
            context.prec = 80
            weights, far = [Decimal(1)], 15 * math.isqrt(math.ceil(variance)) + 40
            for k in range(1, far):
                weights.append(2 * (Decimal(-k * k * variance.denominator) / (2 * variance.numerator)).exp())
            total, below, expected = sum(weights), Decimal(0), {15: [], 31: [], 63: [], 79: []}
            for weight in weights:
                below += weight
                for bits, ends in expected.items():
                    ends.append(int(below * 2**bits / total))
        for bits, ends in expected.items():
            found = list(local_noise.gaussian_ends(variance, bits))
            assert found[-1] == 2**bits - 1 > found[-2]
            assert found == ends[: len(found)]


def test_compiled_tables_equal_their_twin_also_where_the_first_digits_do_not_decide(monkeypatch):
    """Quarters of words planned on the ends of a table, to 63 digits."""
    variances = [Fraction(90), Fraction(4)]
    planned = SeededEntropy(3).words(3000).view(np.uint16).copy()
    for place, variance, m in ((0, 0, 3), (40, 0, 5), (300, 0, 0), (900, 1, 2)):
        end = local_noise.gaussian_ends(variances[variance], 63)[m] | (m % 2) << 63
        planned[place : place + 4] = [end >> 48, end >> 32 & 0xFFFF, end >> 16 & 0xFFFF, end & 0xFFFF]

    class Planned:
        private = False

        def __init__(self):
            self.rest = planned

        def words(self, count):
            found, self.rest = self.rest[: 4 * count], self.rest[4 * count :]
            return found.view(np.uint64)

    calls = []
    original = local_noise.gaussian_table_draw
    monkeypatch.setattr(local_noise, "gaussian_table_draw", lambda *a: calls.append(a) or original(*a))
    which, fast, slow = np.repeat([0, 1, 0], 300), np.empty(1800, np.int64), np.empty(1800, np.int64)
    local_noise._from_tables(Noise(Planned()), variances, which, 2, fast)
    assert len(calls) == 4  # 63 digits did not decide
    monkeypatch.setattr(local_noise, "_kernels", lambda: None)
    local_noise._from_tables(Noise(Planned()), variances, which, 2, slow)
    assert (fast == slow).all()


def test_tables_serve_where_they_pay():
    """Many draws of few small variances; the law of each row is its own; without them the same law, other draws."""
    denominators = np.tile(np.array([4, 1], np.int64), 20_000)
    assert local_noise._shared(400, denominators, 1) is not None
    assert local_noise._shared(400, denominators[:100], 1) is None  # too few draws
    assert local_noise._shared(10**10, denominators, 1) is None  # too wide
    assert local_noise._shared(10**6, np.arange(1, 40_001), 1) is None  # too many
    draws = local_noise.gaussians(Noise(SeededEntropy(4)), 400, denominators, 1)[:, 0]
    for first, sigma in ((0, 10), (1, 20)):
        assert chi_square_p(draws[first::2], naive.gaussian_pmf(sigma**2, 300)) > 1e-4
        assert chi_square_p(draws[first::2], naive.gaussian_pmf(1.2 * sigma**2, 300)) < 1e-9
    assert stats.spearmanr(draws[:-1], draws[1:]).pvalue > 1e-4


def test_pure_noise_has_the_euclidean_law_and_no_other():
    rate = Fraction(2, 3)
    drawn = local_noise.lattice_laplace(Noise(SeededEntropy(9)), rate, 2, 4000)
    codes = drawn[:, 0] * 1000 + drawn[:, 1]
    for factor, passes in ((1.0, True), (0.7, False), (1.3, False)):
        pmf = naive.lattice_laplace_pmf(float(rate) * factor, 60)
        p = chi_square_p(codes, {x * 1000 + y: w for (x, y), w in pmf.items()})
        assert (p > 1e-4) if passes else (p < 1e-9)
    side = naive.laplace_pmf(1.5, 60)
    product = {x * 1000 + y: w * v for x, w in side.items() for y, v in side.items()}
    assert chi_square_p(codes, product) < 1e-9  # coordinates that are independent are another law
    with pytest.raises(ConfigError):
        local_noise.lattice_laplace(Noise(), rate, 11, 1)


def test_compiled_pure_noise_equals_its_twin(monkeypatch):
    for rate, dimension in ((Fraction(2, 3), 2), (Fraction(1, 5000), 3), (Fraction(17, 10), 5)):
        fast = local_noise.lattice_laplace(Noise(SeededEntropy(2)), rate, dimension, 60)
        with monkeypatch.context() as patch:
            patch.setattr(local_noise, "_noise_kernels", lambda: None)
            assert (fast == local_noise.lattice_laplace(Noise(SeededEntropy(2)), rate, dimension, 60)).all()


def test_integers_beyond_64_bits_are_answered_too():
    """Many points at once go through arrays, and what does not fit goes one by one."""
    far = Distance((2**50, -(2**50)), 2**16)
    values = [(1.0, 2.0), (900.0, 30.0), (5.5, 5.5)]
    holders = [make(value=value, seed=4, name=str(i)) for i, value in enumerate(values)]
    said = [reply(data)["values"][0] for data in answer_all([(holder, ask(function=far)) for holder in holders])]
    for holder, value in zip(holders, said, strict=True):
        exact = far.evaluate(holder._components("place").point)[0]
        assert exact > 2**63
        assert abs(value - exact) < 2**30
    near = Distance((30, 40))
    points = [holder._components("place").point for holder in holders]
    assert exact_values(near, points) == [list(near.evaluate(point)) for point in points]


# -- spaces and functions --------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.data())
def test_box_distances_equal_their_twin(data):
    d = data.draw(st.integers(1, 4))
    numbers = st.lists(st.integers(-60, 60), min_size=d, max_size=d)
    low2, sides = data.draw(numbers), data.draw(numbers)
    high2 = [a + abs(s) for a, s in zip(low2, sides, strict=True)]
    # centers in half steps: low + high must be even in quarter steps, so sides are doubled corners
    low2, high2 = [2 * a for a in low2], [2 * b for b in high2]
    center2 = tuple((a + b) // 2 for a, b in zip(low2, high2, strict=True))
    half2 = tuple((b - a) // 2 for a, b in zip(low2, high2, strict=True))
    box = Box(center2, half2, parts=data.draw(st.sampled_from([1, 7, 16])))
    points = np.array(data.draw(st.lists(numbers, min_size=1, max_size=6)), np.int64)
    expected = [naive.box_distance(row, low2, high2, box.parts) for row in points.tolist()]
    assert [box.evaluate(row)[0] for row in points.tolist()] == expected
    assert box.evaluate_all(points)[:, 0].tolist() == expected
    estimate = box.estimate(points.astype(float))
    assert np.allclose(np.floor(estimate * box.parts + 1e-9), expected)
    to = tuple(data.draw(numbers))
    near = Distance(to, 5)
    squares = [sum((x - t) ** 2 for x, t in zip(row, to, strict=True)) for row in points.tolist()]
    assert near.evaluate_all(points)[:, 0].tolist() == [math.isqrt(25 * square) for square in squares]


@settings(max_examples=60)
@given(st.data())
def test_functions_move_no_faster_than_their_sensitivity(data):
    d = data.draw(st.integers(1, 3))
    numbers = st.lists(st.integers(-30, 30), min_size=d, max_size=d)
    x, y, c = (tuple(data.draw(numbers)) for _ in range(3))
    angle = data.draw(st.floats(0, 7))
    matrix = np.eye(d)
    if d >= 2:
        matrix[:2, :2] = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
    turn, bits = turned(matrix)
    half = tuple(abs(v) for v in y)
    functions = [Distance(c, 3), Box(c, half, parts=3), Box(c, half, turn, bits, 3)]
    for function in functions:
        function.check(d, 30)
        moved = abs(function.evaluate(x)[0] - function.evaluate(y)[0])
        assert moved**2 <= function.sensitivity**2 * sum((a - b) ** 2 for a, b in zip(x, y, strict=True))
    turned_value = functions[2].evaluate(x)[0] / 3
    assert abs(turned_value - functions[2].estimate(np.array([x], float))[0]) < 0.34


def test_a_matrix_that_stretches_is_refused():
    with pytest.raises(ConfigError, match="stretch"):
        Box((0, 0), (1, 1), ((2, 0), (0, 1)), 0).check(2, 10)
    Box((0, 0), (1, 1), ((0, 1), (1, 0)), 0).check(2, 10)


def test_spaces_encode_anything_to_a_public_point():
    for space, dimension in ((PLANE, 2), (GreatCircle(), 3), (Hamming(4), 4), (Discrete(3), 3)):
        for value in (None, "x", (math.nan, 1.0), [1, 2, 3, 4, 5], 10**400, (10**400, 1), object()):
            point = space.encode(value)
            assert len(point) == dimension
            assert all(abs(x) <= space.reach for x in point)
    assert PLANE.encode((-5.0, 2000.0)) == (0, 2000)
    assert Discrete(3).encode(2) == (0, 0, 1)
    raw = np.array([[1.3, 999.9], [-7.0, 5.2], [math.inf, 3.0], [250.25, 0.75]])
    assert PLANE.encode_all(raw).tolist() == [list(PLANE.encode(row)) for row in raw]
    assert Records(0, 10).encode([1, 2.4, math.nan, 50]) == (1, 2, 10)
    for odd in ("x", 10**400, object(), [1], {"a": 1}, b"x"):  # what one record is does not change how others are read
        assert Records(0, 10).encode([1, odd, 2.4]) == (1, 2)
        assert len(Records(0, 10).encode(odd)) <= 1
    assert Records(0, 10).encode(np.array([[1, 2], [3, 4]])) == (1, 2, 3, 4)
    for bad in ({"step": 0}, {"step": 1e-13}, {"unit": -1}, {"step": 5000.0}):
        with pytest.raises(ConfigError):
            Euclidean((1.0, 1.0), (1000.0, 1000.0), **({"step": 1.0} | bad))
    with pytest.raises(ConfigError):
        Euclidean((0.0,), (1.0, 2.0), 1.0)


def test_chords_are_at_most_arcs_and_close():
    for arc in (10.0, 1e5, 1.9e7):
        assert 0.6 * arc < GreatCircle.chord(arc) <= arc
    assert 1e5 - GreatCircle.chord(1e5) < 1.1
    space = GreatCircle()
    houston, austin = space.encode((-95.37, 29.76)), space.encode((-97.74, 30.27))
    assert abs(math.dist(houston, austin) - 235_000) < 2_000


def test_every_space_has_the_noise_its_distance_asks_for():
    """Variance times 2 rho is the largest squared change over all pairs at distance 1 (in units)."""
    assert PLANE.variance(Point()) * 2 == 20**2
    assert PLANE.variance(Distance((0, 0), 4)) * 2 == (5 * 20) ** 2
    for space, far in ((Hamming(3), ((0, 0, 0), (1, 1, 1), 3)), (Discrete(4), ((1, 0, 0, 0), (0, 0, 1, 0), 1))):
        a, b, distance = far
        moved = sum((x - y) ** 2 for x, y in zip(a, b, strict=True))
        assert moved <= 2 * space.variance(Point()) * distance**2
    assert Share(5, 1, 4).sensitivity == 3
    assert Records(0, 10).variance(Share(5, 1, 4)) * 2 == 9


# -- the filter ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_answer_has_the_right_deviation():
    space = Euclidean((-500.0,), (500.0,), step=0.25, unit=2.0)
    for function, center, sigma in (
        (Point(), 4 * 100.0, 8 / math.sqrt(2 * 0.01)),
        (Distance((0,), 4), 4 * 4 * 100.0, 4 * 1.25 * 8 / math.sqrt(2 * 0.01)),
    ):
        holder = make(LocalBudget.concentrated(100), value=[100.0], space=space, seed=3)
        got = answer_all([(holder, ask(str(i), nano=10**7, function=function, space=space)) for i in range(3000)])
        values = np.array([reply(r)["values"][0] for r in got])
        assert stats.kstest((values + 0.5 - center) / sigma, "norm").pvalue > 1e-4
        for wrong in (0.7, 1.3):
            assert stats.kstest((values - center) / (wrong * sigma), "norm").pvalue < 1e-9
        assert reply(got[0])["private"] is False  # seeded


def test_budgets_of_three_kinds():
    near = make(LocalBudget.geo(1))
    assert reply(near.answer(ask("a", nano=6 * 10**8, pure=True)))["status"] == "answered"
    assert reply(near.answer(ask("b", nano=6 * 10**8, pure=True)))["reason"] == "budget"
    assert reply(near.answer(ask("b", nano=4 * 10**8, pure=True)))["status"] == "answered"  # it does not halt
    assert near.remaining.epsilon_nano == 0
    assert reply(near.answer(ask("c")))["reason"] == "loss"
    middle = make(LocalBudget.concentrated(1))
    assert reply(middle.answer(ask("a", nano=10**9, pure=True)))["status"] == "answered"
    assert middle.spent == PrivacyLoss.charge("0.5")  # epsilon**2 / 2
    limited = make(LocalBudget.approximate(1.0, 1e-6, 1.0))
    assert 0.0243 < limited.budget.capacity.rho < 0.0245
    assert geo_epsilon(limited.budget.capacity.rho, 1e-6, 1.0) <= 1.0
    assert limited.report()["guarantee"]["distance"] == 1.0


def test_components_are_introduced_when_first_queried_and_share_one_budget():
    asked = []

    def introduce(name):
        asked.append(name)
        kind, _, hour = name.partition("@")
        known = {"place": Component(PLANE, (float(hour or 0), 1.0)), "health": Component(Hamming(4), [1, 0, 1, 1])}
        return known.get(kind)

    holder = LocalFilter(LocalBudget.concentrated(1), introduce)
    for i, name in enumerate(("place@1", "place@2", "health")):
        space = PLANE if "place" in name else Hamming(4)
        assert reply(holder.answer(ask(str(i), nano=3 * 10**8, component=name, space=space)))["status"] == "answered"
    assert asked == ["place@1", "place@2", "health"]
    assert reply(holder.answer(ask("x", nano=3 * 10**8)))["reason"] == "budget"
    assert reply(holder.answer(ask("y", component="wealth")))["reason"] == "unknown_component"


def test_bad_asks_are_refused_clearly_and_cost_nothing():
    holder = make()
    good = ask("good")
    first = holder.answer(good)
    bad = {
        "conflict": [good.priced(5), ask("good", function=Distance((1, 1)))],
        "other_space": [ask("a", space=LINE)],
        "function": [
            ask("b", function=Distance((1,))),
            ask("c", function=Mismatches((1, 0))),
            ask("d", function=Named("own")),
            ask("e", function=Box((0, 0), (1, -1))),
            ask("f", function=Distance((1, 2**60))),
            Ask("g", 1, "place", PLANE.as_dict(), {"kind": "distance", "to": [1.5, 2], "parts": 4}, 5),
            Ask("h", 1, "place", PLANE.as_dict(), {"kind": "distance"}, 5),
            Ask("i", 1, "place", PLANE.as_dict(), {"kind": "evil", "to": 1}, 5),
        ],
        "loss": [ask("j", nano=0), ask("k", nano=-3), ask("l", nano=2**60)],
        "malformed": [b"", b"[" * 5000, b"{}", b"\xff", b'{"query":1}', b"x" * 2**21, ask("m").encode()[:-1]]
        + [ask("z").encode().replace(b'"point"', b"[" * depth + b"]" * depth) for depth in range(8, 1200, 9)]
        + [ask("z").encode().replace(b"10.0", b"[" * depth + b"]" * depth) for depth in range(8, 1200, 9)]
        + [ask("z").encode().replace(b'"unit":10.0', b'"unit":' + odd) for odd in (b"NaN", b"-Infinity", b"1e999")],
        "budget": [ask("n", nano=2 * 10**9)],
    }
    for reason, asks in bad.items():
        for one in asks:
            assert reply(holder.answer(one))["reason"] == reason
    assert set(bad) < set(REASONS)
    assert holder.spent == PrivacyLoss(good.nano)
    assert holder.answer(good) == first == holder.answer(good.encode())
    odd = dict(good.as_dict(), query="z\n")
    assert reply(holder.answer(json.dumps(odd).encode()))["reason"] == "malformed"


def test_refusals_never_quote_a_value():
    holder = make(value=(271.5, 828.0))
    said = b"".join(
        holder.answer(one) for one in (ask("a", space=LINE), ask("b", function=Distance((1,))), ask("c", nano=0))
    )
    assert b"543" not in said
    assert b"1656" not in said


def test_a_function_of_the_owners_is_asked_by_name():
    own = Named("height", 1, lambda point: abs(point[1]))
    holder = make(named={"height": own})
    assert reply(holder.answer(ask(function=own)))["status"] == "answered"
    assert reply(holder.answer(ask("b", function=Named("height", 2))))["reason"] == "function"


# -- audit -----------------------------------------------------------------------------------------------------------


def observed_loss(space, a, b, function, nano, pure, size=3000):
    """A lower estimate of the divergence between what devices with two values say: KL, or the largest log ratio."""
    said = []
    for seed, value in enumerate((a, b)):
        budget = LocalBudget.geo(10**5) if pure else LocalBudget.concentrated(10**5)
        holder = make(budget, value=value, space=space, seed=seed)
        asks = [ask(str(i), nano=nano, function=function, space=space, pure=pure) for i in range(size)]
        said.append(np.array([reply(data)["values"][0] for data in answer_all([(holder, one) for one in asks])]))
    cuts = np.unique(np.quantile(np.concatenate(said), np.linspace(0, 1, 5 if pure else 13)[1:-1]))
    p, q = (np.bincount(np.searchsorted(cuts, s), minlength=len(cuts) + 1) + 0.5 for s in said)
    ratio = np.log(p / q)
    return float(np.abs(ratio).max()) if pure else float((p / p.sum() * ratio).sum())


@pytest.mark.slow
@pytest.mark.parametrize(("distance", "function"), [(1, Point()), (4, Point()), (3, Distance((-400,), 4))])
def test_audit_the_loss_grows_with_the_distance_and_no_faster(distance, function):
    rho = 0.4 / distance**2
    loss = observed_loss(LINE, [0.0], [float(distance)], function, int(rho * 10**9), False)
    assert loss <= 0.4 * 1.12 + 0.01
    assert loss > 0.15  # the audit looks at something


@pytest.mark.slow
def test_audit_of_pure_noise():
    for distance in (1, 4):
        loss = observed_loss(LINE, [0.0], [float(distance)], Point(), int(0.5 / distance * 10**9), True)
        assert 0.25 < loss <= 0.5 + 0.2  # the largest of four noisy log ratios


@pytest.mark.slow
def test_audit_sees_a_planted_fault(monkeypatch):
    """Noise for twice the price that was charged: the audit's bound breaks."""
    honest = Euclidean.draw
    monkeypatch.setattr(Euclidean, "draw", lambda self, n, f, unit, costs: honest(self, n, f, unit, 2 * costs))
    assert observed_loss(LINE, [0.0], [1.0], Point(), 4 * 10**8, False) > 0.4 * 1.12 + 0.01


# -- a small device --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_device_side_needs_numpy_only():
    """Numba, llvmlite, SciPy, msgspec and click cannot be imported; device and pure samplers work all the same."""
    code = """
import sys
class Wall:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in ('numba', 'llvmlite', 'scipy', 'msgspec', 'click'):
            raise ImportError(name)
sys.meta_path.insert(0, Wall())
from fractions import Fraction
from fcstream.local import *
from fcstream.noise.samplers import Noise, SeededEntropy
space = Euclidean((0.0, 0.0), (100.0, 100.0), step=0.5)
def device():
    return LocalFilter(LocalBudget.concentrated(1), {'p': Component(space, (3.0, 4.0))}, noise=Noise(SeededEntropy(1)))
for i, f in enumerate((Point(), Distance((1, 2)), Box((3, 3), (9, 9)))):
    print(device().answer(Ask(str(i), 1, 'p', space.as_dict(), f.as_dict(), 10**8)).decode())
print(device().answer(Ask('e', 1, 'p', space.as_dict(), {'kind': 'point'}, 10**8, True)).decode())
noise = Noise(SeededEntropy(5))
print(noise.discrete_gaussian(50, 5).tolist())
print(noise.entropy is not None and Noise(SeededEntropy(5)).discrete_laplace(Fraction(7, 2), 5).tolist())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    without = done.stdout.splitlines()
    body = code.split("sys.meta_path.insert(0, Wall())")[1]
    done = subprocess.run([sys.executable, "-c", body], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == without  # the compiled twins draw the same
    assert len(without) == 6


def test_sections_and_examples():
    import doctest

    done = doctest.testmod(device)
    assert done.attempted > 3
    assert done.failed == 0


def test_outside_names_categories():
    assert Outside((0, 2)).evaluate(Discrete(3).encode(2)) == (0,)
    assert Outside((0,)).evaluate(Discrete(3).encode(2)) == (1,)
    with pytest.raises(ConfigError):
        Outside((3,)).check(3, 1)
    assert Outside((1,)).estimate(np.array([[0.0, 1.0, 0.0]])).tolist() == [0.0]
    assert Mismatches((1, 0)).estimate(np.array([[0.0, 1.0]])).tolist() == [2.0]
    assert Share(5, 1, 4).evaluate((1, 9, 9)) == (3 * 1 - 2,)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.integers(-5, 5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=6,
)
TURN = [[0, 1], [1, 0]]
SOUND = [
    (PLANE, {"kind": "point"}),
    (PLANE, {"kind": "distance", "to": [2**49, -5], "parts": 2**16}),
    (PLANE, {"kind": "box", "center2": [2**50, 3], "half2": [0, 2**50], "turn": TURN, "turn_bits": 0, "parts": 1}),
    (Hamming(3), {"kind": "point"}),
    (Hamming(3), {"kind": "mismatches", "to": [1, 0, 1]}),
    (Discrete(4), {"kind": "point"}),
    (Discrete(4), {"kind": "outside", "names": [3, 3]}),
    (Records(0.0, 9.0), {"kind": "share", "at": 4, "top": 1, "bottom": 2**16}),
    (Euclidean.cube(12, 0.0, 1.0, 0.001, 7.3), {"kind": "point"}),
    (Euclidean.cube(10, 0.0, 1.0, 1e-9, 1e6), {"kind": "point"}),
    (Euclidean.cube(3, -1e6, 1e6, 1e-4, 1.0), {"kind": "distance", "to": [1, 2, 3], "parts": 1}),
]
KEYS = sorted({key for _, function in SOUND for key in function} | {"name"})
PRICES = st.integers() | st.sampled_from([1, 1000, 10**6, 10**8, 10**12, 2**50, 2**51])


@pytest.mark.slow
@settings(max_examples=250)
@given(
    st.sampled_from(SOUND), st.none() | st.tuples(st.sampled_from(KEYS), VALUES), PRICES, st.booleans(), st.booleans()
)
def test_no_ask_makes_a_device_raise(sound, change, nano, pure, is_geo):
    """Anything in an ask gets a reply; a refusal costs nothing, an answer what was asked for, if it is a plain rho."""
    space, function = sound
    if space.dimension == 10 and pure:
        nano = max(nano, 10**9)  # one in eleven proposals is taken there
    budget = LocalBudget.geo(10**7) if is_geo else LocalBudget.concentrated(10**7)
    holder = LocalFilter(budget, {"place": Component(space, None)}, noise=Noise(SeededEntropy(1)))
    one = {"query": "q", "round": 1, "component": "place", "space": space.as_dict()}
    price = "epsilon_nano" if pure else "rho_nano"
    changed = function | (dict([change]) if change else {})
    found = reply(holder.answer(json.dumps(one | {"function": changed, price: nano}).encode()))
    spent = holder.spent.parts[0]
    if found["status"] == "refused":
        assert found["reason"] in REASONS
        assert spent == 0
    else:
        assert all(type(value) is int for value in found["values"])
        assert spent > 0
        assert pure or spent == nano
