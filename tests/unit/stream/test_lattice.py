"""Released points in the units of their features."""

import numpy as np

from fcstream.stream.lattice import Feature, Grid, Lattice


def test_rows_are_the_values_of_each_point_clipped_to_the_public_ranges():
    features = (Feature("a", -3.0, 4.0), Feature("b", 0.0, 9.0, transform="log1p", scale=0.3, origin=1.2))
    grid = Grid(Lattice(0.001), features)
    steps = np.rint(np.random.default_rng(1).normal(size=(500, 2)) * 5000) + 0.5
    one_by_one = [[f.inside(x) for x, f in zip(grid.values(row), features, strict=True)] for row in steps]
    assert grid.rows_inside(steps) == one_by_one
    assert {-3.0, 4.0} < {row[0] for row in one_by_one}
