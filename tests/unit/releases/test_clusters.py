import math
import warnings
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.clusters import BASE, LOSS, STEP, Paid, job, seeded, three, tuples_like
from support.windows import view_of

import fcstream
from fcstream._kernels import clusters as kernels
from fcstream.accounting.losses import PrivacyLoss
from fcstream.cores.filters import ZCDPFilter
from fcstream.cores.replacement import ReplacedFilter, tail_quantile
from fcstream.errors import ConfigError
from fcstream.noise.samplers import Noise, SeededEntropy
from fcstream.predicates import MatchTuples, MatchWithin, OrderedTuples
from fcstream.releases.clusters import oracles
from fcstream.releases.clusters.pipeline import ClusteringAlgorithm, LloydRounds, LloydStep, nearest_labels
from fcstream.releases.clusters.shards import ShardCounts, Shards
from fcstream.releases.clusters.tuples import (
    GAMMA,
    TupleAverage,
    friend_counts,
    noisy_mode,
    radius_grid,
    reorder,
)
from fcstream.stream.lattice import Lattice


def average(t=160, k=3, d=2, **changes):
    values = {
        "loss": LOSS,
        "tuples": t,
        "k": k,
        "dimension": d,
        "radius_nano": 10**7,
        "core_nano": 8 * 10**8,
        "rungs": radius_grid(10, 10**5, 1.25),
    }
    return TupleAverage(**(values | changes))


small = st.integers(0, 2**32 - 1)

# -- kernels ---------------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 6), small)
def test_kernels_equal_their_twins(k, d, t, seed):
    rng = np.random.default_rng(seed)
    reach = int(rng.choice([3, 30, 2**20]))
    tuples = rng.integers(-reach, reach + 1, size=(t, k, d)).astype(np.float64)
    found = np.empty(t)
    kernels.separations(tuples, found)
    assert [None if x == math.inf else int(x) for x in found] == [naive.separation(x) for x in tuples]
    alone = np.empty((t, k))
    kernels.isolations(tuples, alone)
    assert (alone.min(axis=1) == found).all()
    numbered = np.empty_like(tuples)
    kernels.number(tuples[0], tuples, numbered)
    assert numbered.tolist() == [naive.number(tuples[0], x) for x in tuples]
    radii = rng.integers(0, reach * reach + 1, size=k).astype(np.float64)
    inside = np.empty(t, bool)
    kernels.partitioned(tuples[0], radii, tuples, inside)
    assert inside.tolist() == [naive.partitioned(tuples[0], radii, x) for x in tuples]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 150), st.integers(1, 4), st.integers(1, 3), small)
def test_labels_equal_their_twin(n, k, d, seed):
    rng = np.random.default_rng(seed)
    points = rng.integers(-20, 21, size=(n, d)).astype(np.float64)
    centers = rng.integers(-20, 21, size=(k, d)).astype(np.float64)
    step = LloydStep(PrivacyLoss.charge(1), (1,) * d, 15**2)
    view = view_of(points)
    expected = [naive.label(x, [1] * d, 15**2, centers) for x in view.points()]
    assert nearest_labels(view, centers, step.origin, step.ball_squared).tolist() == expected


# -- cores of replaced items ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [0.5, 0.1, 1e-3, 5e-9 / 200, 1e-20, 1e-35])
def test_tail_quantile_is_right_and_never_too_small(p):
    with mpmath.workdps(50):
        tail = mpmath.erfc(mpmath.mpf(tail_quantile(p)) / mpmath.sqrt(2)) / 2
        assert p * (1 - 1e-6) < tail <= p


@pytest.mark.parametrize(("rho", "published"), [(0.05, 5455), (0.25, 981), (1, 222)])
def test_fewest_tuples_are_below_the_published_ones(rho, published):
    """The threshold 1/2 + sigma sqrt(2 ln(t/delta)) needs so many to keep nearly all; ours is a little lower."""
    sigma, margin = math.sqrt((published - 1) / (2 * rho)), tail_quantile(0.05 / published)
    room = published / 2 - 0.5 - sigma * (math.sqrt(2 * math.log(published / 5e-9)) + margin)
    assert abs(room) < 0.01 * published
    loss = PrivacyLoss.charge(rho, 5e-9)
    enough = [ReplacedFilter(loss, round(share * published)).margin >= margin for share in (0.88, 1.0)]
    assert enough == [False, True]


