"""Tuples of centers: matching, ordering, radii, averages."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.clusters import BASE, LOSS, Paid, seeded, small, tuples_like

from fcstream.accounting.losses import PrivacyLoss
from fcstream.errors import ConfigError
from fcstream.noise.samplers import Noise, SeededEntropy
from fcstream.predicates import MatchWithin
from fcstream.releases.averages import FriendlyAverage
from fcstream.releases.clusters.tuples import (
    GAMMA,
    OrderedAverage,
    TupleAverage,
    TwoCores,
    friend_counts,
    noisy_mode,
    radius_grid,
    reorder,
)


def average(t=160, k=3, d=2, **changes):
    values = {
        "loss": LOSS,
        "tuples": t,
        "k": k,
        "dimension": d,
        "radius_nano": 10**7,
        "core_nano": 8 * 10**8,
        "radii_squared": radius_grid(10, 10**5, 1.25),
    }
    return TupleAverage(**(values | changes))


def friendly_tuples(seed, gamma):
    """Tuples around a few middle ones, as far from them as gamma allows: a set in which some pairs share friends."""
    rng = np.random.default_rng(seed)
    k, d = int(rng.integers(2, 4)), int(rng.integers(1, 3))
    middle = rng.integers(-100, 101, size=(k, d)) * 20
    scale = math.sqrt(naive.separation(middle) or 1)
    out = []
    for _ in range(7):
        offset = rng.normal(size=(k, d))
        offset *= scale * float(gamma / (1 - gamma)) * rng.uniform(0.3, 1.3) / np.linalg.norm(offset, axis=1).max()
        out.append(np.rint(middle + offset)[rng.permutation(k)])
    return out


@settings(max_examples=60)
@given(small, st.sampled_from([Fraction(1, 5), Fraction(1, 7)]))
def test_friends_of_one_tuple_match_and_all_numberings_agree(seed, gamma):
    """match_gamma's approximate triangle inequality, and what reordering rests on, at the edge of gamma."""
    items = friendly_tuples(seed, gamma)
    friends = [[naive.match_tuples(x, y, gamma) for y in items] for x in items]
    wide = 2 * gamma / (1 - gamma)
    share = [[any(a and b for a, b in zip(f, g, strict=True)) for g in friends] for f in friends]
    for i, x in enumerate(items):
        for j, y in enumerate(items):
            if i != j and share[i][j]:
                assert naive.match_tuples(x, y, wide)
    clique = []  # pairwise sharing friends
    for i in range(len(items)):
        if all(share[i][j] for j in clique):
            clique.append(i)
    chosen = [items[i] for i in clique]
    numberings = []
    for lead in chosen:
        numbered = [naive.number(lead, x) for x in chosen]
        first = numbered[0]
        order = [first.index(list(x)) for x in chosen[0]]
        numberings.append([[points[p] for p in order] for points in numbered])
    assert all(numbering == numberings[0] for numbering in numberings)


def test_a_wider_gamma_breaks_the_order():
    """The bound is not idle: at gamma = 2/5 two friends of one tuple do not even match."""
    x, y, z = [[10, 17], [-4, 1]], [[4, 8], [-3, -8]], [[7, 12], [-5, -4]]
    assert naive.match_tuples(x, z, Fraction(2, 5))
    assert naive.match_tuples(y, z, Fraction(2, 5))
    assert not naive.match_tuples(x, y, Fraction(1))


def test_reorder_numbers_alike_and_hides_which_is_first():
    tuples = tuples_like(BASE, 20, 50, 1)
    orders = set()
    for seed in range(60):
        ordered = reorder(tuples, seeded(seed))
        assert sorted(map(tuple, ordered[3])) == sorted(map(tuple, tuples[3]))
        assert np.abs(ordered - ordered[0]).max() < 1000
        orders.add(tuple(np.argmin(((ordered[0][:, None] - BASE) ** 2).sum(axis=2), axis=1)))
    assert len(orders) == 6
    assert len(reorder(tuples[:0], seeded())) == 0


