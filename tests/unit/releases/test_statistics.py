"""Histograms, quantiles and variances: against slow twins, at their claimed cost, on data that hold nothing."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from support import naive
from support.helpers import rows, sample

import fcstream
from fcstream import Engine, Noise, SeededEntropy
from fcstream.accounting.losses import PrivacyLoss, epsilon_tight
from fcstream.config import Config
from fcstream.errors import ConfigError, UnusablePlan
from fcstream.ledgers import Request, Terms, WindowKey, open_ledger
from fcstream.ledgers.base import STREAM_BLOCK
from fcstream.noise.intervals import interval_index
from fcstream.planning.plan import plan
from fcstream.releases.core_stage import ChargeShare
from fcstream.releases.statistics.columns import BinCounts
from fcstream.releases.statistics.quantiles import intervals, missing_ranks
from fcstream.releases.statistics.variance import uncut_reach

BARE = {"method": None, "radius": None, "spread": None, "delta": None}
HISTOGRAM = {**BARE, "kind": "histogram", "feature": "a", "edges": [15.0, 20.0, 20.5, 21.0]}
CATEGORIES = {**BARE, "kind": "histogram", "feature": "b", "categories": [50.0, 10.0, 12.5]}
QUANTILES = {**BARE, "kind": "quantiles", "feature": "a", "quantiles": [0.1, 0.5, 0.9]}
VARIANCE = {"kind": "variance", "method": None, "spread": None}
KINDS = {"histogram": HISTOGRAM, "categories": CATEGORIES, "quantiles": QUANTILES, "variance": VARIANCE}
ONE = {"end": "1970-01-01T00:00:10Z"}


class Silent(Noise):
    """Draws of nothing but the likeliest value: what is left is the arithmetic."""

    def discrete_gaussian(self, variance, size):
        return np.zeros(size, np.int64)

    def exponential_choice(self, sizes, costs, rate):
        return int(np.lexsort((-sizes, costs, sizes == 0))[0])

    def uniform_below(self, bound):
        return 0


def job_of(release, **sections):
    return Config.from_mapping(sample(release=release, window=ONE, **sections)).job


def answer(release, raw, noise=None, **sections):
    """One window's release."""
    engine = Engine(sample(release=release, window=ONE, **sections), noise=noise or Noise(SeededEntropy(3)))
    engine.push(np.zeros(len(raw), np.int64), raw)
    return engine.close()[0]


def charge_of(loss):
    ledger = open_ledger("memory:", Terms("t", "stream", PrivacyLoss.cap(1e3, 0.5), ""))
    return ledger.charge([Request(WindowKey(0, 10_000), loss, (STREAM_BLOCK,))])[0].charge


# -- arithmetic ----------------------------------------------------------------------------------------------------


def test_bins_are_the_twins():
    rng = np.random.default_rng(1)
    points = rng.integers(-20, 20, size=(400, 2)).astype(float)
    for inner, values in (((-7, 0, 1, 12), ()), ((), (3, -2, 8))):
        counter = BinCounts(1, inner, values)
        counter.add(4, points[:150])
        counter.add(4, points[150:300])
        counter.add(5, points[300:])
        twin = naive.bins(points[:, 1].tolist(), inner, values)
        assert counter.view([4, 5, 9]).tolist() == twin
        counter.drop(4)
        counter.drop(4)
        assert counter.panes == [5]
        assert counter.view([4, 5]).tolist() == naive.bins(points[300:, 1].tolist(), inner, values)
        assert counter.view([]).tolist() == [0] * (len(inner or values) + 1)


def test_a_histogram_is_what_it_says():
    raw = rows(900, seed=4)
    raw[:5, 0] = [15.0, 20.0, 20.5, 21.0, 80.0]  # on the edges: the upper bin; the end of the range: the last
    found = answer(HISTOGRAM, raw, Silent(SeededEntropy(0)))
    assert found.parts == {"feature": "a", "edges": [-40.0, 15.0, 20.0, 20.5, 21.0, 80.0]}
    lattice = np.rint((raw[:, 0] - 20) / 0.001)
    assert found.value == np.histogram(lattice, np.rint(np.subtract(found.parts["edges"], 20) / 0.001))[0].tolist()
    assert found.count == 900
    raw[:7, 1], raw[7:10, 1] = 12.5, 10.0
    found = answer(CATEGORIES, raw, Silent(SeededEntropy(0)))
    assert found.value == [float(np.sum(np.rint((raw[:, 1] - 50) / 0.002) == 0)), 3.0, 7.0, 900 - 10 - found.value[0]]


