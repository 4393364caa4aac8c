"""Points with `method = "auto"`: which method is taken, what the plan says of it, and whether predictions hold."""

import math

import numpy as np
import pytest
from support.helpers import sample

import fcstream
from fcstream import Engine, Noise, SeededEntropy
from fcstream.accounting.losses import PrivacyLoss
from fcstream.config import Config
from fcstream.errors import ConfigError
from fcstream.planning.plan import plan
from fcstream.releases.options import BuildContext
from fcstream.releases.record_gate import GatedMechanism
from fcstream.releases.tables.points import Points, PointsOptions
from fcstream.releases.trees.automatic import AutoPointsOptions, compare
from fcstream.releases.trees.drawn import TreePoints
from fcstream.releases.trees.growing import PublicBox
from fcstream.stream.lattice import Feature, Grid, Lattice
from fcstream.synthetic.convex import REACH, ConvexSet

BARE = dict.fromkeys(("method", "radius", "spread", "delta", "size_hint"))


def config(ranges=((-1.0, 1.0),) * 2, **changes):
    release = {**BARE, "kind": "points", "rho": 0.1} | changes
    found = sample(release=release, window={"end": "1970-01-01T00:00:10Z"}, budget={"rho": 9.0, "delta": 1e-6})
    features = [{"name": f"x{j}", "min": low, "max": high} for j, (low, high) in enumerate(ranges)]
    return found | {"features": features, "lattice": {"step": 1e-4}}


def taken(**changes):
    """The mechanism that is taken, and why."""
    answer = Config.from_mapping(config(**changes)).job.answers[0]
    mechanism = answer.mechanism
    return mechanism.inner if isinstance(mechanism, GatedMechanism) else mechanism, answer.why


@pytest.mark.parametrize(
    ("changes", "mechanism", "why"),
    [
        ({"set": "ball", "center": [0.0, 0.0], "radius": 1.0}, Points, "`cells`: `release.set` belongs to them"),
        ({"set": "simplex", "total": 1.0}, Points, "`cells`: `release.set` belongs to them"),
        ({"rows": 50}, TreePoints, "`tree`: `release.rows` belongs to it"),
        ({}, TreePoints, "`tree`: without `release.size_hint` nothing is predicted, and "),
    ],
)
def test_a_key_of_one_method_asks_for_it(changes, mechanism, why):
    found, said = taken(**changes)
    assert isinstance(found, mechanism)
    assert said.startswith(f"`auto` takes {why}")


def test_a_method_that_is_named_is_taken_without_a_word():
    assert [(type(found), said) for found, said in (taken(method="cells"), taken(method="tree"))] == [
        (Points, ""),
        (TreePoints, ""),
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"set": "simplex", "total": 1.0, "rows": 50}, r"release\.rows: belongs to method 'tree', and `release.set`"),
        ({"method": "cells", "rows": 50}, r"release\.rows: belongs to method 'tree', and what is asked for is 'cells'"),
        ({"method": "tree", "set": "box"}, r"release\.set: belongs to method 'auto' or 'cells', not to 'tree'"),
        ({"set": "ball"}, r"release\.center: must be given"),
        ({"size_hint": 0}, r"release\.size_hint"),
        ({"size_hint": 1000, "rho": 1e-7}, r"release\.rho"),
        ({"rows": 0}, r"release\.rows"),
    ],
)
def test_what_cannot_be_meant_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        taken(**changes)


def test_the_smaller_predicted_distance_decides():
    for changes, method, other, mechanism in (
        ({"size_hint": 5000}, "tree", "cells", TreePoints),
        ({"size_hint": 300, "ranges": ((-1.0, 1.0),) * 16}, "cells", "tree", Points),
    ):
        found, why = taken(**changes)
        assert isinstance(found, mechanism)
        assert why.startswith(f"`auto` takes `{method}`: its points are predicted to lie 0.0")
        assert f"from the records, with `{other}` 0." in why
        assert taken(**changes) == (found, why)
        assert why in plan(Config.from_mapping(config(**changes))).notes