def renyi(p, q, alpha):
    return math.log(p**alpha * q ** (1 - alpha) + (1 - p) ** alpha * (1 - q) ** (1 - alpha)) / (alpha - 1)


@pytest.mark.parametrize(("t", "rho"), [(60, 0.3), (200, 1.0), (1000, 0.1)])
def test_keep_bits_cost_what_is_claimed(t, rho):
    """t - 1 bits whose counts move by 1, each where that tells most; the noise of add/remove would cost too much."""

    def worst(sigma, threshold, alpha):
        best = 0.0
        for z in np.linspace(threshold - 3 * sigma, threshold + 3 * sigma, 61):
            p, q = (0.5 * math.erfc((threshold - x) / sigma / math.sqrt(2)) for x in (z, z + 1))
            best = max(best, renyi(p, q, alpha), renyi(q, p, alpha))
        return best

    loss = PrivacyLoss.charge(rho, 1e-8)
    threshold, sigma = ReplacedFilter(loss, t).bar
    for alpha in (1.5, 2.0, 8.0):
        assert (t - 1) * worst(sigma, threshold, alpha) <= alpha * rho
    old_threshold, old_sigma = ZCDPFilter(loss).bar(t)
    assert (t - 1) * worst(old_sigma, old_threshold, 2.0) > 2.0 * rho


def test_items_with_few_friends_are_kept_with_at_most_delta():
    kept = ReplacedFilter(PrivacyLoss.charge(1, 1e-6), 100)
    threshold, sigma = kept.bar
    worst = 100 * 0.5 * math.erfc((threshold - 0.5) / sigma / math.sqrt(2))  # (t - 1)/2 common friends, and the other
    assert 0.99e-6 < worst <= 1e-6


def test_the_papers_second_core_needs_thousands_of_tuples():
    """0.05 of a quarter of rho = 1: the figure that `TupleAverage` tells."""
    core = ZCDPFilter(PrivacyLoss.charge(0.0125, 2.5e-9))
    assert core.margin(2640) < 0 <= core.margin(2660)


def test_filters_refuse_what_they_cannot_do():
    with pytest.raises(ConfigError, match="at least 2 items"):
        ReplacedFilter(LOSS, 1)
    with pytest.raises(ConfigError, match="counts of 5 items, got 4"):
        ReplacedFilter(LOSS, 5).select_core(np.ones(4, np.int64), seeded())
    with pytest.raises(ConfigError, match="probability"):
        tail_quantile(0.0)


# -- match, order -------------------------------------------------------------------------------------------------


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


@settings(max_examples=60, deadline=None)
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


# -- radii -------------------------------------------------------------------------------------------------------


def test_a_search_takes_the_first_rung_at_which_nearly_all_match():
    """FindDiam on the largest matched distance; two rungs more for the core. Noise covers a tuple replaced."""
    rungs, drawn = radius_grid(10, 10**5, 1.5), []

    class Recording(Noise):
        def discrete_gaussian(self, variance, size):
            drawn.append(variance)
            return super().discrete_gaussian(variance, size)

    step = average(method="search", radius_nano=10**8, rungs=rungs, core_nano=75 * 10**7)
    tuples, paid = tuples_like(BASE, 160, 60, 3), Paid()
    found = step._radius(tuples, Recording(SeededEntropy(0)), paid)
    pairs = [friend_counts(MatchWithin(3, 2, r2, GAMMA), tuples).sum() for r2 in rungs]
    bar = (160 - step._search.check.bar) * 160
    first = next(b for b, count in enumerate(pairs) if count >= bar)
    assert found == math.floor(rungs[first] * 1.5**4)
    assert len(drawn) == len(paid.stages) <= math.ceil(math.log2(len(rungs)))
    for variance, stage in zip(drawn, paid.stages, strict=True):  # in parts of 1/1024 of a stranger a tuple
        assert 0.98 * stage.rho < (1024 * 2 * 159 / 160) ** 2 / (2 * float(variance)) <= stage.rho


