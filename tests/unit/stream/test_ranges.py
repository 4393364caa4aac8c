"""Which numbers are in range: decided on the lattice, by the same ends for all who need them."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from support.helpers import sample

import fcstream
from fcstream import Config, ConfigError, Engine, Noise, SeededEntropy
from fcstream.counting.rows import rows_inside
from fcstream.formats.batch import Batch
from fcstream.stream.admission import admit
from fcstream.stream.lattice import TRANSFORMS, Feature, Grid, Lattice, exact, multiples

STEPS = (1.0, 0.2, 0.1, 0.01, 0.001)
MAXIMA = [k / 10 for k in range(1, 1001)]


def nearest(value):
    """The double nearest to a rational number, as one operation of a processor gives it."""
    return float(Fraction(value))


def slow_points(cells, feature, step):
    """Lattice numbers of finite cells, every operation by itself in rationals and then rounded once."""
    values = [nearest(Fraction(cell) * Fraction(feature.factor)) for cell in cells]
    if feature.transform != "none":
        values = TRANSFORMS[feature.transform](np.array(values)).tolist()
    found = []
    for value in values:
        shifted = nearest(Fraction(value) - Fraction(feature.origin))
        scaled = nearest(Fraction(shifted) / Fraction(feature.scale))
        found.append(round(Fraction(nearest(Fraction(scaled) / Fraction(step)))))
    return found


def slow_ends(feature, step):
    """The ends as the specification says them: halves outward, and no end short of its own number as a double."""
    found = []
    for value, up in ((feature.minimum, -1), (feature.maximum, 1)):
        changed = Fraction(float(TRANSFORMS[feature.transform](value))) if feature.transform != "none" else exact(value)
        at = (changed - exact(feature.origin)) / (exact(feature.scale) * exact(step))
        cell = nearest(exact(value) / exact(feature.factor))
        plain = Feature("x", *(feature.minimum, feature.maximum, feature.scale, feature.origin, feature.transform))
        own = slow_points([value], plain, step) + slow_points([cell], feature, step)
        found.append(up * max([math.floor(up * at + Fraction(1, 2)), *(up * number for number in own)]))
    return tuple(found)


FEATURES = [
    Feature("plain", 0.0, 3.3),
    Feature("negative", -3.3, -0.3),
    Feature("millivolts", 0.0, 3.3, factor=0.001),
    Feature("turned", -20.5, 3.3, factor=-0.1),
    Feature("scaled", -40.0, 99.9, scale=0.7, origin=21.3),
    Feature("both", -40.0, 99.9, scale=3.0, origin=-0.1, factor=-0.3),
    Feature("logarithm", -0.5, 99.9, 0.3, 1.2, "log1p"),
    Feature("logarithm of tenths", 0.0, 99.9, 1.0, 0.0, "log1p", factor=0.1),
    Feature("sine", -99.9, 33.3, 0.7, -0.1, "asinh", factor=-0.1),
]


@pytest.mark.parametrize("feature", FEATURES, ids=[feature.name for feature in FEATURES])
@pytest.mark.parametrize("step", [0.3, 0.2, 0.1, 0.001])
def test_columns_are_what_rationals_say_one_operation_at_a_time(feature, step):
    grid, rng = Grid(Lattice(step), (feature,)), np.random.default_rng(1)
    low, high = grid.ends(feature)
    assert (low, high) == slow_ends(feature, step)
    ends = sorted(end / feature.factor for end in (feature.minimum, feature.maximum))
    inverse = {"none": np.asarray, "log1p": np.expm1, "asinh": np.sinh}[feature.transform]
    halves = inverse(feature.origin + feature.scale * step * np.array([low - 0.5, low + 0.5, high - 0.5, high + 0.5]))
    near = [np.array([*ends, *(halves / feature.factor).tolist()])]
    for _ in range(3):
        near += [np.nextafter(near[-1], -np.inf), np.nextafter(near[-1], np.inf)]
    cells = [*near, np.linspace(*ends, 200), rng.uniform(ends[0] - 1, ends[1] + 1, 500)]
    column = np.concatenate(cells)
    if feature.transform == "log1p":
        column = column[column * feature.factor > -0.99]
    points, inside = grid.located(column[:, None])
    numbers = slow_points(column.tolist(), feature, step)
    assert points[:, 0].tolist() == numbers
    assert inside[:, 0].tolist() == [low <= number <= high for number in numbers]
    assert {False, True} == set(inside[:, 0].tolist())
    between = (column >= ends[0]) & (column <= ends[1])
    assert inside[between].all()  # rounding is monotone, so what lies between the ends is in range
    if feature.transform == "none" and feature.factor == 1:
        kept = column[inside[:, 0]]
        assert rows_inside(np.ascontiguousarray(column[:, None]), grid)[:, 0].tolist() == kept.tolist()


def test_a_thousand_maxima_are_in_range_however_they_were_computed():
    """Of these as many were refused as here lie above, whatever the step."""
    singles = np.array(MAXIMA, np.float32)
    sums = np.array(list(itertools.accumulate([0.1] * 1000)))
    above = [int((column > MAXIMA).sum()) for column in (singles.astype(np.float64), np.arange(1, 1001) * 0.1, sums)]
    assert above == [402, 352, 591]
    for step in STEPS:
        for k, most in enumerate(MAXIMA):
            if step > most:
                continue
            for feature, cell in (
                (Feature("x", 0.0, most), singles[k : k + 1]),
                (Feature("x", 0.0, most, factor=0.1), np.array([k + 1.0])),
                (Feature("x", 0.0, most), sums[k : k + 1]),
                (Feature("x", -most, 0.0), -singles[k : k + 1]),
                (Feature("x", -most, 0.0, factor=-0.1), np.array([k + 1.0])),
                (Feature("x", -most, 0.0), -sums[k : k + 1]),
            ):
                grid = Grid(Lattice(step), (feature,))
                assert grid.located(cell[:, None])[1].all(), (step, most, feature)


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("most", [99.9, 1e5])
def test_nothing_that_is_not_finite_is_in_range(kind, most):
    """The greatest number of float16 is 65504: what it makes of an end of 100000 is infinite."""
    grid = Grid(Lattice(0.001), (Feature("x", -most, most), Feature("turned", -most, most, factor=-1.0)))
    column = np.array([np.inf, -np.inf, np.nan, 99.9, -99.9, np.finfo(np.float16).max], kind)
    points, inside = grid.located(np.stack([column, column], axis=1))
    assert inside.tolist() == [[x] * 2 for x in (False, False, False, True, True, most == 1e5)]
    if most == 99.9:
        number = 99_875 if kind == np.float16 else 99_900
        assert points[3:5].tolist() == [[number, -number], [-number, number]]
    else:
        assert points[5].tolist() == [65_504_000, -65_504_000]


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_cells_between_the_rounded_ends_are_in_range_and_no_other(kind):
    for feature in (
        Feature("x", 0.1, 99.9),
        Feature("x", 0.01, 9.99, factor=0.1),
        Feature("x", -99.9, -0.1, factor=-1.0),
    ):
        grid = Grid(Lattice(1e-9), (feature,))
        cells = [Fraction(end) for end in ("0.1", "99.9")]
        column = [kind(float(cell)) for cell in cells]
        for toward in (-np.inf, np.inf):
            column += [np.nextafter(column[0], kind(toward)), np.nextafter(column[1], kind(toward))]
        points, inside = grid.located(np.array(column, kind)[:, None])
        assert inside[:, 0].tolist() == [True, True, False, True, True, False]
        low, high = grid.ends(feature)
        rounded = {(float(column[0]) > 0.1): points[0, 0]}, {(float(column[1]) < 99.9): points[1, 0]}
        ends = (low, high) if feature.factor > 0 else (high, low)
        assert rounded[0].get(False, ends[0]) == ends[0]  # what lies beyond an end was moved there
        assert rounded[1].get(False, ends[1]) == ends[1]


SUM = {"kind": "sum", "rho": 1.0, **dict.fromkeys(("method", "radius", "spread", "delta", "size_hint"))}


def rejected(features, cells):
    """Points and reasons of rows of one feature, admitted as a source's records are."""
    job = Config.from_mapping(sample(release=SUM, lattice={"step": 0.001}) | {"features": features}).job
    cells = np.asarray(cells)
    columns = [job.schema.converts(k, cells, None) for k in range(len(features))]
    times = np.full(len(cells), job.schedule.start_ms)
    found = admit(job, Batch(times, np.stack(columns, axis=1), np.arange(len(cells))), None)
    reasons = {each.position: each.reason for each in found.rejections}
    return found.points[:, 0].tolist(), [reasons.get(i) for i in range(len(cells))]


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16])
def test_a_number_that_stands_for_no_value_is_known_as_its_column_holds_it(kind):
    feature = {"name": "a", "min": -0.9999, "max": 99.9, "factor": 0.1, "missing": [-999.9]}
    column = np.array([-999.9, 999.0, 10.0], kind)
    points, reasons = rejected([feature], column)
    assert reasons == ["missing", None, None]
    assert points[1:] == [99_900, 1_000]
    feature |= {"missing": [-1000.0]}
    assert rejected([feature], column)[1][0] == ("missing" if kind == np.float16 else "out_of_range")


