"""Mechanisms that cost microseconds, run ten thousand times each: noise of half its scale shows.

As in `test_releases`, the neighbors differ in one record that is as bad as the mechanism allows, and everything that is
told of a window counts: values, counts, reasons, and what was paid. The bounds are taken at several deltas, as the
best place to look depends on the fault, and of rho too (see `support.neighboring_streams`).
"""

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from support.audits import epsilon_lower_bound, rho_lower_bound
from support.helpers import Paid, sample
from support.windows import view_of

from fcstream import Noise, SeededEntropy
from fcstream.accounting.losses import PrivacyLoss, epsilon_tight
from fcstream.config import Config
from fcstream.counting.exact import FriendCounts
from fcstream.releases.averages import gaussian_variance, noisy_products, product_deviations
from fcstream.releases.base import Track
from fcstream.releases.clusters.pipeline import LloydStep
from fcstream.releases.reasons import REASONS
from fcstream.releases.statistics.clipped_sums import ClippedSums
from fcstream.releases.statistics.columns import Column
from fcstream.releases.statistics.quantiles import missing_ranks
from fcstream.releases.statistics.shapes import LEVEL, Coordinates

RUNS = 5_000
FEWER = 2_000
"""Runs of those that take tenths of a millisecond."""
DELTAS = (1e-3, 0.02, 0.1, 0.2)
CENTER = [20.0, 50.0]
BARE = dict.fromkeys(("method", "radius", "spread", "delta", "size_hint"))
BALL = {**BARE, "method": "ball", "center": CENTER, "radius": 3.0, "rho": 0.5}
WITHOUT = {**BARE, "method": "tracking", "rho": 0.5}
ALL = {"outliers": "clip", "delta": None, "size_hint": 60, "rho": 0.5}
CASES = {  # what is configured, the records that both windows hold, and the one that only the second has
    "count": ({**BARE, "kind": "count", "rho": 0.5}, [CENTER] * 30, CENTER),
    "ball": (BALL, [CENTER] * 400, [23.0, 50.0]),
    "ball, far record": (BALL, [CENTER] * 400, [79.0, 99.0]),
    "all records": (ALL, [CENTER] * 60, [79.0, 99.0]),
    "all records, one near": (ALL, [CENTER] * 60, [20.3, 50.0]),
    "all records, at its floor": (ALL, [CENTER] * 12, [23.0, 50.0]),
    "ball, at its floor": (BALL, [CENTER] * 6, [23.0, 50.0]),
    "sum": ({**BARE, "kind": "sum", "rho": 0.5}, [CENTER] * 9, [80.0, 100.0]),
    "histogram": (
        {**BARE, "kind": "histogram", "feature": "a", "edges": [0.0, 40.0], "rho": 0.5},
        [CENTER] * 9,
        CENTER,
    ),
    "histogram, a bin of one record": (
        {**BARE, "kind": "histogram", "feature": "a", "edges": [0.0, 40.0], "rho": 0.5},
        [CENTER] * 9,
        [79.0, 50.0],
    ),
    "quantiles": (
        {**BARE, "kind": "quantiles", "feature": "a", "quantiles": [0.5], "rho": 0.5},
        [[-40.0, 1.0], [80.0, 1.0]] * 40,
        [80.0, 1.0],
    ),
    "covariance, at its floor": (
        {**BARE, "kind": "covariance", "size_hint": 300, "rho": 2.0},
        [CENTER] * 110,
        [79.0, 99.0],
    ),
    "tracking": ({"method": "tracking", "size_hint": 300, "rho": 0.5}, [CENTER] * 300, [20.124, 50.0]),
    "tracking, record outside": (
        {"method": "tracking", "size_hint": 300, "rho": 0.5},
        [CENTER] * 300,
        [79.0, 99.0],
    ),
    "tracking, no radius": (WITHOUT, [CENTER] * 60, [20.1, 50.0]),
    "tracking, no radius, beyond the ball": (WITHOUT, [CENTER] * 60, [20.19, 50.0]),
    "tracking, no radius, most have left": (WITHOUT, [[79.0, 99.0]] * 60, [-39.0, 1.0]),
    "from the public ranges": (WITHOUT, [CENTER] * 60, [79.0, 99.0]),
    "a core's size": ({"method": "friendly", "size_hint": 2000, "rho": 2.0, "spread": None}, [CENTER] * 3, CENTER),
    "a core's size, recentered": ({"size_hint": 2000, "rho": 2.0}, [CENTER] * 3, CENTER),
    "a core's size, searched": (
        {"radius": "search", "radius_min": 0.05, "radius_max": 90.0, "size_hint": 2000, "spread": None, "rho": 2.0},
        [CENTER] * 3,
        CENTER,
    ),
    "a core's size, sampled and searched": (
        {"radius": "search", "radius_min": 0.05, "radius_max": 90.0, "size_hint": 20_000, "rho": 2.0, "pairs": "blocks"}
        | {"spread": None},
        [CENTER] * 3,
        CENTER,
    ),
}
GATE = [name for name in CASES if name.startswith("a core's size")]


