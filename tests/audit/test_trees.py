"""Trees of neighbors that differ in one record: down a whole path of boxes, and at the corner of a leaf."""

import numpy as np
import pytest
from support.audits import epsilon_lower_bound, rho_lower_bound

from fcstream import Noise, SeededEntropy
from fcstream.accounting.losses import epsilon_tight
from fcstream.releases.clusters.tree_centers import TreeClustering
from fcstream.releases.trees.growing import PublicBox, TreeMechanism

RUNS = 1500
CASES = {  # the box, the records that both have, and the one that only the second has
    "a whole path": (PublicBox((0,), (15,)), [[3.0]] * 60, [3.0]),
    "a leaf's corner": (PublicBox((0, 0), (1000, 1000)), [[750.0, 500.0]] * 25, [1000.0, 1000.0]),
    "a box of its own": (PublicBox((0,), (15,)), [[3.0]] * 60, [12.0]),
}


def outcomes(name, more, seed):
    """What a tree tells: all counts in one number, the sums of a leaf, and what tells both apart best (runs, 6)."""
    box, records, extra = CASES[name]
    mechanism, noise, rows = TreeMechanism(box, 3 * 10**8, 2 * 10**8), Noise(SeededEntropy(seed)), []
    points = np.array([*records, extra] if more else records)
    for _ in range(RUNS):
        tree, root = mechanism.release(points.copy(), noise, lambda loss: None)
        row = [root, np.nan, np.nan, np.nan, np.nan, np.nan]
        if tree is not None:
            # What is known about the number of records in the box of the one that differs, which all its path tells.
            way = int(np.flatnonzero((tree.low <= extra).all(axis=1) & (tree.high >= extra).all(axis=1)).sum())
            leaf = tree.leaves[way] if len(tree.leaves) else 0
            middle = (tree.low[way] + tree.high[way]) // 2
            reach = tree.high[way] - middle
            offsets = (tree.points[way] - middle) * max(tree.counts[leaf], 1.0)
            best = offsets.sum() / max(1, reach.sum()) * 2 * 10**8 / 10**9 + tree.counts[0] / tree.variances[0]
            row[1:] = [tree.counts[0], tree.counts[leaf], offsets[0], len(tree.leaves), best]
        rows.append(row)
    return np.array(rows, float), mechanism.loss.rho


@pytest.mark.parametrize("name", CASES)
def test_neighbors_stay_below_the_claim(name):
    (one, rho), (two, _) = outcomes(name, False, 1), outcomes(name, True, 2)
    for delta in (1e-3, 0.02, 0.1, 0.2):
        assert epsilon_lower_bound(one, two, delta) <= epsilon_tight(rho, delta)
    shown = rho_lower_bound(np.nan_to_num(one), np.nan_to_num(two))
    # What all draws of a path tell together is seen: with a fifth of the claim it would have complained.
    assert (rho / 5 if name == "a whole path" else 0) <= shown <= rho


def test_centers_of_a_tree_stay_below_the_claim():
    """The record that differs lies at the far end of a center's ball, so that it moves everything that is drawn."""
    mechanism, rows = TreeClustering(10**9, 1, PublicBox((0, 0), (1000, 1000))), []
    for points, seed in (([[300.0, 300.0]] * 90, 5), ([[300.0, 300.0]] * 90 + [[999.0, 999.0]], 6)):
        noise, out = Noise(SeededEntropy(seed)), []
        for _ in range(RUNS // 2):
            found = mechanism.find(np.array(points), noise, lambda loss: None)
            center = found.centers.sum()
            out.append([center, found.counts[0], (center - 600) * found.counts[0]])
        rows.append(np.array(out))
    for delta in (0.02, 0.1):
        assert epsilon_lower_bound(*rows, delta) <= epsilon_tight(1.0, delta)