@settings(max_examples=20, deadline=None)
@given(small)
def test_histogram_of_separations_equals_its_twin(seed):
    rng = np.random.default_rng(seed)
    tuples = rng.integers(-40, 41, size=(12, 3, 1)).astype(np.float64)
    rungs = radius_grid(2, 60, 1.5)
    seen = []

    class Silent(Noise):
        def discrete_gaussian(self, variance, size):
            assert variance == Fraction(10**9, 10**7)  # l2 sensitivity sqrt(2): two bins
            seen.append(size)
            return np.zeros(size, np.int64)

    expected = naive.separations_between(tuples, rungs)
    best = noisy_mode(tuples, rungs, 10**7, Silent(SeededEntropy(0)))
    assert seen == [len(expected)]
    top = max(expected[1:])
    assert best == (1 + expected[1:].index(top) if 4 * top >= 12 else None)


# -- tuples become centers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["histogram", "search", "public"])
def test_matching_tuples_are_averaged_and_cost_exactly_their_loss(method):
    tuples, paid = tuples_like(BASE, 160, 60, 3), Paid()
    changes = {
        "histogram": {},
        "search": {"radius_nano": 10**8, "rungs": radius_grid(10, 10**5, 1.5), "core_nano": 75 * 10**7},
        "public": {"radius_nano": 0, "rungs": (400**2,)},
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
    step = average(method="public", radius_nano=0, rungs=(400**2,))
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
    first = step.average(step.rungs[-1])._first_nano
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
    rungs = radius_grid(10, 10**5, 1.5)
    step = average(k=1, method="search", radius_nano=10**8, rungs=rungs, core_nano=75 * 10**7)
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
        ({"core_nano": 10**9}, "must not be negative"),
        ({"method": "public", "radius_nano": 0}, "one public radius"),
    ],
)
def test_tuple_averages_that_cannot_work_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        average(**changes)


# -- shards, oracles -----------------------------------------------------------------------------------------------


def shards(oracle, t=10, k=3, ball=20_000):
    return Shards(t, k, oracle, (0, 0), ball**2, STEP)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kmeans", "gaussians", "scipy", "pca"])
def test_oracles_find_clusters_and_every_shard_answers_alone(name):
    made, points = shards(oracles.find(name, 3, 2), t=5), three(n=300)
    coins = seeded().uniform_integers(5, len(points))
    tuples = made.cluster(points, coins)
    for x in tuples:
        assert np.abs(np.array(naive.number(BASE, x)) - BASE).max() < 150
    changed, i = points.copy(), 7
    changed[i] = [19_000.0, 0.0]
    again = made.cluster(changed, coins)
    removed = made.cluster(np.delete(points, i, axis=0), np.delete(coins, i))
    for other in (again, removed):
        same = (other == tuples).all(axis=(1, 2))
        assert same[np.arange(5) != coins[i]].all()
    assert not (again[coins[i]] == tuples[coins[i]]).all()
    shuffled = np.random.default_rng(1).permutation(len(points))
    assert (made.cluster(points[shuffled], coins[shuffled]) == tuples).all()


class Averages:
    """A learner for tests: means by the nearest true center, and every chunk it got."""

    def __init__(self, k, seed, log):
        self.sums, self.counts, self.log = np.zeros((k, 2)), np.zeros(k), log.setdefault(seed, [])

    def partial_fit(self, points):
        labels = ((points[:, None] - BASE * STEP) ** 2).sum(axis=2).argmin(axis=1)
        np.add.at(self.sums, labels, points)
        np.add.at(self.counts, labels, 1)
        self.log.append(points.copy())

    @property
    def cluster_centers_(self):
        return self.sums / self.counts[:, None]


class Fixed(Noise):
    """Coins that are given."""

    def __init__(self, coins):
        super().__init__(SeededEntropy(0))
        self.coins = list(coins)

    def uniform_integers(self, bound, size):
        head, self.coins = self.coins[:size], self.coins[size:]
        return np.array(head, np.int64)


