"""Clusters and mixtures by a tree are those of their slow twins, to the last draw and the last stage that is paid."""

import numpy as np
import pytest
from support import naive_parts
from support.windows import view_of

from fcstream import Noise, SeededEntropy
from fcstream.accounting.losses import PrivacyLoss
from fcstream.releases.clusters.tree_centers import PublicBall, TreeClustering
from fcstream.releases.clusters.tree_mixtures import TreeMixture
from fcstream.releases.trees.growing import PublicBox

MIXED = [*range(100, 122), 212, 283]
"""Seeds of windows of mixtures; those of the last two overlap."""


def drawn(seed):
    """A mechanism's numbers and a window: one to three features, lumps of unequal width, some records far away."""
    random = np.random.default_rng(seed)
    d, lumps = int(random.integers(1, 4)), int(random.integers(1, 4))
    size = int(random.choice([9, 120, 700]))
    wide = int(10 ** random.uniform(2, 9))
    middles = random.uniform(-0.8 * wide, 0.8 * wide, (lumps, d))
    deviations = wide * 10 ** random.uniform(-2, -0.5, lumps)
    which = random.integers(0, lumps, size)
    rows = np.rint(middles[which] + random.normal(0, 1, (size, d)) * deviations[which, None])
    rows[random.random(size) < 0.03] *= 5
    box = PublicBox((-wide,) * d, (wide,) * d)
    ball = PublicBall((wide // 5,) * d, int((1.2 * wide) ** 2)) if random.random() < 0.5 else None
    k = [None, 1, 2, 3, 7][int(random.integers(5))]
    return int(10 ** random.uniform(7.5, 9.3)), k, box, ball, rows


def same(found, wanted):
    """Numbers of the twin but for the order in which doubles were added up."""
    np.testing.assert_allclose(
        np.asarray(found, float), np.asarray(wanted, float), rtol=1e-9, atol=1e-6, equal_nan=True
    )


@pytest.mark.parametrize("seed", range(24))
def test_centers_of_a_tree_are_those_of_the_slow_twin(seed):
    nano, k, box, ball, rows = drawn(seed)
    mechanism, paid, owed = TreeClustering(nano, k, box, ball), [], []
    found = mechanism.find(rows.copy(), Noise(SeededEntropy(seed)), paid.append)
    twin = naive_parts.centers_of(mechanism, rows.astype(int).tolist(), Noise(SeededEntropy(seed)), owed.append)
    assert paid == owed
    assert sum(paid, PrivacyLoss()).fits(PrivacyLoss(nano))
    if twin is None:
        assert found.reason == "too_few"
        return
    assert found.counts.tolist() == [count for _, _, count in twin]
    same(found.centers, [center for center, _, _ in twin])
    same(found.sigma, [wide for _, wide, _ in twin])


@pytest.mark.parametrize("seed", MIXED)
def test_mixtures_of_a_tree_are_those_of_the_slow_twin(seed):
    nano, k, box, ball, rows = drawn(seed)
    mechanism, paid, owed = TreeMixture(nano, k, box, ball), [], []
    found = mechanism.find(view_of(rows), Noise(SeededEntropy(seed)), paid.append)
    twin = naive_parts.mixture_of(mechanism, rows.astype(int).tolist(), Noise(SeededEntropy(seed)), owed.append)
    assert paid == owed
    assert sum(paid, PrivacyLoss()).fits(PrivacyLoss(nano))
    if twin is None:
        assert found.reason == "too_few"
        return
    parts, weights = twin
    assert found.counts.tolist() == [part[0] for part in parts]
    same(found.means, [part[1] for part in parts])
    if weights is None:
        assert found.shares is None
        for own, part in zip(found.covariance_sigma, parts, strict=True):
            same(own, part[4])
    else:
        same(found.shares, weights)
    scale = max(np.abs([part[3] for part in parts]).max(), 1.0)
    same(found.covariances / scale, np.array([part[3] for part in parts]) / scale)


def test_the_windows_above_are_of_all_sorts():
    """Refusals, centers that stay, several parts, balls, fits and chosen numbers of clusters: none is there in vain."""
    seen = set()
    for seed in range(24):
        nano, k, box, ball, rows = drawn(seed)
        found = TreeClustering(nano, k, box, ball).find(rows.copy(), Noise(SeededEntropy(seed)), lambda loss: None)
        seen |= {found.reason, ball is None, k is None}
        if found.reason is None:
            seen |= {
                "one" if len(found.centers) == 1 else "several",
                "stays" if np.isnan(found.sigma).any() else "moves",
            }
    for seed in MIXED:
        nano, k, box, ball, rows = drawn(seed)
        found = TreeMixture(nano, k, box, ball).find(view_of(rows), Noise(SeededEntropy(seed)), lambda loss: None)
        seen |= {f"mixture {found.reason}", "fitted" if found.shares is not None else "told"}
    assert seen >= {None, "too_few", True, False, "one", "several", "stays", "moves"}
    assert seen >= {"mixture None", "mixture too_few", "fitted", "told"}
