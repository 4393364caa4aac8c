"""Points of raw rows, and released points in the units of their features."""

from fractions import Fraction

import numpy as np
import pytest

from fcstream._kernels import rows as kernels
from fcstream.counting.rows import RowsView, points_inside, rows_inside
from fcstream.stream.lattice import Feature, Grid, Lattice, exact


def test_rows_are_the_values_of_each_point_clipped_to_the_public_ranges():
    features = (Feature("a", -3.0, 4.0), Feature("b", 0.0, 9.0, transform="log1p", scale=0.3, origin=1.2))
    grid = Grid(Lattice(0.001), features)
    steps = np.rint(np.random.default_rng(1).normal(size=(500, 2)) * 5000) + 0.5
    ends = [(-3.0, 4.0), (0.0, float(np.log1p(9.0)))]
    found = [[min(max(x, a), b) for x, (a, b) in zip(grid.in_units(row).tolist(), ends, strict=True)] for row in steps]
    assert grid.values(steps) == found == [grid.values(row) for row in steps]
    assert {-3.0, 4.0} < {row[0] for row in found}


def one_by_one(raw, grid):
    """Each column by itself, as the specification says it."""
    columns = []
    for k, feature in enumerate(grid.features):
        changed = {"none": lambda x: x, "log1p": np.log1p, "asinh": np.arcsinh}[feature.transform](raw[:, k])
        columns.append(np.rint((changed - feature.origin) / feature.scale / grid.lattice.step))
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("n", [0, 1, 999, 1000, 20_000])
@pytest.mark.parametrize("order", ["C", "F"])
def test_points_are_each_feature_transformed_shifted_divided_and_rounded(n, order):
    raw = np.array(np.random.default_rng(n).uniform(-0.9, 50, (n, 3)), order=order)
    for features in (
        (Feature("a", -1.0, 60.0), Feature("b", -1.0, 60.0), Feature("c", -1.0, 60.0)),
        (Feature("a", -1.0, 60.0, origin=7.3), Feature("b", -0.95, 60.0, 0.3, 1.2, "log1p"), Feature("c", -1.0, 60.0)),
        (Feature("a", -1.0, 60.0, 0.7), Feature("b", -1.0, 60.0, 3.0, 0.1, "asinh"), Feature("c", -1.0, 60.0, 0.01)),
    ):
        grid, before = Grid(Lattice(0.001), features), raw.copy()
        assert grid.points(raw).tobytes() == one_by_one(raw, grid).tobytes()  # zeros keep their signs
        assert (raw == before).all()


def test_rows_without_features_are_points_too():
    assert Grid(Lattice(0.001), ()).points(np.empty((5, 0))).shape == (5, 0)


@pytest.mark.parametrize("d", [1, 3, 8])
def test_points_in_tiles_are_those_of_the_grid(d):
    raw = np.random.default_rng(d).uniform(-50, 50, (1100, d))
    raw[::9], raw[1::9] = -0.0, 0.0005
    for scale, origin in ((1.0, 0.0), (0.7, 3.1)):
        grid = Grid(Lattice(0.001), tuple(Feature(f"x{k}", -60.0, 60.0, scale, origin) for k in range(d)))
        view, found = RowsView(raw, grid), []
        for tiles, lanes in view.in_tiles():
            lane_points = tiles.transpose(0, 2, 1).reshape(-1, d)
            found.append(lane_points[lanes])
            assert np.isinf(lane_points[len(lanes) :]).all()
        assert np.concatenate(found).tobytes() == one_by_one(raw, grid).tobytes()
        assert view.points_at(np.array([3, 700])).tobytes() == one_by_one(raw[[3, 700]], grid).tobytes()
    assert list(RowsView(raw[:0], grid).in_tiles()) == []


def test_rows_are_left_out_one_by_one():
    raw = np.random.default_rng(0).uniform(-2.0, 2.0, (300, 9))
    grid = Grid(Lattice(0.01), tuple(Feature(f"x{k}", -2.0, 2.0) for k in range(9)))
    assert rows_inside(raw, grid) is raw
    raw[3, 2], raw[7, 8], raw[11, 0], raw[12, 5], raw[13, 1] = np.nan, 2.0049, -2.0, 2.0051, -np.inf
    kept = rows_inside(raw, grid)
    assert kept.tolist() == [row for row in raw.tolist() if all(abs(x) <= 2.005 for x in row)]
    fixed = raw.copy(order="F")
    fixed.flags.writeable = False
    assert rows_inside(fixed, grid).tolist() == kept.tolist()
    assert points_inside(fixed, grid).tolist() == grid.points(kept).tolist()
    assert kernels.mark_inside(raw[:0], *np.zeros((2, 9)), np.empty(0, bool)) == 0


def test_a_number_is_what_it_was_written_as_whatever_was_read_before():
    for _ in range(2):
        assert exact(2.0**60) == 1_152_921_504_606_847_000  # its shortest digits
        assert exact(2**60) == 2**60
        assert exact("0.1") == exact(0.1) == Fraction(1, 10)