def test_learners_see_their_own_shard_only_however_records_are_batched():
    points, coins = three(n=3000), seeded().uniform_integers(10, 3000)
    whole, logs = [], []
    for cuts, left_out in (([], None), ([1, 700, 701, 2500], None), ([1500], 7)):
        log = {}
        made = shards(oracles.Incremental(lambda k, seed, log=log: Averages(k, seed, log)))
        kept = np.arange(3000) != left_out if left_out is not None else np.ones(3000, bool)
        counter = ShardCounts(made, Fixed(coins[kept]))
        for part in np.split(points[kept], cuts):
            counter.add(0, part)
        assert counter.panes == [0]
        view = counter.view([0])
        assert view.view.size == kept.sum()
        whole.append(view.tuples)
        logs.append(log)
        counter.drop(0)
        assert counter.view([0]).view.size == 0
    for seed in range(10):
        assert [x.tolist() for x in logs[0][seed]] == [x.tolist() for x in logs[1][seed]]
        assert {len(x) for x in logs[0][seed][:-1]} == {oracles.CHUNK}
    assert (whole[0] == whole[1]).all()
    same = (whole[0] == whole[2]).all(axis=(1, 2))
    assert same[np.arange(10) != coins[7]].all()
    assert not same[coins[7]]
    assert np.abs(np.sort(whole[0][:, :, 0]) - np.sort(BASE[:, 0])).max() < 60


def test_a_learner_that_fails_gives_the_fixed_tuple():
    class Failing:
        def partial_fit(self, points):
            raise RuntimeError(f"a record: {points[0]}")

    made = shards(oracles.Incremental(lambda k, seed: Failing()))
    counter = ShardCounts(made, seeded())
    counter.add(0, three(n=3000))
    assert (counter.view([0]).tuples == 0).all()
    empty = ShardCounts(shards(oracles.MINIBATCH), seeded())
    assert (empty.view([0]).tuples == 0).all()
    assert (empty.view([]).tuples == 0).all()
    with pytest.raises(ConfigError, match="tumbling"):
        counter.view([0, 1])


class Ready:
    """A learner that has an answer before it has seen a record."""

    cluster_centers_ = np.array([[0.1, 0.1], [0.2, 0.1], [0.3, 0.1]])

    def partial_fit(self, points):
        pass


def test_a_record_replaces_one_tuple_also_where_learners_start_with_an_answer():
    counter = ShardCounts(shards(oracles.Incremental(lambda k, seed: Ready())), seeded())
    nobody = counter.view([0]).tuples
    counter.add(0, np.array([[1.0, 2.0]]))
    assert (counter.view([0]).tuples != nobody).any(axis=(1, 2)).sum() == 1


def test_minibatches_find_clusters_at_once_and_piece_by_piece():
    points = three(n=3000)
    counter = ShardCounts(shards(oracles.find("minibatch", 3, 2), t=4), seeded())
    for part in np.array_split(points, 7):
        counter.add(0, part)
    at_once = shards(oracles.MINIBATCH, t=4).tuples_of(points, seeded())
    for tuples in (counter.view([0]).tuples, at_once):
        near = [np.abs(np.array(naive.number(BASE, x)) - BASE).max() < 300 for x in tuples]
        assert sum(near) >= 3


def failing(points, k, seed):
    raise RuntimeError(f"a record: {points[0]}")


class Torn:
    """An answer that fails when it is looked at."""

    def __array__(self, *_, **__):
        raise RuntimeError("a record")


def warning(points, k, seed):
    warnings.warn(f"a record: {points[0]}", stacklevel=1)
    return np.zeros((k, 2))


@pytest.mark.parametrize(
    "oracle",
    [
        failing,
        warning,
        lambda p, k, s: p[:1],
        lambda p, k, s: np.full((k, 2), np.nan),
        lambda p, k, s: "no",
        lambda p, k, s: None,
        lambda p, k, s: [[10**400, 0]] * k,
        lambda p, k, s: np.full((k, 2), 1j),
        lambda p, k, s: Torn(),
    ],
)
def test_an_oracle_that_fails_gives_one_fixed_tuple(oracle):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        tuples = shards(oracle).tuples_of(three(), seeded())
    assert (tuples == 0).all()
    assert not told


def test_shards_with_too_few_points_give_the_fixed_tuple():
    tuples = shards(oracles.find("scipy", 3, 2)).tuples_of(three(n=5), seeded())
    assert (tuples == 0).all()
    assert shards(failing).tuples_of(np.empty((0, 2)), seeded()).shape == (10, 3, 2)