def job_of(name):
    config = sample(release=CASES[name][0], window={"end": "1970-01-01T00:00:10Z"}, budget={"rho": 50.0, "delta": 1e-4})
    return Config.from_mapping(config).job


def told(outcome, paid):
    """Numbers that an outcome tells, and what is published as paid."""
    value = [] if outcome.value is None else outcome.value.ravel()[:3].tolist()
    count = math.nan if outcome.core_count is None else outcome.core_count
    row = [
        math.nan if outcome.count is None else outcome.count,
        count,
        (math.nan if outcome.count is None else outcome.count) - count,
        -1.0 if outcome.reason is None else REASONS.index(outcome.reason),
        sum(stage.rho for stage in paid.stages),
        *value,
        *(x * count for x in value),
    ]
    return row + [math.nan] * (11 - len(row))


def outcomes(name, more, seed, runs=None):
    """One row for each release of one window (runs, columns), and what was started in the last one."""
    runs = runs or (FEWER if CASES[name][0] is WITHOUT else RUNS)
    job, (_, records, extra) = job_of(name), CASES[name]
    mechanism = job.answers[0].mechanism
    if name.startswith("tracking"):
        where = job.grid.points(np.array([CENTER]))[0].astype(int).tolist()
        mechanism = mechanism.after(Track(where, 1.0, 100.0, 50.0, 1.0))
    points = job.grid.points(np.array([*records, extra] if more else records, float))
    counter = mechanism.counter(2, 1, Noise(SeededEntropy(0)))
    counter.add(0, points)
    view, noise, rows = counter.view([0]), Noise(SeededEntropy(seed)), []
    for _ in range(runs):
        paid = Paid()
        rows.append(told(mechanism.release(view, paid, noise), paid))
    return np.array(rows, float), sum(paid.stages, PrivacyLoss())


def excess(one, two, rho, delta=0.0):
    """By how much what the runs show is above what a loss allows; negative where the claim stands."""
    shown = [epsilon_lower_bound(one, two, at) - epsilon_tight(rho, at - delta) for at in DELTAS]
    return max(*shown, rho_lower_bound(one, two) - rho)


@pytest.mark.parametrize("name", CASES)
def test_a_cheap_mechanism_stays_below_its_claim(name):
    (one, paid), (two, _) = (outcomes(name, more, seed) for more, seed in ((False, 1), (True, 2)))
    loss = paid if name in GATE else job_of(name).answers[0].mechanism.loss
    assert excess(one, two, loss.rho, loss.delta) <= 0
    if name in GATE:
        assert {REASONS[int(code)] for code in one[:, 3]} == {"too_few"}


