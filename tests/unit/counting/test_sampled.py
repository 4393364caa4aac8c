"""Sampled partners: what the coins say is what is counted, and coins are what they should be."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from support import naive
from support.helpers import rows, sample

from fcstream import Engine, Noise, SeededEntropy
from fcstream.accounting.losses import PrivacyLoss
from fcstream.config import Config
from fcstream.cores.filters import ZCDPFilter
from fcstream.cores.sampled_filters import HiddenCoinFilter, SparseZCDPFilter, design_pairs
from fcstream.counting import sampled
from fcstream.counting.exact import FriendCounts
from fcstream.counting.sampled import BlockCounts, HiddenCounts
from fcstream.errors import ConfigError, CounterBroken, EngineClosed
from fcstream.noise.samplers import geometric_draw
from fcstream.planning.plan import plan
from fcstream.planning.speeds import cheapest_pairs, measured_costs
from fcstream.releases.means.mean import FriendlyMean


class Recording(Noise):
    """Keeps what was drawn."""

    def __init__(self, seed):
        super().__init__(SeededEntropy(seed))
        self.blocks, self.gaps = [], []

    def uniform_bits(self, bits, size):
        self.blocks.append(super().uniform_bits(bits, size))
        return self.blocks[-1]

    def failures(self, rate, size):
        self.gaps.append(super().failures(rate, size))
        return self.gaps[-1]


def fed(counter, points, rng):
    at = 0
    while at < len(points):
        size = int(rng.integers(1, 130))
        counter.add(7, points[at : at + size])
        at += size
    return counter.view([7])


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [(1, 1), (2, 1), (2, 2), (8, 3), (8, 7), (8, 8), (64, 5), (64, 63), (256, 9)])
@pytest.mark.parametrize("d", [1, 3, 17])
def test_block_scores_equal_the_naive_twin(blocks, d, monkeypatch):
    rng = np.random.default_rng(d)
    monkeypatch.setattr(sampled, "_MIN_STAGED", 40)
    monkeypatch.setattr(sampled, "_MAX_STAGED", int(rng.choice([40, 100, 65536])))
    points, radius_squared = np.rint(rng.normal(size=(500, d)) * 100), int(2 * d * 90**2)
    noise = Recording(d)
    view = fed(BlockCounts(d, radius_squared, *blocks, noise), points, rng)
    drawn = np.concatenate(noise.blocks)
    used = [[naive.blocks_meet(a, b, *blocks) for b in drawn] for a in drawn.tolist()]
    expected = naive.sampled_scores(points, radius_squared, used)
    assert view.sampling == ("blocks", Fraction(blocks[1], blocks[0]))
    assert Counter(zip(map(tuple, view.points().tolist()), view.scores.tolist(), strict=True)) == Counter(
        zip(map(tuple, points.tolist()), expected, strict=True)
    )


@pytest.mark.parametrize("rate", [Fraction(1), Fraction(1, 2), Fraction(1, 30), Fraction(1, 4000), Fraction(999, 1000)])
def test_hidden_scores_equal_the_naive_twin(rate, monkeypatch):
    monkeypatch.setattr(sampled, "_MIN_STAGED", 30)
    monkeypatch.setattr(sampled, "_WORDS", 500)
    rng = np.random.default_rng(1)
    n, radius_squared = 150, 20000
    points = np.rint(rng.normal(size=(n, 3)) * 100)
    counter, used = HiddenCounts(3, radius_squared, rate, Recording(3)), np.zeros((n, n), bool)
    monkeypatch.setattr(sampled, "_MAX_STAGED", 30)
    counter.add(0, points)
    view = counter.view([0])
    gaps = iter(counter._noise.gaps)
    for start in range(0, n, 30):  # replay the coins of every flush, pair by pair
        places = [(i, j) for i in range(start, start + 30) for j in range(2 * i)]
        at, chunk = 0, iter(())
        while True:
            gap = next(chunk, None)
            if gap is None:
                chunk = iter(next(gaps).tolist())
                continue
            at += gap
            if at >= len(places):
                break
            i, place = places[at]
            other = place >> 1
            used[(other, i) if place & 1 else (i, other)] = True
            at += 1
    assert view.scores.tolist() == naive.sampled_scores(points, radius_squared, used.tolist())
    assert view.points().tolist() == points.tolist()
    if rate == 1:
        assert used.sum() == n * (n - 1)


def test_gaps_are_geometric():
    for rate, limit in ((Fraction(1, 3), 12), (Fraction(1, 50), 150), (Fraction(9, 10), 4)):
        gaps = Noise(SeededEntropy(4)).failures(rate, 200_000)
        q = float(rate)
        expected = [(1 - q) ** k * q * len(gaps) for k in range(limit)]
        seen = np.bincount(np.minimum(gaps, limit), minlength=limit + 1)
        expected.append(len(gaps) - sum(expected))
        assert stats.chisquare(seen, expected).pvalue > 1e-4
        wrong = [(1 - 1.03 * q) ** k * 1.03 * q * len(gaps) for k in range(limit)]
        wrong.append(len(gaps) - sum(wrong))
        assert stats.chisquare(seen, wrong).pvalue < 1e-6  # the test has power


@pytest.mark.parametrize(
    "rate", [Fraction(1, 2), Fraction(3, 7), Fraction(1, 2**12), Fraction(1, 2**31), Fraction(2, 3)]
)
def test_gaps_equal_exact_arithmetic(rate):
    """Also at words where a gap begins: there 64 bits do not decide, or just do."""

    class Planned:
        private = False

        def __init__(self, words):
            self.given = np.array(words, np.uint64)

        def words(self, count):
            return self.given[:count] if count == len(self.given) else np.full(count, 1 << 63, np.uint64)

    stay = 1 - rate
    words = [0, 1, 2**20, 2**40, 2**63, 2**64 - 1]
    for k in range(1, 12):
        edge = int(2**64 * stay**k)
        words += [w for w in (edge - 2, edge - 1, edge, edge + 1, edge + 2) if 0 <= w < 2**64]
    words += np.random.default_rng(0).integers(0, 2**63, 200).tolist()
    found = Noise(Planned(words)).failures(rate, len(words))
    for word, gap in zip(words, found.tolist(), strict=True):
        assert gap == min(2**62, geometric_draw(rate, word, lambda: 1 << 63)), word
        if gap < 200:  # the definition: at least k failures iff U <= (1 - rate)**k
            assert Fraction(2 * word + 1, 2**65) <= stay**gap
            assert Fraction(2 * word + 1, 2**65) >= stay ** (gap + 1)


def test_blocks_are_uniform():
    drawn = Noise(SeededEntropy(1)).uniform_bits(5, 100_001)
    assert drawn.shape == (100_001,)
    assert stats.chisquare(np.bincount(drawn, minlength=32)).pvalue > 1e-4
    assert Noise().uniform_bits(0, 3).tolist() == [0, 0, 0]


def test_counters_refuse_what_cannot_be():
    noise = Noise(SeededEntropy(0))
    for blocks, partners in ((3, 1), (0, 1), (8, 2), (8, 9), (2**25, 1)):
        with pytest.raises(ConfigError):
            BlockCounts(2, 100, blocks, partners, noise)
    with pytest.raises(ConfigError, match="rate"):
        HiddenCounts(2, 100, Fraction(0), noise)
    with pytest.raises(ConfigError, match="rate"):
        HiddenCounts(2, 100, 0.5, noise)
    with pytest.raises(ConfigError, match="2\\*\\*-40"):
        noise.failures(Fraction(1, 10**41), 1)
    with pytest.raises(ConfigError, match="dimension"):
        HiddenCounts(0, 100, Fraction(1, 2), noise)
    with pytest.raises(ConfigError, match="radius_squared"):
        HiddenCounts(1, 2**53, Fraction(1, 2), noise)
    counter = BlockCounts(2, 100, 8, 3, noise)
    with pytest.raises(ConfigError, match="shape"):
        counter.add(0, np.zeros((3, 3)))
    counter.add(0, np.zeros((3, 2)))
    counter.add(1, np.zeros((0, 2)))
    counter.add(1, np.zeros((4, 2)))
    assert (counter.panes, counter.size(0), counter.size(1), counter.size(2)) == ([0, 1], 3, 4, 0)
    with pytest.raises(ConfigError, match="tumbling"):
        counter.view([0, 1])
    assert counter.view([5]).size == 0
    counter.drop(0)
    assert counter.panes == [1]


def test_filters_take_only_what_was_counted_for_them():
    """Scores read as counts, or of another rate, would break the guarantee silently."""
    noise, loss = Noise(SeededEntropy(0)), PrivacyLoss.charge(1, 1e-6)
    blocks = BlockCounts(1, 100, 8, 3, noise)
    exact = FriendCounts(1, 100)
    for counter in (blocks, exact):
        counter.add(0, np.zeros((50, 1)))
    with pytest.raises(ConfigError, match="exact"):
        ZCDPFilter(loss).read(blocks.view([0]))
    with pytest.raises(ConfigError, match="sampled by"):
        HiddenCoinFilter(loss, Fraction(3, 8)).read(blocks.view([0]))  # the right rate, the wrong coins
    with pytest.raises(ConfigError, match="sampled by"):
        SparseZCDPFilter(loss, Fraction(1, 8)).read(blocks.view([0]))
    with pytest.raises(ConfigError, match="sampled by"):
        HiddenCoinFilter(loss, Fraction(3, 8)).read(exact.view([0]))
    assert SparseZCDPFilter(loss, Fraction(3, 8)).read(blocks.view([0])).shape == (50,)
    assert ZCDPFilter(loss).read(exact.view([0])).shape == (50,)


@pytest.mark.parametrize("pairs", ["blocks", "hidden"])
@pytest.mark.parametrize("method", ["recentered", "friendly"])
def test_windows_are_released_from_sampled_pairs(pairs, method):
    n = 30_000
    sections = {
        "release": {"pairs": pairs, "method": method, "rho": 2.0, "size_hint": n},
        "budget": {"rho": 4.0},
        "window": {"end": "1970-01-01T00:00:10Z"},
    }
    with Engine(sample(**sections), noise=Noise(SeededEntropy(1))) as engine:
        raw = rows(n)
        raw[::20] = [70.0, 1.0]
        engine.push(np.arange(n) % 10_000, raw)
        release = engine.close()[0]
    assert release.status == "released"
    assert abs(release.value[0] - 20.5) < 0.05
    assert abs(release.core_count - 0.95 * n) < 0.05 * n
    assert not release.private


def test_sampled_pairs_in_configurations():
    sliding = {"window": {"slide": "5s"}, "budget": {"rho": 10.0}}
    with pytest.raises(ConfigError, match="sliding"):
        Config.from_mapping(sample(release={"pairs": "hidden", "size_hint": 20_000, "rho": 2.0}, **sliding))
    with pytest.raises(ConfigError, match="no sample of pairs finds a core among 20 records"):
        Config.from_mapping(sample(release={"pairs": "blocks", "size_hint": 20}))
    with pytest.raises(ConfigError, match=r"release\.pairs"):
        Config.from_mapping(sample(release={"pairs": "some"}))
    ball = {"method": "ball", "center": [20.0, 50.0]}
    for useless, why in (({"kind": "count"}, "belongs to kind"), (ball, "find a core")):
        with pytest.raises(ConfigError, match=why):
            Config.from_mapping(sample(release={"pairs": "blocks", "size_hint": 20_000, **useless}))
    with pytest.raises(ConfigError, match="exact"):
        FriendlyMean(PrivacyLoss.charge(1, 1e-6), 100, 2, 20_000, "some")


@pytest.mark.parametrize("pairs", ["blocks", "hidden"])
@pytest.mark.parametrize("method", ["recentered", "friendly"])
def test_sampled_pairs_can_be_planned(pairs, method):
    release = {"pairs": pairs, "method": method, "size_hint": 30_000, "rho": 3.0}
    planned = plan(Config.from_mapping(sample(release=release, budget={"rho": 4.0})))
    assert planned.probability > 0.99
    assert 100 < planned.smallest_size < 30_000
    assert any("of all pairs" in line for line in planned.lines())
    assert 0 < planned.as_dict()["pair_share"] < 1


def test_largest_windows_can_be_made():
    for hint in (2**24, 2**30, 2**40):
        design = design_pairs("blocks", hint, PrivacyLoss.charge(0.1, 1e-9))
        BlockCounts(2, 100, design.blocks, design.partners, Noise(SeededEntropy(0)))


@pytest.mark.parametrize("kind", ["exact", "blocks", "hidden"])
def test_an_interrupted_counter_refuses_to_go_on(kind, monkeypatch):
    """Half-counted points would be counted wrong, or get a second set of coins."""
    noise = Noise(SeededEntropy(0))
    counter = {
        "exact": lambda: FriendCounts(2, 100),
        "blocks": lambda: BlockCounts(2, 100, 8, 3, noise),
        "hidden": lambda: HiddenCounts(2, 100, Fraction(1, 2), noise),
    }[kind]()
    counter.add(0, np.zeros((600, 2)))
    from fcstream._kernels import samples
    from fcstream._kernels import tiles as kernels

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(kernels, "settle", interrupted)
        patch.setattr(samples, "assign_slots", interrupted)
        patch.setattr(samples, "use_random_bits", interrupted)
        with pytest.raises(KeyboardInterrupt):
            counter.add(0, np.zeros((100_000, 2)))
    for call in (lambda: counter.add(0, np.zeros((1, 2))), lambda: counter.view([0])):
        with pytest.raises(CounterBroken, match="make a new one"):
            call()


def test_an_engine_whose_counter_is_interrupted_answers_nothing_more(monkeypatch):
    engine = Engine(sample(window={"end": "1970-01-01T00:00:10Z"}), noise=Noise(SeededEntropy(1)))
    engine.push(np.arange(500), rows(500))
    from fcstream._kernels import tiles as kernels
    from fcstream.counting import exact

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(exact, "_FEW_COORDINATES", 0)
        patch.setattr(kernels, "settle", interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.close()
    with pytest.raises(EngineClosed):
        engine.push([0], rows(1))


def test_a_window_is_read_once(monkeypatch):
    """After its view nothing is added, and a second view is the same."""
    for counter in (
        BlockCounts(2, 100, 8, 3, Noise(SeededEntropy(0))),
        HiddenCounts(2, 100, Fraction(1, 2), Noise(SeededEntropy(0))),
    ):
        counter.add(0, np.zeros((50, 2)))
        view = counter.view([0])
        assert counter.view([0]) is view
        with pytest.raises(ConfigError, match="one release"):
            counter.add(0, np.zeros((1, 2)))
        with pytest.raises(ConfigError, match="exact"):
            view.in_order()
        assert "0" not in repr(view).replace("coordinates", "")
        counter.drop(0)
        counter.add(0, np.zeros((1, 2)))


def test_the_planner_measures_and_chooses():
    costs = measured_costs(16)
    assert set(costs) == {"exact", "blocks", "hidden"}
    assert all(1e-13 < cost < 1e-4 for cost in costs.values())
    loss = PrivacyLoss.charge(0.1, 1e-9)
    assert cheapest_pairs(2000, 16, loss).kind == "exact"
    assert cheapest_pairs(10**9, 16, loss).kind != "exact"
    assert cheapest_pairs(10**9, 16, loss, tumbling=False).kind == "exact"