def test_tuples_lie_in_the_ball_whatever_the_oracle_says():
    def far(points, k, seed):
        return np.array([[1e300, 1.0], [-3.0, 4.0], [0.5, 0.25]])

    tuples = shards(far, ball=10_000).tuples_of(three(), seeded())
    assert (np.rint(tuples) == tuples).all()
    assert ((tuples**2).sum(axis=2) <= 10_000**2).all()
    assert tuples[0][2].tolist() == [5000, 2500]
    assert np.linalg.norm(tuples[0][1]) > 9990


def test_records_outside_the_ball_do_not_reach_the_oracle():
    seen = []

    def look(points, k, seed):
        seen.append(points)
        return np.zeros((k, 2))

    shards(look, ball=5200).tuples_of(three(), seeded())
    assert max(np.linalg.norm(points, axis=1).max() for points in seen) <= 5200 * STEP * (1 + 1e-12)


def test_coins_are_uniform():
    coins = seeded().uniform_integers(7, 70_000)
    assert abs(np.bincount(coins, minlength=7) - 10_000).max() < 5 * math.sqrt(10_000)
    assert seeded().uniform_integers(1, 3).tolist() == [0, 0, 0]
    with pytest.raises(ConfigError):
        seeded().uniform_integers(0, 1)


def test_oracles_are_found_by_name(monkeypatch):
    assert oracles.find("auto", 3, 2) is oracles.kmeans
    assert oracles.find("auto", 3, 12) is oracles.pca
    monkeypatch.setattr(oracles, "has_sklearn", lambda: False)
    assert oracles.find("auto", 3, 2) is oracles.scipy_kmeans
    with pytest.raises(ConfigError, match="scikit-learn"):
        oracles.find("gaussians", 3, 2)
    with pytest.raises(ConfigError, match="must be one of"):
        oracles.find("birch", 3, 2)


# -- the whole ---------------------------------------------------------------------------------------------------


def test_clusters_are_found_and_all_of_rho_is_used():
    mechanism, paid = job().mechanism(LOSS, Lattice(STEP)), Paid()
    found = mechanism.find(view_of(three(n=6000)), seeded(), paid)
    assert found.reason is None
    assert paid.total == LOSS
    expected = BASE[np.lexsort(BASE.T[::-1])]
    assert np.abs(found.centers - expected).max() < 5 * found.sigma.max() + 10
    assert abs(found.counts - 2000).max() < 200
    assert found.tuples > 0.8 * mechanism.shards.tuples
    outcome = found.outcome()
    assert outcome.value.shape == (3, 2)
    assert outcome.parts == {"counts": found.counts.tolist(), "tuples": found.tuples}


def test_sigma_of_centers_is_honest():
    mechanism, view = job().mechanism(LOSS, Lattice(STEP)), view_of(three(n=6000))
    labels = nearest_labels(view, BASE, (0, 0), mechanism.shards.ball_squared)
    exact = np.stack([view.points()[labels == j].mean(axis=0) for j in range(3)])
    exact = exact[np.lexsort(exact.T[::-1])]
    tuples = mechanism.shards.tuples_of(view.points(), seeded())
    errors = []
    for seed in range(60):
        found = mechanism.from_tuples(tuples, view, seeded(seed), Paid())
        errors.append((found.centers - exact) / found.sigma)
    assert 0.85 < np.std(errors) < 1.15


@pytest.mark.parametrize("method", ["ball", "friendly"])
def test_a_lloyd_step_costs_its_loss_once_and_finds_the_means(method):
    view, paid = view_of(three(n=6000)), Paid()
    step = LloydStep(PrivacyLoss.charge(0.2, 1e-8), (0, 0), 10_000**2, method=method)
    found, counts = step.release(view, BASE + 300, seeded(2), paid)
    assert paid.total == PrivacyLoss(step.loss.rho_nano, step.loss.delta_femto if method == "friendly" else 0)
    assert len(paid.stages) == 2  # one for all parts' counts, one for their sums
    assert np.abs(found.value - BASE).max() < 5 * np.nanmax(found.sigma) + 20
    assert abs(counts - 2000).max() < 300
    if method == "ball":
        tight = LloydStep(step.loss, (0, 0), 10_000**2, 600**2).release(view, BASE + 300, seeded(2), Paid())[0]
        assert np.nanmax(tight.sigma) < 0.2 * np.nanmax(found.sigma)