def test_a_number_that_stands_for_no_value_is_no_lattice_number():
    feature = {"name": "a", "min": -10.0, "max": 10.0, "missing": [-1.0]}
    assert rejected([feature], [-1.0, -1.0000001, -0.9999999])[1] == ["missing", None, None]
    feature |= {"missing": [16_777_217.0], "max": 2e7}
    assert rejected([feature], [16_777_217.0, 16_777_216.0])[1] == ["missing", None]  # equal in single precision


def test_millivolts_are_volts_up_to_the_last():
    feature = {"name": "a", "min": 0.0, "max": 3.3, "factor": 0.001}
    points, reasons = rejected([feature], [3299.0, 3300.0, 3300.49, 3300.51, -0.49, -0.51])
    assert reasons == [None, None, None, "out_of_range", None, "out_of_range"]
    assert points[:3] == [3299, 3300, 3300]


def test_a_step_wider_than_a_range_is_refused_for_every_kind_in_the_same_words():
    for low, high, scale, transform in ((0.4, 0.6, 1.0, "none"), (0.0, 30.0, 200.0, "none"), (0.0, 0.3, 1.0, "log1p")):
        with pytest.raises(
            ConfigError, match=r"^lattice\.step: must be smaller: the range \[.*\] of 'x' is narrower than"
        ):
            Grid(Lattice(0.3), (Feature("x", low, high, scale, 0.0, transform),))
    assert Grid(Lattice(0.3), (Feature("x", 0.0, 0.3),)).ends(Feature("x", 0.0, 0.3)) == (0, 1)
    with pytest.raises(ConfigError, match=r"range \[0, 1\] of 'c' is narrower than a step of 2"):
        Grid(Lattice(2.0), (Feature("c", 0.0, 3.0, levels=("a", "b", "c", "d")),))