def test_an_edge_at_the_end_of_the_range_adds_no_bin():
    release = {**HISTOGRAM, "edges": [-40.0, 0.0, 80.0]}
    assert len(answer(release, rows(10)).value) == 2


@pytest.mark.parametrize("level", ["0.5", "0.1", "0.999", "0.123456"])
def test_intervals_and_costs_are_the_twins(level):
    rng = np.random.default_rng(2)
    for n, least, most in ((0, -3, 4), (1, -3, 4), (6, 0, 5), (60, -40, 60), (30, 0, 3)):
        values = np.sort(rng.integers(least, most + 1, n))
        starts, sizes, below, above = intervals(values, least, most)
        found = {}
        costs = missing_ranks(below, above, n, Fraction(level))
        for start, size, cost in zip(starts, sizes, costs, strict=True):
            found |= dict.fromkeys(range(start, start + size), int(cost))
        assert found == naive.quantile_costs(values.tolist(), least, most, Fraction(level))


def test_one_record_moves_costs_by_what_is_paid_for():
    rng = np.random.default_rng(3)
    for level in (Fraction(1, 2), Fraction(1, 10), Fraction(9, 10)):
        most = max(level.numerator, level.denominator - level.numerator)
        for _ in range(40):
            values = rng.integers(0, 30, 12).tolist()
            before = naive.quantile_costs(values, 0, 29, level)
            after = naive.quantile_costs([*values, int(rng.integers(0, 30))], 0, 29, level)
            moves = [after[v] - before[v] for v in before]
            assert max(map(abs, moves)) <= most
            assert max(moves) - min(moves) <= 2 * most


def test_a_value_that_many_records_share_is_their_quantile():
    """The median of data of which 60% were 0 lay anywhere in the wide empty range beside it."""
    random = np.random.default_rng(0)
    mixed = np.r_[np.zeros(6000), random.uniform(500, 1000, 4000).round(2)]
    two, few = np.repeat([20.0, 80.0], [5100, 4900]), np.repeat([18.0, 19.0, 20.0], [100, 400, 100])
    for values, level, right in ((mixed, 0.5, 0.0), (two, 0.4, 20.0), (few, 0.1, 18.0), (few, 0.9, 20.0)):
        for seed in range(20):
            noise = Noise(SeededEntropy(seed))
            found = fcstream.private_quantiles(values, [level], rho=1, step=0.01, bounds=(0, 1000), noise=noise)
            assert found.value == [right]


def test_quantiles_are_those_of_the_data_where_noise_is_silent():
    raw = rows(1000, seed=5)
    found = answer(QUANTILES, raw, Silent(SeededEntropy(0)))
    lattice = np.sort(np.rint((raw[:, 0] - 20) / 0.001))
    for level, value in zip((0.1, 0.5, 0.9), found.value, strict=True):
        rank = int(level * 1000)
        assert lattice[rank - 1] <= round((value - 20) / 0.001) <= lattice[rank]