@pytest.mark.parametrize("method", ["ball", "friendly"])
def test_a_lloyd_step_over_nothing_costs_its_counts(method):
    step, paid = LloydStep(PrivacyLoss.charge(0.2, 1e-8), (0, 0), 10_000**2, method=method), Paid()
    found, _ = step.release(view_of(np.empty((0, 2))), BASE, seeded(2), paid)
    assert np.isnan(found.sigma).all()
    assert len(paid.stages) == 1
    assert paid.total.rho < 0.1


def test_a_part_with_too_few_records_keeps_its_center():
    centers = np.array([[0.0, 0.0], [9000.0, -3000.0]])
    step = LloydStep(PrivacyLoss.charge(0.2), (0, 0), 10_000**2)
    found, counts = step.release(view_of(three(n=500)[:, :] * 0.1), centers, seeded(), Paid())
    assert found.value[1].tolist() == [9000, -3000]
    assert np.isnan(found.sigma[1]).all()
    assert counts[1] < 40


DEGENERATE = {
    "all equal": np.full((6000, 2), 0.25),
    "fewer distinct rows than centers": np.tile([[0.1, 0.1], [-0.4, 0.2]], (3000, 1)),
    "one row": np.array([[0.1, 0.2]]),
    "no row": np.empty((0, 2)),
    "all outside": np.full((6000, 2), 3.0),
    "not finite": np.full((6000, 2), np.nan),
}


@pytest.mark.parametrize("name", DEGENERATE)
@pytest.mark.parametrize("oracle", ["kmeans", "scipy"])
def test_degenerate_data_are_refused_at_the_loss_that_is_reported(name, oracle):
    answer = fcstream.private_centers(
        DEGENERATE[name], 3, ball=1, rho=1, delta=1e-8, size_hint=6000, step=STEP, oracle=oracle, noise=seeded()
    )
    mechanism = job(oracle=oracle).mechanism(LOSS, Lattice(STEP))
    assert (answer.status, answer.centers) == ("refused", None)
    assert answer.reason == "no_radius"
    assert answer.spent == PrivacyLoss(mechanism.average.radius_nano)
    assert not answer.private


@pytest.mark.parametrize("rows", [np.full((9000, 2), 0.25), np.zeros((0, 2))])
def test_one_center_of_degenerate_data(rows):
    """All equal is no trouble for k = 1; an empty array is told by its noisy count."""
    answer = fcstream.private_centers(
        rows, 1, ball=1, rho=1, delta=1e-8, size_hint=9000, step=STEP, oracle=lambda p, k, s: p.mean(axis=0)[None],
        noise=seeded(),
    )  # fmt: skip
    assert answer.reason == (None if len(rows) else "too_few")
    if len(rows):
        assert np.abs(answer.centers - 0.25).max() < 0.01


def test_a_fallback_answers_where_tuples_do_not_match():
    rows = np.random.default_rng(0).uniform(-0.5, 0.5, size=(20_000, 2))
    shared = {"ball": 1, "rho": 1, "delta": 1e-8, "size_hint": 20_000, "step": STEP, "oracle": "scipy"}

    def wild(points, k, seed):
        return points[seed % 7 : seed % 7 + k]

    refused = fcstream.private_centers(rows, 4, noise=seeded(), **(shared | {"oracle": wild}))
    assert refused.reason in ("no_match", "no_radius")
    assert refused.spent.rho_nano < 95 * 10**7
    answer = fcstream.private_centers(
        rows, 4, noise=seeded(), fallback="lloyd", fallback_share=0.3, **(shared | {"oracle": wild})
    )
    assert answer.status == "released"
    assert answer.tuples is None
    assert answer.spent.rho_nano == LOSS.rho_nano
    quarter = ((rows[:, None] - answer.centers) ** 2).sum(axis=2).min(axis=1).mean()
    assert quarter < 0.6 * (rows**2).sum(axis=1).mean()


def test_fallback_budget_is_not_touched_by_a_release():
    mechanism, paid = job(fallback="lloyd").mechanism(LOSS, Lattice(STEP)), Paid()
    assert mechanism.find(view_of(three(n=6000)), seeded(), paid).reason is None
    assert paid.total == LOSS - PrivacyLoss(mechanism.fallback_nano)