def test_reorder_of_strangers_does_not_fail():
    rng = np.random.default_rng(0)
    tuples = np.rint(rng.normal(size=(10, 4, 2)) * 3)
    ordered = reorder(tuples, seeded())
    assert [sorted(map(tuple, x)) for x in ordered] == [sorted(map(tuple, x)) for x in tuples]


def test_a_search_takes_the_first_radius_at_which_nearly_all_match():
    """FindDiam on the largest matched distance; two radii_squared more for the core. Noise covers a tuple replaced."""
    radii_squared, drawn = radius_grid(10, 10**5, 1.5), []

    class Recording(Noise):
        def discrete_gaussian(self, variance, size):
            drawn.append(variance)
            return super().discrete_gaussian(variance, size)

    step = average(method="search", radius_nano=10**8, radii_squared=radii_squared, core_nano=75 * 10**7)
    tuples, paid = tuples_like(BASE, 160, 60, 3), Paid()
    found = step._radius(tuples, Recording(SeededEntropy(0)), paid)
    pairs = [friend_counts(MatchWithin(3, 2, r2, GAMMA), tuples).sum() for r2 in radii_squared]
    bar = (160 - step._search.check.bar) * 160
    first = next(b for b, count in enumerate(pairs) if count >= bar)
    assert found == math.floor(radii_squared[first] * 1.5**4)
    assert len(drawn) == len(paid.stages) <= math.ceil(math.log2(len(radii_squared)))
    for variance, stage in zip(drawn, paid.stages, strict=True):  # in parts of 1/1024 of a stranger a tuple
        assert 0.98 * stage.rho < (1024 * 2 * 159 / 160) ** 2 / (2 * float(variance)) <= stage.rho


@settings(max_examples=20)
@given(small)
def test_histogram_of_separations_equals_its_twin(seed):
    rng = np.random.default_rng(seed)
    tuples = rng.integers(-40, 41, size=(12, 3, 1)).astype(np.float64)
    radii_squared = radius_grid(2, 60, 1.5)
    seen = []

    class Silent(Noise):
        def discrete_gaussian(self, variance, size):
            assert variance == Fraction(10**9, 10**7)  # l2 sensitivity sqrt(2): two bins
            seen.append(size)
            return np.zeros(size, np.int64)

    expected = naive.separations_between(tuples, radii_squared)
    best = noisy_mode(tuples, radii_squared, 10**7, Silent(SeededEntropy(0)))
    assert seen == [len(expected)]
    top = max(expected[1:])
    assert best == (1 + expected[1:].index(top) if 4 * top >= 12 else None)


@pytest.mark.parametrize("method", ["histogram", "search", "public"])
def test_matching_tuples_are_averaged_and_cost_exactly_their_loss(method):
    tuples, paid = tuples_like(BASE, 160, 60, 3), Paid()
    changes = {
        "histogram": {},
        "search": {"radius_nano": 10**8, "radii_squared": radius_grid(10, 10**5, 1.5), "core_nano": 75 * 10**7},
        "public": {"radius_nano": 0, "radii_squared": (400**2,)},
    }[method]
    step = average(method=method, **changes)
    reason, found = step.release(tuples, seeded(5), paid)
    assert reason is None
    order = np.argmin(((found.value[:, None] - BASE) ** 2).sum(axis=2), axis=1)
    assert sorted(order) == [0, 1, 2]
    assert np.abs(found.value - BASE[order]).max() < 5 * found.sigma.max() + 10
    assert 120 < found.count < 190
    if method == "search":
        assert paid.total.fits(LOSS)
    else:
        assert paid.total == LOSS


def test_sigma_of_the_average_covers_a_replaced_tuple():
    """k points move by 2 r each over n-hat: sigma = (2 r / n-hat) sqrt(k / (2 rho2)), a little more for rounding."""
    step = average(method="public", radius_nano=0, radii_squared=(400**2,))
    inner = step.average(400**2)
    for seed in range(10):
        _, found = step.release(tuples_like(BASE, 160, 60, 3), seeded(seed), Paid())
        n_hat = found.count - inner.offset
        least = 2 * 400 / n_hat * math.sqrt(3 / (2 * inner.rho2))
        assert least <= found.sigma[0, 0] <= 1.02 * least