def test_a_variance_is_the_twins():
    raw = rows(2000, seed=6)
    raw[:40, 0] = 60.0  # outliers
    found = answer({**VARIANCE, "reach": 2.0}, raw, Silent(SeededEntropy(0)))
    points = job_of(VARIANCE).grid.points(raw).astype(int).tolist()
    center = [round((found.parts["mean"][0] - 20) / 0.001), round((found.parts["mean"][1] - 50) / 0.002)]
    count, squares = naive.inside_squares(points, center, 2000**2)
    noise = [sigma / scale for sigma, scale in zip(found.parts["mean_sigma"], (0.001, 0.002), strict=True)]
    twin = [total / count - sigma**2 for total, sigma in zip(squares, noise, strict=True)]
    assert found.core_count == count == 1960
    assert found.parts["tail_share"] == 0.02
    assert found.value == pytest.approx([twin[0] * 0.001**2, twin[1] * 0.002**2], rel=1e-9)
    assert found.value == pytest.approx(raw[40:].var(axis=0), rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("rho", [1.0, 0.25])
def test_sigma_holds_the_error_of_a_variance_also_of_many_records(rho):
    """The cut tail took four of these sigmas from variances of 20,000 normal records."""
    errors = []
    for seed in range(12):
        points = np.random.default_rng(seed).normal(20, [1.0, 2.0], (20_000, 2)).round(2)
        noise, options = Noise(SeededEntropy(seed)), {"rho": rho, "delta": 1e-8, "radius": 15}
        found = fcstream.private_variance(points, size_hint=20_000, step=0.01, bounds=(-50, 90), noise=noise, **options)
        errors.append((np.array(found.value) - points.var(axis=0)) / found.sigma)
        assert 0 <= found.parts["tail_share"] < 0.02
    assert np.sqrt(np.mean(np.square(errors), axis=0)).max() < 1.9
    assert np.abs(np.mean(errors, axis=0)).max() < 1.2


def test_the_ball_of_a_variance_is_wide_where_noise_is_small():
    for unit_noise in (1e-2, 1e-4, 1e-6):
        t = uncut_reach(unit_noise)
        beyond = stats.chi2.sf(t * t, 3)  # what the squares of normal points beyond t are of their variance
        assert beyond == pytest.approx(0.3 * unit_noise * t * t, rel=0.02)
    assert uncut_reach(1.0) < 2 < uncut_reach(0.05)
    assert 8.9 < uncut_reach(1e-18) < 9


def test_squares_are_the_twins_whatever_the_shift():
    from fcstream._kernels import sums
    from fcstream.counting.exact import FriendCounts

    points = np.random.default_rng(7).integers(-1000, 1000, size=(150, 3)).astype(float)
    counter = FriendCounts(3, None)
    counter.add(0, points)
    center = np.array([5.0, -7.0, 0.0])
    for shift in (0, 3, 20):
        total, count = np.zeros(3, np.int64), 0
        for tiles, mask in counter.view([0]).select(np.ones(150, bool)).parts:
            count += sums.inside_squares(tiles, len(mask), mask, center, 900.0**2, shift, total)
        twin = naive.inside_squares(points.astype(int).tolist(), [5, -7, 0], 900**2, shift)
        assert (count, total.tolist()) == twin
        assert 0 < count < 150


# -- noise ---------------------------------------------------------------------------------------------------------


def test_the_exponential_choice_has_its_law_and_no_other():
    sizes, prices = np.array([3, 0, 1, 5, 40]), np.array([4, 0, 2, 3, 17])
    noise, rate = Noise(SeededEntropy(8)), Fraction(2, 5)
    drawn = np.bincount([noise.exponential_choice(sizes, prices, rate) for _ in range(8000)], minlength=5)
    assert drawn[1] == 0
    for wrong, passes in ((rate, True), (rate * Fraction(7, 10), False), (rate * Fraction(13, 10), False)):
        law = naive.exponential_law(sizes.tolist(), prices.tolist(), wrong)
        p = stats.chisquare(drawn[sizes > 0], [8000 * float(x) for x in law if x > 0]).pvalue
        assert (p > 1e-4) == passes


class Given:
    """Entropy that deals the bits of one number in [0, 1), then zeros."""

    private = False

    def __init__(self, number, bits):
        self._words = [(number >> shift) & (2**64 - 1) for shift in range(bits - 64, -1, -64)]

    def words(self, count):
        dealt, self._words = self._words[:count], self._words[count:]
        return np.array(dealt + [0] * (count - len(dealt)), np.uint64)


@pytest.mark.slow
def test_candidates_that_weigh_nothing_are_passed_over_without_a_trace():
    """The choice is that among all candidates, of which most are never looked at."""
    random = np.random.default_rng(4)
    for seed in range(300):
        n = int(random.integers(1, 300))
        sizes = random.integers(0, 10 ** int(random.integers(1, 16)), n) * (random.random(n) < random.choice([0.1, 1]))
        sizes[random.integers(n)] += 1
        prices = random.integers(0, 10 ** int(random.integers(1, 9)), n)
        rate = Fraction(int(random.integers(1, 10**9)), 10 ** int(random.integers(3, 14)))
        order = np.flatnonzero(sizes)
        order = order[np.argsort(prices[order], kind="stable")]
        first, second = SeededEntropy(seed).words(2).tolist()
        drawn = first << 64 | second
        expected = interval_index(drawn, 128, sizes[order], prices[order] - prices[order[0]], rate, 25)
        assert expected is not None
        assert Noise(SeededEntropy(seed)).exponential_choice(sizes, prices, rate) == order[expected]


def test_the_exponential_choice_inverts_its_law_to_the_last_bit():
    """Uniform numbers beside every boundary fall on the right side of it, however many digits that takes."""
    rng = np.random.default_rng(9)
    sizes, prices = rng.integers(0, 2**40, 30), rng.integers(0, 300, 30)
    rate, bits, tried, edge = Fraction(1, 3), 640, 0, Fraction(0)
    law = naive.exponential_law(sizes.tolist(), prices.tolist(), rate)
    order = sorted((i for i in range(30) if sizes[i]), key=lambda i: (prices[i], i))
    for before, after in itertools.pairwise(order):
        edge += law[before]
        number = math.floor(edge * 2**bits)
        for digits in (20, 28, 40, 60, 300):
            for index, side in ((before, -1), (after, 1)):
                if law[index] * 2**digits > 4:
                    noise = Noise(Given(number + side * 2 ** (bits - digits), bits))
                    assert noise.exponential_choice(sizes, prices, rate) == index
                    tried += 1
    assert tried > 120, tried


def test_candidates_too_far_to_be_looked_at_first_have_their_chance():
    sizes, prices, bits = np.array([1, 2**60, 2**60]), np.array([0, 450, 500]), 64 * 30
    chance = naive.exponential_law(sizes.tolist(), prices.tolist(), Fraction(1))
    for top, index in ((1, 2), (int(chance[2] * 2**bits * 2), 1), (int(chance[1] * 2**bits * 2), 0)):
        assert Noise(Given(2**bits - top, bits)).exponential_choice(sizes, prices, Fraction(1)) == index


@pytest.mark.parametrize("bad", [0, -1, 2**63 + 1])
def test_uniform_bounds(bad):
    with pytest.raises(ConfigError, match="bound"):
        Noise().uniform_below(bad)
    with pytest.raises(ConfigError, match="candidate"):
        Noise().exponential_choice(np.array([0]), np.array([1]), Fraction(1))


# -- what it costs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
def test_stages_sum_to_what_is_charged(name):
    """Everything is started when a value comes out, and exactly that; the pieces fit the claim."""
    mechanism = job_of({**KINDS[name], "rho": 0.7}).answers[0].mechanism
    counter = mechanism.counter(2, 1, Noise(SeededEntropy(1)))
    counter.add(0, np.random.default_rng(0).integers(-200, 200, size=(600, 2)).astype(float))
    charge = charge_of(mechanism.loss)
    outcome = mechanism.release(counter.view([0]), charge, Noise(SeededEntropy(2)))
    assert outcome.reason is None
    assert charge.unused == PrivacyLoss()
    assert mechanism.loss.rho_nano == 700_000_000
    with pytest.raises(RuntimeError, match="charge of its own"):
        mechanism.release(counter.view([0]), charge, Noise(SeededEntropy(2)))
    with pytest.raises(RuntimeError, match="the charge holds"):
        mechanism.release(counter.view([0]), charge_of(PrivacyLoss(1000, 0)), Noise(SeededEntropy(2)))


def test_shares_of_quantiles_sum_exactly_and_pay_for_their_epsilon():
    mechanism = (
        job_of({**QUANTILES, "rho": 0.123456789, "quantiles": [0.1, 0.2, 0.25, 0.5, 0.75, 0.8, 0.9]})
        .answers[0]
        .mechanism
    )
    count, shares = mechanism.shares
    assert count.rho_nano + sum(share.rho_nano for share in shares) == mechanism.loss.rho_nano
    for share, rate, level in zip(shares, mechanism.rates, mechanism.levels, strict=True):
        q = Fraction(str(level))
        epsilon = rate * 2 * max(q.numerator, q.denominator - q.numerator)
        assert epsilon**2 / 8 <= Fraction(share.rho_nano, 10**9) < (epsilon + Fraction(1, 10**8)) ** 2 / 8


def test_a_share_of_a_charge_is_not_overdrawn():
    charge = charge_of(PrivacyLoss(1000, 10))
    charge.open(PrivacyLoss(1000, 10))
    with pytest.raises(RuntimeError, match="its share"):
        ChargeShare(charge, PrivacyLoss(400)).open(PrivacyLoss(401))
    share = ChargeShare(charge, PrivacyLoss(400))
    with pytest.raises(RuntimeError, match="do not fit their share"):
        share.start(PrivacyLoss(1))
    share = ChargeShare(charge, PrivacyLoss(400))
    share.use(PrivacyLoss(400))
    with pytest.raises(RuntimeError, match="do not fit their share"):
        share.start(PrivacyLoss(1))
    with pytest.raises(RuntimeError, match="has served"):
        share.use(PrivacyLoss(1))
    assert charge.unused == PrivacyLoss(600, 10)


def printed(release, raw, runs, seed, factor=None):
    """Numbers that one window's release prints, many times."""
    mechanism = job_of(release).answers[0].mechanism
    counter = mechanism.counter(2, 1, Noise())
    counter.add(0, job_of(release).grid.points(raw))
    view = counter.view([0])
    out = []
    for run in range(runs):
        noise = Noise(SeededEntropy(seed + run))
        if factor is not None:
            gaussian, choice = noise.discrete_gaussian, noise.exponential_choice
            noise.discrete_gaussian = lambda v, n, gaussian=gaussian: gaussian(v * Fraction(factor) ** 2, n)
            noise.exponential_choice = lambda s, c, r, choice=choice: choice(s, c, r / Fraction(factor))
        outcome = mechanism.release(view, charge_of(mechanism.loss), noise)
        out.append([outcome.count, *(outcome.value if outcome.value is not None else [np.nan] * 8)][:9])
    width = max(map(len, out))
    return np.array([[*row, *[np.nan] * (width - len(row))] for row in out], float)


def tight(center, n=300):
    rng = np.random.default_rng(0)
    return np.column_stack([rng.normal(center, 0.02, n), rng.normal(50, 0.02, n)])


AUDITS = {  # release, data, the record that neighbors differ in: each as bad as can be
    "histogram": ({**HISTOGRAM, "rho": 0.5}, tight(20), [20.2, 50.0]),
    # Two neighboring values share the data: one record more turns the scale by all that is paid for.
    "quantiles": (
        {**QUANTILES, "rho": 0.5, "quantiles": [0.5]},
        np.tile([[19.0, 50.0], [19.001, 50.0]], (150, 1)),
        [80.0, 50.0],
    ),
    "variance": ({**VARIANCE, "rho": 0.5, "reach": 2.9, "size_hint": 300}, tight(20), [20.0 + 2.8, 50.0]),
    "variance, reach found": ({**VARIANCE, "rho": 0.5, "size_hint": 300}, tight(20), [20.1, 50.0]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", AUDITS)
def test_the_whole_release_stays_below_its_claim_and_weak_noise_is_caught(name):
    from support.audits import epsilon_lower_bound

    release, one, extra = AUDITS[name]
    two, delta, runs = np.vstack([one, extra]), 1e-3, 700
    claim = epsilon_tight(0.5, delta - 1e-9)
    a, b = printed(release, one, runs, 0), printed(release, two, runs, 10**6)
    assert np.isnan(a[:, 1]).mean() < 0.05, "it hardly releases: nothing is audited"
    assert epsilon_lower_bound(a, b, delta) < claim
    a, b = printed(release, one, runs, 0, "0.04"), printed(release, two, runs, 10**6, "0.04")
    assert epsilon_lower_bound(a, b, delta) > claim


# -- how good it is ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_forecasts_of_noise_are_honest():
    """The deviation of what comes out is near what was forecast: of counts, ranks and variances."""
    raw = rows(1500, seed=11)
    mechanism = job_of({**QUANTILES, "rho": 0.05}).answers[0].mechanism
    counter = mechanism.counter(2, 1, Noise())
    counter.add(0, job_of(QUANTILES).grid.points(raw))
    values, ranks = counter.view([0]), []
    for run in range(80):
        found = mechanism.release(values, charge_of(mechanism.loss), Noise(SeededEntropy(run))).value
        ranks.append(np.searchsorted(values, found) - np.array(mechanism.levels) * 1500)
    ratio = np.std(ranks, axis=0) / mechanism.rank_sigmas
    assert (ratio > 0.75).all()
    assert (ratio < 1.25).all()
    release = {**VARIANCE, "reach": 2.0, "size_hint": 1500, "rho": 0.2}
    mechanism, many = job_of(release).answers[0].mechanism, []
    counter = mechanism.counter(2, 1, Noise())
    counter.add(0, job_of(release).grid.points(raw))
    view = counter.view([0])
    for run in range(60):
        many.append(mechanism.release(view, charge_of(mechanism.loss), Noise(SeededEntropy(run))))
    sigma = np.mean([found.sigma for found in many], axis=0)
    assert np.std([found.value for found in many], axis=0) == pytest.approx(sigma, rel=0.3)
    forecast = plan(Config.from_mapping(sample(release=release))).sigma
    assert forecast["variance of a"] == pytest.approx(sigma[0] * 1e-6, rel=0.1)


@pytest.mark.slow
def test_plans_say_what_a_kind_gives():
    lines = plan(Config.from_mapping(sample(release={**HISTOGRAM, "rho": 0.5, "size_hint": 5}))).lines()
    assert any("records in a bin 1" in line for line in lines)
    assert any("5 bins of 'a'" in line for line in lines)
    assert any("fewer in a bin than twice the noise" in line for line in lines)
    found = plan(Config.from_mapping(sample(release={**QUANTILES, "rho": 0.5, "size_hint": 1000})))
    assert set(found.sigma) == {"level 0.1", "level 0.5", "level 0.9"}
    smallest = found.smallest_size
    assert 20 < smallest < 1000
    tight = np.column_stack([20 + np.arange(smallest) / 1000, np.full(smallest, 50.0)])
    assert answer({**QUANTILES, "rho": 0.5}, tight).reason is None
    with pytest.raises(UnusablePlan, match=r"10 records with values as close together .* of \d+ records"):
        plan(Config.from_mapping(sample(release={**QUANTILES, "rho": 0.5, "size_hint": 10})))
    with pytest.raises(UnusablePlan, match="that are all friends"):
        plan(Config.from_mapping(sample(release={**VARIANCE, "rho": 0.1, "size_hint": 50})))


def test_savings_make_more_of_every_kind():
    for release in (HISTOGRAM, QUANTILES, VARIANCE):
        mechanism = job_of({**release, "rho": 0.5}).answers[0].mechanism
        more = mechanism.with_loss(PrivacyLoss(2 * mechanism.loss.rho_nano, mechanism.loss.delta_femto))
        assert more.loss.rho_nano == 2 * mechanism.loss.rho_nano
        assert more.loss.delta_femto == mechanism.loss.delta_femto
        assert more.forecast(300).sigma < mechanism.forecast(300).sigma


# -- data that hold nothing ----------------------------------------------------------------------------------------

DEGENERATE = {
    "empty": np.empty((0, 2)),
    "one": np.array([[20.0, 50.0]]),
    "all equal": np.tile([20.0, 50.0], (800, 1)),
    "two values": np.tile([[20.0, 50.0], [21.0, 51.0]], (400, 1)),
    "ends of the range": np.tile([[-40.0, 0.0], [80.0, 100.0]], (400, 1)),
}


@pytest.mark.parametrize("data", DEGENERATE)
@pytest.mark.parametrize("name", KINDS)
def test_degenerate_data(name, data):
    raw = DEGENERATE[data]
    found = answer({**KINDS[name], "rho": 0.9}, raw)
    if found.reason is not None:
        assert found.reason == ("too_few" if len(raw) < 2 or name == "quantiles" else "no_core")
        assert (found.value, found.sigma) == (None, None)
        assert 0 < found.rho < 0.5  # the stages that never started went back
    else:
        assert found.rho == 0.9
        assert np.isfinite(found.value).all()
    if name in ("histogram", "categories"):
        assert found.reason is None
        assert abs(found.count - len(raw)) < 20
    elif len(raw) < 2:
        assert found.reason == "too_few"
    elif name == "quantiles":
        assert found.reason is None
        if data == "all equal":
            assert found.value == [20.0] * 3
        if data == "two values":
            assert (found.value[0], found.value[2]) == (20.0, 21.0)
        assert found.value == sorted(found.value)
    elif data == "all equal":
        assert found.reason is None
        assert max(found.value) < 6 * max(found.sigma) < 1


def test_quantiles_do_not_cross():
    levels = [0.5, 0.500001, 0.500002, 0.6]
    for seed in range(20):
        found = answer({**QUANTILES, "rho": 0.02, "quantiles": levels}, rows(3000), Noise(SeededEntropy(seed)))
        assert found.value == sorted(found.value)


def test_no_value_beyond_the_public_range_is_ever_a_candidate():
    """A transform that rounds its way past the end of the range would offer a value that is there for one record."""
    mechanism = job_of({**QUANTILES, "rho": 1.0}).answers[0].mechanism
    most = mechanism.column.highest
    found = mechanism.release(np.full(5000, most + 1), charge_of(mechanism.loss), Noise(SeededEntropy(0)))
    assert found.value.tolist() == [most] * 3


# -- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("release", "message"),
    [
        ({**HISTOGRAM, "feature": None}, r"release\.feature: must name one of 'a', 'b'"),
        ({**HISTOGRAM, "feature": "c"}, r"release\.feature: must be one of 'a', 'b', got 'c'"),
        ({**HISTOGRAM, "edges": None}, r"release\.edges: must be given, or `categories`"),
        ({**HISTOGRAM, "categories": [1.0]}, r"release\.edges: .*not both"),
        ({**HISTOGRAM, "edges": []}, r"release\.edges: must hold 1 to 4096"),
        ({**HISTOGRAM, "edges": [-40.0, 80.0]}, r"release\.edges: must hold 1 to 4096"),
        ({**HISTOGRAM, "edges": [1.0, 1.0004]}, r"release\.edges: must ascend"),
        ({**HISTOGRAM, "edges": [2.0, 1.0]}, r"release\.edges: must ascend"),
        ({**HISTOGRAM, "edges": [2.0, -40.0]}, r"release\.edges: must ascend"),
        ({**HISTOGRAM, "edges": [200.0]}, r"release\.edges: must lie in the range"),
        ({**HISTOGRAM, "edges": [math.nan]}, r"release\.edges: must lie in the range"),
        ({**CATEGORIES, "categories": [1.0, 1.0]}, r"release\.categories: must lie at least one lattice step apart"),
        ({**HISTOGRAM, "quantiles": [0.5]}, r"release\.quantiles: belongs to kind 'quantiles', not to 'histogram'"),
        ({**HISTOGRAM, "delta": 1e-9}, r"release\.delta: belongs to kind .*'variance', not to 'histogram'"),
        ({**QUANTILES, "quantiles": []}, r"release\.quantiles: must hold 1 to 100"),
        ({**QUANTILES, "quantiles": [0.5, 1.0]}, r"release\.quantiles: must lie in"),
        ({**QUANTILES, "quantiles": [math.nan]}, r"release\.quantiles: must lie in"),
        ({**QUANTILES, "quantiles": [1 / 3]}, r"release\.quantiles: .*six decimals"),
        ({**QUANTILES, "quantiles": [0.5, 0.25]}, r"release\.quantiles: must ascend"),
        ({**QUANTILES, "rho": 1e-6}, r"release\.rho: must be at least 3e-06 for 3"),
        ({**VARIANCE, "size_hint": None}, r"release\.size_hint"),
        ({**VARIANCE, "delta": 0.0}, r"release\.delta"),
        ({**VARIANCE, "reach": 0.0}, r"release\.reach"),
        ({**VARIANCE, "rho": 1e-9}, r"release"),
        ({**VARIANCE, "center": [1.0, 2.0]}, r"release\.center: belongs to kind .*'mean'.* not to 'variance'"),
    ],
)
def test_rules(release, message):
    with pytest.raises(ConfigError, match=message):
        Config.from_mapping(sample(release=release))


# -- in streams and for arrays -------------------------------------------------------------------------------------


def test_kinds_of_bins_and_values_take_sliding_windows_and_users():
    times, raw = np.arange(600) * 100, rows(600, seed=12)
    for release, spread in ((HISTOGRAM, 8), (QUANTILES, 40)):
        sliding = sample(release={**release, "rho": 1.9}, window={"slide": "5s"})
        engine = Engine(sliding, noise=Noise(SeededEntropy(1)))
        engine.push(times, raw)
        found = engine.close()
        assert len(found) == 11
        assert all(abs(one.count - 100) < spread for one in found)
        users = sample(release=release, stream={"unit": "user", "user": "who"}, budget={"rho": 50.0})
        engine = Engine(users, noise=Noise(SeededEntropy(1)))
        engine.push(times, raw, ids=np.arange(600) % 40)
        assert all(abs(one.count - 40) < spread for one in engine.close())


def test_functions_for_arrays_agree_with_streams():
    raw = rows(1000, seed=13)
    noise = {"noise": Silent(SeededEntropy(0))}
    column, grid = raw[:, 0] - 20, {"step": 0.001, "bounds": (-60.0, 60.0)}
    found = fcstream.private_histogram(column, rho=1, edges=[-5, 0, 0.5, 1.0], **grid, **noise)
    assert found.value == answer(HISTOGRAM, raw, noise["noise"]).value
    assert found.parts["edges"] == [-60.0, -5.0, 0.0, 0.5, 1.0, 60.0]
    found = fcstream.private_quantiles(column, [0.1, 0.5, 0.9], rho=1, **grid, **noise)
    assert np.add(found.value, 20) == pytest.approx(answer(QUANTILES, raw, noise["noise"]).value)
    scaled = (raw - [20, 50]) / [1, 2]
    found = fcstream.private_variance(scaled, radius=3, rho=1, delta=1e-9, size_hint=300, reach=2, **grid, **noise)
    assert np.multiply(found.value, [1, 4]) == pytest.approx(
        answer({**VARIANCE, "reach": 2.0}, raw, noise["noise"]).value
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda **k: fcstream.private_histogram([[1.0]], edges=[1], **k), "values: must have shape"),
        (lambda **k: fcstream.private_histogram(["x"], edges=[1], **k), "values: must be a list of numbers"),
        (lambda **k: fcstream.private_histogram([1.0], **k), "^edges: must be given"),
        (lambda **k: fcstream.private_quantiles([1.0], [2], **k), "^quantiles: must lie"),
        (lambda **k: fcstream.private_quantiles([1.0], [0.5], **{**k, "rho": -1}), "rho"),
        (lambda **k: fcstream.private_quantiles([1.0], [0.5], **{**k, "rho": "much"}), "rho: must be a number"),
        (
            lambda **k: fcstream.private_variance([[1.0]], radius=1, delta=1e-8, size_hint=9, reach="far", **k),
            "^reach: must be a number or 'histogram'",
        ),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ConfigError, match=message):
        call(rho=1, step=0.01, bounds=(0.0, 10.0))