def test_lloyd_rounds_start_from_public_centers_in_the_ball():
    rounds = LloydRounds(10**8, 6, (100, -50, 3), 1000**2)
    first = rounds.first()
    assert first.shape == (6, 3)
    assert (((first - [100, -50, 3]) ** 2).sum(axis=1) <= 1002**2).all()
    assert len({tuple(x) for x in first}) == 6


@pytest.mark.parametrize("rho", [0.25, 1, 4])
def test_plans_spend_all_and_choose_fewer_tuples_for_more_budget(rho):
    loss = PrivacyLoss.charge(rho, 1e-8)
    plan = job(size_hint=50_000).choose(loss, Lattice(STEP)).plan
    spent = plan.radius_nano + plan.core_nano + plan.average_nano + plan.lloyd_nano
    assert spent <= loss.rho_nano
    assert spent >= loss.rho_nano - 3
    assert plan.tuples == {0.25: 497, 1: 151, 4: 50}[rho] or plan.tuples < 600
    more = job(size_hint=200_000).choose(loss, Lattice(STEP)).plan
    assert more.separation == pytest.approx(plan.separation / 2, rel=0.05)
    fixed = job(size_hint=50_000, tuples=plan.tuples + 40).choose(loss, Lattice(STEP)).plan
    assert fixed.separation >= plan.separation


def test_forecasts_come_true():
    mechanism = job(size_hint=9000).mechanism(LOSS, Lattice(STEP))
    assert mechanism.forecast(9000).probability > 0.95
    strange = job(size_hint=9000).choose(LOSS, Lattice(STEP)).plan.outlier_tuples
    tuples = tuples_like(BASE, mechanism.shards.tuples, 60, 3)
    lost = int(strange * len(tuples))
    tuples[:lost] = 0.0
    released = sum(mechanism.average.release(tuples, seeded(s), Paid())[1] is not None for s in range(40))
    assert released >= 36


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size_hint": 500}, "keeps none"),
        ({"k": 0}, "k: must be at least 1"),
        ({"center": ()}, "center"),
        ({"center": (math.nan, 0.0)}, "center"),
        ({"fallback": "guess"}, "'lloyd' or absent"),
        ({"fallback": "lloyd", "fallback_share": 1.5}, "fallback_share"),
        ({"ball": -1.0}, "ball"),
        ({"radius": 0.0}, "radius"),
    ],
)
def test_jobs_that_cannot_work_are_refused_at_once(changes, message):
    with pytest.raises(ConfigError, match=message):
        job(**changes).mechanism(LOSS, Lattice(STEP))


def test_parts_must_fit_the_loss():
    mechanism = job().mechanism(LOSS, Lattice(STEP))
    with pytest.raises(ConfigError, match="must hold its parts"):
        ClusteringAlgorithm(PrivacyLoss(10**8, 10**7), mechanism.shards, mechanism.average, mechanism.lloyd)


@pytest.mark.parametrize(
    ("points", "changes", "message"),
    [
        (np.zeros(3), {}, "shape"),
        ([["a"]], {}, "rectangular"),
        (np.zeros((5, 2)), {"center": [0.0]}, "must list 2 numbers"),
        (np.zeros((5, 2)), {"rho": -1}, "positive"),
    ],
)
def test_private_centers_refuses_wrong_arguments(points, changes, message):
    arguments = {"ball": 1, "rho": 1, "delta": 1e-8, "size_hint": 9000, "step": STEP} | changes
    with pytest.raises(ConfigError, match=message):
        fcstream.private_centers(points, 3, **arguments)


@pytest.mark.parametrize(
    ("predicate", "twin"),
    [
        (MatchWithin(3, 2, 900**2, GAMMA), lambda x, y: naive.match_within(x, y, GAMMA, 900**2)),
        (MatchTuples(3, 2), lambda x, y: naive.match_tuples(x, y, Fraction(1, 7))),
        (OrderedTuples((900**2,) * 3, 2), lambda x, y: naive.ordered_tuples(x, y, [900**2] * 3)),
    ],
)
def test_friend_counts_of_tuples_equal_the_twin(predicate, twin):
    tuples = tuples_like(BASE, 30, 400, 8)
    assert friend_counts(predicate, tuples).tolist() == naive.predicate_counts(tuples, twin)
