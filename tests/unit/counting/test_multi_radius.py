"""Counts for many radii at once."""

import numpy as np
import pytest
from support import naive

from fcstream.counting import multi_radius
from fcstream.counting.multi_radius import LadderCounts
from fcstream.errors import ConfigError


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 2, 5, 16])
@pytest.mark.parametrize("reach", [1, 2, 3])
def test_multi_radius_counts_equal_the_naive_twin_after_every_step(d, reach, monkeypatch):
    monkeypatch.setattr(multi_radius, "_MIN_STAGED", 5)
    monkeypatch.setattr(multi_radius, "_WORK", 2000)
    rng = np.random.default_rng(d)
    radii = sorted({round((3 * 1.5**k) ** 2) for k in range(16)} | {1, 2, 2**53 - 1})
    counter, held = LadderCounts(d, radii, reach), {}
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
    counter = LadderCounts(2, [24, 25, 26])
    counter.add(0, np.array([[0.0, 0.0], [3.0, 4.0]]))
    assert counter.view([0]).counts.tolist() == [[1, 1], [2, 2], [2, 2]]
    assert counter.view([0]).pairs.tolist() == [2, 4, 4]
    assert counter.view([1]).counts.shape == (3, 0)


@pytest.mark.parametrize("radii", [[], [0], [4, 4], [9, 4], [2**53], range(1, 300)])
def test_bad_radii(radii):
    with pytest.raises(ConfigError, match="radii_squared"):
        LadderCounts(2, radii)