def test_whole_and_half_steps_are_printed_as_the_decimals_they_are():
    for step, scale, origin in ((0.1, 1.0, 0.0), (0.001, 0.3, 0.1), (1e-7, 1 / 3, -7.7), (0.1, 1e15, 1e15)):
        numbers = np.concatenate([np.arange(-50, 50) / 2, np.random.default_rng(0).integers(-(2**40), 2**40, 100)])
        found = multiples(numbers, step, scale, origin)
        wanted = [float(exact(origin) + exact(scale) * exact(step) * Fraction(x)) for x in numbers.tolist()]
        assert found.tolist() == wanted
    assert multiples([3.0, -1.5, 0.3, math.nan], 0.1).tolist()[:3] == [0.3, -0.15, 0.3 * 0.1]
    assert str(multiples([-0.0], 0.1)[0]) == "0.0"


def test_values_never_leave_the_public_range():
    feature = Feature("x", 0.25, 2.25)
    grid = Grid(Lattice(0.5), (feature, Feature("y", 0.0, 0.3, scale=0.2, origin=0.1, transform="asinh")))
    assert grid.ends(feature) == (0, 5)  # 0 and 2.5: halves are rounded outward
    assert grid.values([[0.0, -1e9], [5.0, 1e9]]) == [[0.25, 0.0], [2.25, float(np.arcsinh(0.3))]]
    assert grid.column(feature, [0, 5]).tolist() == [0.25, 2.25]
    assert math.isnan(grid.values([math.nan, 0.0])[0])


# -- columns of single precision, wherever they come from ----------------------------------------------------------

HUMIDITY = {"name": "a", "min": 0.0, "max": 99.9, "missing": [-999.9]}
CELLS = [99.9, -999.9, 50.0, 99.8]