def test_where_only_one_releases_it_is_taken():
    mechanism, why = taken(size_hint=60, ranges=((-1.0, 1.0),) * 16)
    assert isinstance(mechanism, Points)
    assert why.startswith("`auto` takes `cells`: 60 records release with probability ")
    assert why.endswith("by `tree` 23.4%")


def test_where_a_tree_cannot_draw_its_noise_cells_are_taken():
    features = tuple(Feature(f"x{j}", -1.0, 1.0) for j in range(1000))
    options = AutoPointsOptions(rho=1e-5, size_hint=10**6)
    found, why = options.chosen(BuildContext(Grid(Lattice(1e-4), features)))
    assert isinstance(found, PointsOptions)
    assert why.startswith("`auto` takes `cells`: for `tree` release.rho must be larger")


@pytest.mark.parametrize("changes", [{"size_hint": 5000}, {"size_hint": 300, "ranges": ((-1.0, 1.0),) * 16}])
def test_a_window_is_what_the_method_that_is_taken_makes_of_it(changes):
    method = "tree" if changes["size_hint"] == 5000 else "cells"
    rows = np.random.default_rng(3).normal(0, 0.1, (5000, len(changes.get("ranges", "ab"))))
    found = []
    for named in ({}, {"method": method}):
        engine = Engine(config(**changes, **named), noise=Noise(SeededEntropy(5)))
        engine.push(np.full(len(rows), 1000), rows)
        (release,) = engine.close()
        found.append((release.value, release.parts, release.spent))
    assert found[0] == found[1]
    assert found[0][0] is not None


def test_a_limit_of_records_goes_before_what_is_taken():
    release = {"size_hint": 5000, "delta": 1e-9}
    mechanism = Config.from_mapping(config(**release)).job.answers[0].mechanism
    assert isinstance(mechanism, GatedMechanism)
    assert isinstance(mechanism.inner, TreePoints)


def test_arrays_take_the_same():
    rows = np.random.default_rng(1).normal(0, 0.1, (300, 16))
    known = {"rho": 0.1, "step": 1e-4, "bounds": (-1, 1)}
    found = {
        name: fcstream.private_points(rows, **known, **more, noise=Noise(SeededEntropy(1))).value
        for name, more in {
            "auto": {"size_hint": 300},
            "cells": {"method": "cells"},
            "unknown": {},
            "tree": {"method": "tree"},
        }.items()
    }
    assert found["auto"] == found["cells"] != found["tree"] == found["unknown"]
    with pytest.raises(ConfigError, match="size_hint"):
        fcstream.private_points(rows, **known, size_hint=0)


# -- predictions -----------------------------------------------------------------------------------------------------


def both(d, rho, wide=(1.0,)):
    """Mechanisms of both methods, for ranges of a million steps times `wide`."""
    halves = [round(500_000 * wide[j % len(wide)]) for j in range(d)]
    low, high = [-half for half in halves], halves
    region = ConvexSet(
        "box", (0,) * d, math.ceil(math.hypot(*halves)) + 1, tuple(map(float, low)), tuple(map(float, high))
    )
    return TreePoints(PrivacyLoss.charge(rho), PublicBox(tuple(low), tuple(high))), Points(
        PrivacyLoss.charge(rho), region
    )


def slow(d, rho, size, wide=(1.0,)):
    """Both predictions from the words of the specification."""
    widths = [wide[j % len(wide)] for j in range(d)]
    rho_c, rho_p, levels = 0.7 * rho, 0.3 * rho, min(48, max(16, 8 * d)) + 1
    counts = rho_c * (7 / 8 if d > 8 else 1)
    divided, start, power, floor = 6 * math.sqrt(levels / (2 * counts)), 0.06 * d**0.25, 0.6, 0.0
    if d > 8:
        floor = 0.5 * math.sqrt(math.sqrt(8 * d / rho_c) / size)
        divided = max(divided, 6 * sum(widths) / math.sqrt(rho_p * sum(w * w for w in widths)))
        start, power = 0.045, 0.25
    shape = 0.4 * max(0.0, floor - 0.12) + start / max(1.0, size / divided) ** power
    moved = [min(1.0, math.sqrt(sum(widths) / w / rho_p) / min(divided, size)) for w in widths]
    tree = shape * math.sqrt(sum(1 + x * x for x in moved) / d)
    noise = 1 / math.sqrt(2 * 0.7 * rho * math.sqrt(d) / (1 + math.sqrt(d))) / size
    parts = [noise * math.hypot(*widths) / w / math.sqrt(d) for w in widths]
    return tree, 0.22 * math.sqrt(sum(x**0.6 for x in parts) / d)