@pytest.mark.parametrize("name", ["count", "ball", "histogram", "tracking"])
def test_the_audit_sees_a_loss_not_much_larger_than_the_claim(name):
    """With half the claimed rho it would have complained: so it does of noise that is a third too small."""
    (one, _), (two, _) = (outcomes(name, more, seed, 2 * RUNS) for more, seed in ((False, 3), (True, 4)))
    assert excess(one, two, job_of(name).answers[0].mechanism.loss.rho / 2.2) > 0


@pytest.mark.parametrize("name", GATE)
def test_a_window_that_its_size_stops_pays_the_filters_delta(name):
    """That the noisy size is hardly ever below the true one is paid for by delta, whether or not bits are drawn."""
    _, paid = outcomes(name, False, 5, runs=3)
    mechanism = job_of(name).answers[0].mechanism
    inner = getattr(mechanism, "inner", mechanism)
    core = inner.mean_at(0).core if name.endswith("searched") else inner.core
    gate = mechanism.gate.loss.delta_femto if mechanism is not inner else 0
    assert core.loss.delta_femto > 0
    assert paid.delta_femto == core.loss.delta_femto + gate


def test_squares_of_a_variance_have_the_noise_of_their_sensitivity():
    """Its sigma says how much noise there is, not whether that is enough."""
    release = {"kind": "variance", "method": None, "spread": None, "size_hint": 2000, "reach": 2.0}
    config = sample(release=release, window={"end": "1970-01-01T00:00:10Z"})
    job, drawn, paid = Config.from_mapping(config).job, [], Paid()

    class Recording(Noise):
        def discrete_gaussian(self, variance, size):
            drawn.append((variance, paid.stages[-1]))
            return super().discrete_gaussian(variance, size)

    counter = job.answers[0].mechanism.counter(2, 1, Noise())
    counter.add(0, np.rint(np.random.default_rng(0).normal(0, 200, size=(2000, 2))))
    assert job.answers[0].mechanism.release(counter.view([0]), paid, Recording(SeededEntropy(1))).reason is None
    variance, stage = drawn[-1]
    ball = 2000**2  # in steps
    shift = ball.bit_length() - 25 if ball.bit_length() > 25 else 0
    assert Fraction(ball, 2**shift) ** 2 / (2 * variance) <= Fraction(stage.rho_nano, 10**9)


def test_a_lloyd_step_stays_below_its_claim():
    """A part's record at the ball's edge; five thousand steps."""
    step, rows = LloydStep(PrivacyLoss.charge(0.5), (0, 0), 1000**2), []
    for points, seed in (([[0.0, 0.0]] * 60, 1), ([[0.0, 0.0]] * 60 + [[1000.0, 0.0]], 2)):
        friends = FriendCounts(2, None)
        friends.add(0, np.array(points))
        view, noise, out = friends.view([0]), Noise(SeededEntropy(seed)), []
        for _ in range(RUNS):
            found, counts = step.release(view, np.zeros((1, 2)), noise, lambda loss: None)
            out.append([*found.value.ravel(), *counts, found.value[0, 0] * counts[0]])
        rows.append(np.array(out))
    assert -0.4 < excess(*rows, 0.5) < 0


def test_clipped_moments_stay_below_their_claim_and_are_not_far_from_it():
    """A record far beyond the ball, along an axis and aslant; the stages after the radius, three thousand times."""
    release = {**BARE, "kind": "covariance", "size_hint": 300, "rho": 1.0, "scale": "declared"}
    config = sample(release=release, window={"end": "1970-01-01T00:00:10Z"})
    mechanism, squared = Config.from_mapping(config).job.answers[0].mechanism, 3000**2
    loss = mechanism.shares["sums"].rho + mechanism.shares["moments"].rho
    for extra in ([90_000.0, 0.0], [-70_000.0, 70_000.0]):
        found = []
        for rows, seed in (([[500.0, 400.0]] * 40, 1), ([[500.0, 400.0]] * 40 + [extra], 2)):
            noise, out, which = Noise(SeededEntropy(seed)), [], np.array(extra) / np.hypot(*extra)
            clipped = ClippedSums(view_of(np.array(rows)), Coordinates.plain([0, 0], None))
            for _ in range(3000):
                sums, products, limit, _ = mechanism.noisy_moments(clipped, squared, noise)
                assert limit == squared
                # what tells most of this record: along itself, each stage in its own deviations
                out.append([which @ sums / 3000, which @ products @ which / 3000**2])
            found.append(np.array(out))
        shares = np.sqrt([mechanism.shares["sums"].rho, mechanism.shares["moments"].rho])
        best = [np.column_stack([part, part @ shares]) for part in found]
        assert excess(*best, loss) <= 0
        assert excess(*best, loss / 2.2) > 0