def engine_of(**changes):
    release = SUM | {"kind": "quantiles", "quantiles": [0.5], "rho": 400.0}
    sections = {"release": release, "lattice": {"step": 0.0000001}, "budget": {"rho": 800.0}} | changes
    config = sample(window={"end": "1970-01-01T00:00:10Z", "clock": "eof"}, **sections)
    return Engine(Config.from_mapping(config | {"features": [HUMIDITY]}), noise=Noise(SeededEntropy(1)))


def frames_of(column):
    """Tables of every library with one column, and what it is in this machine's numbers."""
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    times, cells = [1000] * len(column), [None if x != x else float(x) for x in column]
    kind = column.dtype.name
    yield pd.DataFrame({"ts_ms": times, "a": column})
    yield pd.DataFrame({"ts_ms": times, "a": pd.array(column, dtype=kind)})
    if kind != "float16":
        yield pd.DataFrame({"ts_ms": times, "a": pd.array(column, dtype=kind.capitalize())})
        yield pl.DataFrame({"ts_ms": times, "a": cells}, schema_overrides={"a": getattr(pl, kind.capitalize())})
        yield pd.DataFrame(
            {"ts_ms": times, "a": pd.array(cells, dtype=pd.ArrowDtype(getattr(pa, kind)()))},
        )
    yield pa.table({"ts_ms": times, "a": pa.array(column)})


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("has_null", [False, True])
def test_frames_of_all_libraries_hold_their_maximum_and_what_stands_for_no_value(kind, has_null):
    column = np.array([*CELLS, *([math.nan] if has_null else [])], kind)
    for frame in frames_of(column):
        engine = engine_of()
        engine.push(frame)
        missing = 1 + has_null
        found = dict(engine.rejected)
        assert found.pop("missing", 0) + found.pop("not_finite", 0) == missing, (type(frame), engine.rejected)
        assert not found, type(frame)


def test_the_type_of_a_frame_is_that_of_the_first_of_a_run():
    """Libraries choose it by the values: one record of a later frame would decide which others are in range."""
    import pandas as pd

    single, double = (pd.DataFrame({"ts_ms": [1000], "a": np.array([99.9], np.float32).astype(kind)})
                      for kind in (np.float32, np.float64))  # fmt: skip
    for first, second, rejected in ((single, double, {}), (double, single, {"out_of_range": 2})):
        engine = engine_of()
        engine.push(first)
        engine.push(second)
        assert engine.rejected == rejected


def test_arrays_of_single_precision_hold_their_maximum():
    column = np.full((1000, 1), 99.9, np.float32)
    engine = engine_of()
    engine.push(np.full(1000, 1000), column)
    assert engine.rejected == {}
    for given in (column, np.ma.array(column), column.astype(np.float16)):
        found = fcstream.private_sum(given, bounds=(0, 99.9), rho=1e4, step=1e-7)
        assert found.left_out == {}
        assert found.value[0] == pytest.approx(99_900 if given.dtype == np.float32 else 99_875, rel=1e-4)
    found = fcstream.private_histogram(np.full(1000, 0.1 + 0.2), edges=[0.1], rho=1e4, step=0.1, bounds=(0, 0.3))
    assert found.value == pytest.approx([0, 1000], abs=1)
    pairs = np.full((1000, 2), 99.9, np.float32)
    for answer in (
        fcstream.private_covariance(pairs, bounds=(0, 99.9), rho=1, size_hint=1000, step=1e-4),
        fcstream.private_centers(column, 1, bounds=(0, 99.9), rho=10, step=1e-4, method="tree"),
    ):
        assert answer.left_out == {}
    with pytest.raises(ConfigError, match=r"^step: must be smaller: the range"):
        fcstream.private_centers(column, 1, bounds=(0, 0.3), rho=10, step=1.0, method="tree")


def test_one_row_of_another_type_does_not_decide_which_others_count():
    """A list states no type: that of all its rows together would depend on each of them."""
    from fcstream.arrays.estimators import PrivateMean

    singles, beyond = [np.full(1, 99.9, np.float32)] * 1000, {"out_of_range": 1000}
    for one in (np.zeros(1, np.float32), np.zeros(1)):
        rows, told = [*singles, one], {"bounds": (0, 99.9), "step": 1e-6}
        assert fcstream.private_sum(rows, rho=1e4, **told).left_out == beyond
        fitted = PrivateMean(radius=10, rho=1, size_hint=1000, **told).fit(rows)
        assert fitted.answer_.left_out == beyond