@pytest.mark.parametrize(
    ("d", "rho", "size", "wide"),
    [(2, 0.1, 1000, (1.0,)), (5, 1.0, 90, (1.0, 0.01)), (16, 0.1, 400, (1.0,)), (64, 0.02, 5000, (1.0, 0.2, 0.003))],
)
def test_predictions_are_those_of_the_specification(d, rho, size, wide):
    found = compare(*both(d, rho, wide), size)
    assert (found.tree, found.cells) == pytest.approx(slow(d, rho, size, wide), rel=1e-3)


def test_features_of_one_value_count_for_nothing():
    tree, cells = both(2, 0.1)
    flat = PublicBox((*tree.box.low, 7), (*tree.box.high, 7))
    region = ConvexSet("box", (0, 0, 7), cells.region.radius, (*cells.region.low, 7.0), (*cells.region.high, 7.0))
    found = compare(TreePoints(tree.loss, flat), Points(cells.loss, region), 1000)
    assert found.cells == pytest.approx(compare(tree, cells, 1000).cells, rel=0.1)
    nothing = ConvexSet("box", (7,), 1, (7.0,), (7.0,))
    alone = compare(TreePoints(tree.loss, PublicBox((7,), (7,))), Points(cells.loss, nothing), 1000)
    assert (alone.tree, alone.cells) == (0.0, 0.0)
    assert REACH * nothing.unit == 1


MEASURED = [  # docs/benchmarks/synthetic.md: features, records, rho, distances of `tree` and of `cells`
    *((2, 1000, 0.1, 0.0129, 0.0322), (2, 1000, 1.0, 0.0080, 0.0240)),
    *((2, 20_640, 0.1, 0.0041, 0.0180), (2, 20_640, 1.0, 0.0049, 0.0174)),
    *((2, 1000, 0.1, 0.0157, 0.0354), (2, 1000, 1.0, 0.0068, 0.0277)),
    *((2, 85_550, 0.1, 0.0020, 0.0231), (2, 85_550, 1.0, 0.0014, 0.0230)),
    *((5, 1000, 0.1, 0.0296, 0.0450), (5, 1000, 1.0, 0.0135, 0.0364)),
    *((5, 33_024, 0.1, 0.0058, 0.0276), (5, 33_024, 1.0, 0.0029, 0.0273)),
    *((16, 1000, 0.1, 0.0252, 0.0288), (16, 1000, 1.0, 0.0141, 0.0170)),
    *((16, 6649, 0.1, 0.0085, 0.0188), (16, 6649, 1.0, 0.0048, 0.0150)),
    # the same sensors by asinh: at rho = 0.1 1,000 of them are nearer by cells, which no public number tells
    *((16, 1000, 1.0, 0.0184, 0.0190), (16, 6680, 0.1, 0.0111, 0.0176), (16, 6680, 1.0, 0.0066, 0.0153)),
    *((64, 1797, 0.1, 0.0408, 0.1635), (64, 1797, 1.0, 0.0288, 0.1114)),
    # small windows, measured beside those of the table
    *((8, 300, 0.01, 0.1594, 0.0839), (8, 300, 0.01, 0.1158, 0.0724), (16, 300, 0.01, 0.1519, 0.0955)),
]


@pytest.mark.parametrize(("d", "size", "rho", "tree", "cells"), MEASURED)
def test_what_is_taken_was_nearer_on_real_data(d, size, rho, tree, cells):
    found = compare(*both(d, rho), size)
    assert (found.tree < found.cells) == (tree < cells)
    assert 1 / 6 < found.tree / tree < 6
    assert 1 / 6 < found.cells / cells < 6