def test_the_first_moments_and_the_spreads_of_a_covariance_stay_below_their_claims():
    """A record far beyond the public ball, many times; exact laws of a spread, for few records."""
    release = {**BARE, "kind": "covariance", "size_hint": 300, "rho": 9.0}
    config = sample(release=release, window={"end": "1970-01-01T00:00:10Z"}, budget={"rho": 9.0, "delta": 1e-6})
    mechanism = Config.from_mapping(config).job.answers[0].mechanism
    ball, loss = mechanism.first_ball, mechanism.shares["first"].rho

    class Told(Coordinates):
        def moved(self, mean, matrix, entry, *, turns):
            return mean, matrix + np.outer(mean, mean)  # as released

    plain = Coordinates.plain([0, 0], None)
    told = Told(plain.middles, plain.factors, None, plain.back)
    for extra in ([-70_000.0, 70_000.0],):
        found, which = [], np.array(extra) / np.hypot(*extra)
        for rows, seed in (([[500.0, 400.0]] * 40, 1), ([[500.0, 400.0]] * 40 + [extra], 2)):
            noise, view = Noise(SeededEntropy(seed)), view_of(np.array(rows))
            draws = [mechanism._moved(view, 40, told, noise) for _ in range(1500)]
            found.append(40 * np.array([[which @ m / ball**0.5, which @ p @ which / ball] for m, p in draws]))
        shares = np.sqrt(np.array(mechanism.first_shares) / 1e9)
        best = [np.column_stack([part, part @ shares]) for part in found]
        assert excess(*best, loss) <= 0
        assert excess(*best, loss / 2.2) > 0
    rate, share, worst, places = mechanism.spreads.rates[0], mechanism.shares["spreads"].rho / 2, 0.0, np.arange(6)

    def law(values):
        below, above = (np.array([(values < v).sum() for v in places]), np.array([(values > v).sum() for v in places]))
        weights = np.exp(-float(rate) * missing_ranks(below, above, len(values), LEVEL))
        return weights / weights.sum()

    for few in itertools.chain.from_iterable(
        itertools.combinations_with_replacement((0, 2, 3, 5), n) for n in range(6)
    ):
        for more in (0, 2, 4, 5):
            pair = law(np.array(few)), law(np.array([*few, more]))
            for p, q in (pair, pair[::-1]):
                for order in (1.01, 8.0):
                    worst = max(worst, math.log((p**order * q ** (1 - order)).sum()) / (order - 1) / order / share)
    assert 0.2 < worst <= 1