def test_tuples_that_do_not_match_are_refused_and_the_average_is_not_paid():
    rng = np.random.default_rng(4)
    paid, step = Paid(), average()
    tuples = np.rint(BASE + rng.normal(0, 3000, size=(160, 3, 2)))
    reason, found = step.release(tuples, seeded(), paid)
    assert (reason, found) == ("no_match", None)
    first = step.average(step.radii_squared[-1])._first_nano
    assert paid.total == PrivacyLoss(step.radius_nano + step.core_nano + first, LOSS.delta_femto)


def test_tuples_without_a_separation_are_refused_before_the_core():
    paid, step = Paid(), average()
    assert step.release(np.zeros((160, 3, 2)), seeded(), paid) == ("no_radius", None)
    assert paid.total == PrivacyLoss(step.radius_nano)


def test_outlier_tuples_are_left_out():
    tuples = tuples_like(BASE, 160, 60, 3)
    tuples[:5] = 0.0
    tuples[5:8, 0] += 50_000
    _, found = average().release(tuples, seeded(5), Paid())
    assert np.abs(np.sort(found.value[:, 0]) - np.sort(BASE[:, 0])).max() < 5 * found.sigma.max() + 10


def test_k_of_one_needs_no_match():
    tuples = tuples_like(BASE[1:2], 160, 60, 3)
    radii_squared = radius_grid(10, 10**5, 1.5)
    step = average(k=1, method="search", radius_nano=10**8, radii_squared=radii_squared, core_nano=75 * 10**7)
    reason, found = step.release(tuples, seeded(1), Paid())
    assert reason is None
    assert np.abs(found.value - BASE[1]).max() < 5 * found.sigma.max() + 10
    with pytest.raises(ConfigError, match="'search' or public for k = 1"):
        average(k=1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gamma": Fraction(1, 4)}, "1/5"),
        ({"method": "guess"}, "'histogram', 'search' or 'public'"),
        ({"radius_nano": 0}, "leave rho for finding the radius"),
        ({"core_nano": 10**9}, "must be a whole number, at least 0"),
        ({"method": "public", "radius_nano": 0}, "one public radius"),
    ],
)
def test_tuple_averages_that_cannot_work_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        average(**changes)


def test_the_papers_two_cores_never_release_at_200_but_do_with_thousands():
    radii_squared = radius_grid(10, 2000, 1.5)
    base = BASE[:2]
    step = TwoCores(LOSS, 200, 2, 2, radii_squared)
    assert all(step.release(tuples_like(base, 200, 20, s), seeded(s), Paid())[1] is None for s in range(5))
    paid = Paid()
    reason, found = TwoCores(LOSS, 6000, 2, 2, radii_squared).release(tuples_like(base, 6000, 20, 0), seeded(1), paid)
    assert reason is None
    assert paid.total.fits(LOSS)
    order = np.argmin(((found.value[:, None] - base) ** 2).sum(axis=2), axis=1)
    assert np.abs(found.value - base[order]).max() < 6 * found.sigma.max() + 5


def test_every_coordinate_of_an_ordered_average_has_the_noise_of_its_own_radius():
    step, loss = OrderedAverage(LOSS, 2, 2, radius_grid(10, 2000, 1.5)), PrivacyLoss.charge(0.9, 5e-9)
    paid = Paid()
    _, found = step._average(loss, [100**2, 700**2], tuples_like(BASE[:2], 500, 20, 0, shuffle=False), seeded(), paid)
    assert paid.total == loss
    assert found.sigma[1, 0] / found.sigma[0, 0] == pytest.approx(7, rel=0.03)
    n_hat = found.count - FriendlyAverage(loss, 1).offset
    least = 2 * 100 / n_hat * math.sqrt(2 / (2 * 0.81))
    assert least * 0.99 <= found.sigma[0, 0] <= 1.03 * least


def test_ordered_average_accepts_an_empty_core():
    step = OrderedAverage(LOSS, 2, 2, radius_grid(10, 2000, 1.5))
    assert step.release(np.empty((0, 2, 2)), seeded(), Paid()) == ("no_match", None)
