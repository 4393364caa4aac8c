"""Counts for many radii at once."""

from fractions import Fraction

import numpy as np
import pytest
from support import naive

from fcstream.counting import multi_radius
from fcstream.counting.multi_radius import MultiRadiusCounts, SampledMultiRadiusCounts
from fcstream.errors import ConfigError
from fcstream.noise.samplers import Noise, SeededEntropy


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 2, 5, 16])
@pytest.mark.parametrize("reach", [1, 2, 3])
def test_multi_radius_counts_equal_the_naive_twin_after_every_step(d, reach, monkeypatch):
    monkeypatch.setattr(multi_radius, "_MIN_STAGED", 5)
    monkeypatch.setattr(multi_radius, "_WORK", 2000)
    rng = np.random.default_rng(d)
    radii = sorted({round((3 * 1.5**k) ** 2) for k in range(16)} | {1, 2, 2**53 - 1})
    counter, held = MultiRadiusCounts(d, radii, reach), {}
    for step in range(14):
        pane = max(0, step // 4 - int(rng.integers(0, 2)))
        points = np.rint(rng.normal(size=(int(rng.integers(1, 30)), d)) * float(rng.choice([3, 100])))
        counter.add(pane, points)
        held.setdefault(pane, []).extend(points.tolist())
        panes = range(max(0, pane - reach + 1), pane + 1)
        view = counter.view(panes)
        assert view.counts.tolist() == naive.counts_by_radius(view.points, radii)
        assert view.pairs.tolist() == view.counts.sum(axis=1).tolist()
        assert sorted(view.points.tolist()) == sorted(p for k in panes for p in held.get(k, []))
        if pane > reach and pane - reach in counter.panes:
            counter.drop(pane - reach)
            held.pop(pane - reach)


def test_exact_ties_fall_below_their_radius():
    counter = MultiRadiusCounts(2, [24, 25, 26])
    counter.add(0, np.array([[0.0, 0.0], [3.0, 4.0]]))
    assert counter.view([0]).counts.tolist() == [[1, 1], [2, 2], [2, 2]]
    assert counter.view([0]).pairs.tolist() == [2, 4, 4]
    assert counter.view([1]).counts.shape == (3, 0)


@pytest.mark.parametrize("radii", [[], [0], [4, 4], [9, 4], [2**53], range(1, 300)])
def test_bad_radii(radii):
    with pytest.raises(ConfigError, match="radii_squared"):
        MultiRadiusCounts(2, radii)


RADII = [4, 25, 400]
RATE = Fraction(3, 7)


def sampled(batches, rate=RATE, seed=1, pane=0):
    counter = SampledMultiRadiusCounts(2, RADII, rate, Noise(SeededEntropy(seed)))
    for batch in batches:
        counter.add(pane, batch)
    return counter


@pytest.mark.parametrize("seed", range(4))
def test_pairs_of_a_sample_are_those_of_the_records_whose_coins_say_so(seed):
    rng = np.random.default_rng(seed)
    batches = [np.rint(rng.normal(size=(m, 2)) * 9) for m in (1, 40, 0, 17)]
    words = Noise(SeededEntropy(seed))
    coins = [words.bernoulli(np.full(len(batch), 3), 7) for batch in batches]
    chosen = [point for batch, coin in zip(batches, coins, strict=True) for point in batch[coin].tolist()]
    view = sampled(batches, seed=seed).view([0])
    assert sorted(view.sample.points.tolist()) == sorted(chosen)
    assert view.sample.pairs.tolist() == [sum(naive.friend_counts(chosen, radius)) for radius in RADII]
    assert sorted(view.everyone.points().tolist()) == sorted(np.concatenate(batches).tolist())
    assert view.size == 58
    assert view.select(np.arange(58) < 5).size == 5
    assert "SampledMultiRadiusView" in repr(view)


def test_a_records_coin_has_the_public_chance_and_depends_on_nothing_else():
    """Neither on other records nor on how many there are: the rate is not one of the window."""
    points = np.column_stack([np.arange(700.0), np.zeros(700)])
    sizes = []
    for seed in range(60):
        kept = [sampled([points[:m]], seed=seed).view([0]).sample.points[:, 0] for m in (500, 700)]
        assert sorted(kept[0]) == sorted(x for x in kept[1] if x < 500)
        sizes.append(len(kept[1]))
    assert abs(np.mean(sizes) - 300) < 4 * (700 * 3 / 7 * 4 / 7 / 60) ** 0.5
    assert np.std(sizes) > 6
    assert sampled([points], Fraction(1)).view([0]).sample.size == 700


def test_panes_of_a_sample_come_and_go():
    points = np.zeros((50, 2))
    counter = sampled([points])
    counter.add(1, points)
    assert counter.panes == [0, 1]
    assert (counter.size(0), counter.size(2)) == (50, 0)
    counter.drop(0)
    counter.drop(0)
    assert counter.panes == [1]
    assert (counter.view([0]).size, counter.view([0]).sample.size) == (0, 0)
    assert counter.view([0, 1]).size == 50


@pytest.mark.parametrize("rate", [0.5, Fraction(0), Fraction(3, 2)])
def test_bad_rates(rate):
    with pytest.raises(ConfigError, match="rate"):
        SampledMultiRadiusCounts(2, RADII, rate, Noise())