def test_learned_scales_cost_their_tenth_and_a_window_all_of_its_rho():
    """Exact laws of median and distances, for all windows of a few records and one more; then what a window starts."""
    base = sample(release={"rho": 4.0, "size_hint": 900}, window={"end": "1970-01-01T00:00:10Z"})
    features = [{"name": name, "min": -1e4, "max": 1e4, "scale": "learned"} for name in "ab"]
    mechanism = Config.from_mapping(base | {"features": features}).job.answers[0].mechanism.inner
    rho, worst = mechanism.stage.rho / 2, 0.0  # of one feature of two
    places, orders = np.arange(6), (1.01, 8.0)

    class Laws(Noise):
        def exponential_choice(self, sizes, costs, rate):
            weights = np.exp(-float(rate) * costs)
            self.found.append(weights / weights.sum())
            return 0

    column = Column(0, mechanism.columns[0].feature, 0, 5)
    medians = replace(mechanism.medians, loss=PrivacyLoss(mechanism.medians.loss.rho_nano // 2), columns=(column,))
    spreads = replace(mechanism.spreads, loss=PrivacyLoss(mechanism.spreads.loss.rho_nano // 2), columns=(column,))
    assert (spreads.has_sides, spreads.rates) == (True, mechanism.spreads.rates[:1])
    assert medians.rates == mechanism.medians.rates[:1]

    def laws(values, middle):
        """Of a median, and of the distances about some median to both sides."""
        (noise := Laws()).found, kept = [], np.array(values, np.int64)
        below, above = (np.array([(kept < v).sum() for v in places]), np.array([(kept > v).sum() for v in places]))
        noise.exponential_choice(places, missing_ranks(below, above, len(kept), Fraction(1, 2)), medians.rates[0])
        spreads.learn_sorted(np.sort(kept)[None, :], [middle], noise)
        return noise.found

    ranges = 0.0  # by how much logarithms of odds of both distances differ: the bound is met, and not passed
    for middle in range(6):
        for few in itertools.chain.from_iterable(itertools.combinations_with_replacement(places, n) for n in range(6)):
            one = laws(few, middle)
            for more in places:
                pairs = list(zip(one, laws((*few, more), middle), strict=True))
                ranges = max(ranges, sum(float(np.ptp(np.log(p / q))) ** 2 for p, q in pairs[1:]) / 8)
                for order, turn in itertools.product(orders, (1, -1)):
                    found = [(p**order * q ** (1 - order)).sum() for p, q in (pair[::turn] for pair in pairs)]
                    worst = max(worst, sum(map(math.log, found)) / (order - 1) / order / rho)
    assert ranges == pytest.approx(spreads.loss.rho, rel=1e-6)
    assert ranges <= spreads.loss.rho * (1 + 1e-9)
    assert 0.2 < worst <= 1
    counter = FriendCounts(2, None)
    counter.add(0, np.rint(np.random.default_rng(0).normal(0, [1e5, 1e8], size=(900, 2))))
    assert mechanism.release(counter.view([0]), paid := Paid(), Noise(SeededEntropy(1))).reason is None
    assert paid.stages[0] == PrivacyLoss(mechanism.loss.rho_nano // 10)
    assert sum(paid.stages, PrivacyLoss()) == mechanism.loss


def test_squares_and_pairs_of_a_record_cost_what_they_claim_in_every_direction():
    """The law of sums of products of one record more, for every direction of it: with noise to pairs as to squares it
    would cost less than is paid for, with a quarter more."""
    length = 25

    def loss(record, part):
        """What the record moves, in deviations of the noise that its entries get."""
        drawn = []

        class Told(Noise):
            def discrete_gaussian(self, variance, size):
                drawn.extend([float(variance)] * size)
                return np.zeros(size, np.int64)

        variance = gaussian_variance(length**4, 10**9)
        moved = noisy_products(np.outer(record, record), variance, Told())
        d = len(record)
        rows, columns = np.tril_indices(d, -1)
        entries = np.append(np.diag(moved), moved[rows, columns])
        variances = np.array(drawn)
        variances[d:] *= part
        assert product_deviations(variance, d)[rows, columns] == pytest.approx(np.sqrt(drawn[d:]))
        return (entries**2 / (2 * variances)).sum()

    on_sphere = [
        r for r in itertools.product(range(-length, length + 1), repeat=3) if sum(x * x for x in r) == length**2
    ]
    assert len(on_sphere) > 50
    losses = [loss(np.array(record), 1.0) for record in on_sphere]
    assert max(losses) <= 1
    assert min(losses) > 1 - 1e-5
    assert max(loss(np.array(record), 0.5) for record in on_sphere) > 1.2
    assert min(loss(np.array(record), 2.0) for record in on_sphere) < 0.8
