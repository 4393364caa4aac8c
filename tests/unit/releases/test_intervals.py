"""Intervals hold what they say, by the definition of the noise and by draws."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from support.helpers import sample

import fcstream
from fcstream import Engine, Noise, Release, SeededEntropy
from fcstream.releases.base import ReleaseValues
from fcstream.releases.intervals import count_half_width, interval_of, with_intervals
from fcstream.releases.reasons import NO_INTERVAL
from fcstream.releases.shape import SHAPES, ResultShape

BARE = {"method": None, "radius": None, "spread": None, "delta": None, "size_hint": None}


def naive_half_width(sigma):
    """By the definition, number by number."""
    weight = {x: math.exp(-(x * x) / (2 * sigma * sigma)) for x in range(-int(12 * sigma) - 2, int(12 * sigma) + 3)}
    total = math.fsum(weight.values())
    k = 0
    while math.fsum(w for x, w in weight.items() if abs(x) <= k) < 0.95 * total:
        k += 1
    return k


@pytest.mark.parametrize("sigma", [0.05, 0.3, 0.5, 0.51, 0.7, 1.0, 1.5, 2.236, 3.3, 10.0, 31.6, 77.7])
def test_widths_of_counts_are_those_of_the_slow_twin(sigma):
    assert count_half_width(sigma) == naive_half_width(sigma)


def test_wide_noise_of_counts_is_nearly_normal():
    for sigma in (300.0, 999.9, 1000.1, 1e6):
        assert count_half_width(sigma) == pytest.approx(1.96 * sigma, abs=1.5)
    assert count_half_width(0.0) == 0


def test_they_are_nested_like_the_value():
    assert interval_of("normal", [1.0, -2.0], [0.5, 0.0]) == [[1 - 0.98, 1 + 0.98], [-2.0, -2.0]]
    assert interval_of("normal", [[1.0, 2.0], [3.0, 4.0]], [[1.0, None], None]) == [
        [[1 - 1.96, 1 + 1.96], None],
        None,
    ]
    assert interval_of("count", [7], [1.0]) == [[5, 9]]
    assert interval_of("normal", [math.inf, True, "x", 1.0], [1.0, 1.0, 1.0, math.nan]) == [None] * 4
    assert interval_of("normal", [1.0, 2.0], [1.0]) == [[1 - 1.96, 1 + 1.96], None]
    assert interval_of("normal", None, None) is interval_of("normal", [1.0], None) is None


@pytest.mark.parametrize(
    "release",
    [
        {"kind": "count", "rho": 0.02},
        {"kind": "count", "rho": 2.0},
        {"kind": "histogram", "feature": "a", "edges": [0.0, 20.0], "rho": 0.1},
        {"kind": "sum", "rho": 0.1},
        {"kind": "total", "epoch": "1m", "rho": 0.1},
    ],
    ids=lambda release: f"{release['kind']}, {release['rho']}",
)
def test_they_hold_the_exact_numbers_as_often_as_they_say(release):
    """Windows of one and the same 200 records beside an engine with hardly any noise."""
    inside = []

    def run(rho, seed):
        # The ledger has room for both.
        config = sample(release=BARE | release | {"rho": rho}, budget={"rho": 1e9, "delta": 0.0})
        engine = Engine(config, noise=Noise(SeededEntropy(seed)))
        for k in range(6):
            engine.push(np.full(200, 10_000 * k), np.tile([[10.0, 50.0], [30.0, 55.0]], (100, 1)))
        return engine.close()

    exact = run(1e8, 0)
    for seed in range(60):
        for found, true in zip(run(release["rho"], seed), exact, strict=True):
            for value, (low, high) in zip(np.ravel(true.value), found.interval, strict=True):
                inside.append(low - 1e-3 <= value <= high + 1e-3)
    share, doubt = np.mean(inside), 4 * math.sqrt(0.05 * 0.95 / len(inside))
    assert share > 0.95 - (3 if release["kind"] == "total" else 1) * doubt  # totals of an epoch share their noise
    if release != {"kind": "count", "rho": 2.0}:  # whose noise is 0, 1 or -1
        assert share < 0.995


def test_releases_without_sigma_or_value_have_none_and_lines_are_read_back():
    quantiles = {**BARE, "kind": "quantiles", "feature": "a", "quantiles": [0.5]}
    for release, is_there in ((quantiles, False), ({**BARE, "kind": "count"}, True)):
        engine = Engine(sample(release=release), noise=Noise(SeededEntropy(1)))
        engine.push(np.zeros(300), np.tile([20.0, 50.0], (300, 1)))
        for found in engine.close():
            told = json.loads(found.to_bytes())
            assert ("interval" in told) == (is_there and found.value is not None)
            assert Release.from_bytes(found.to_bytes()) == found


def test_parts_with_a_sigma_have_one_too():
    wide = 1.96
    parts = {
        "mean": [1.0, 2.0],
        "mean_sigma": [1.0, 0.5],
        "correlations": [[1.0, None], [None, 1.0]],
        "correlation_sigma": [[0.0, None], [None, 0.0]],
        "coefficients": {"a": 3.0},
        "coefficient_sigma": {"a": 1.0},
        "covariances": [[[4.0]], [[5.0]]],
        "covariance_sigma": [[[1.0]], None],
        "tail_share": 0.1,
    }

    numbers = (*SHAPES["covariance"].numbers, *SHAPES["mixtures"].numbers)
    shape = ResultShape(axes=SHAPES["mixtures"].axes, numbers=numbers)

    def completed(parts):
        return with_intervals(shape, ReleaseValues([1.0], None, parts=parts)).parts

    found = completed(parts)
    assert {name: found.pop(name) for name in list(found) if name.endswith("_interval")} == {
        "mean_interval": [[1 - wide, 1 + wide], [2 - wide / 2, 2 + wide / 2]],
        "correlation_interval": [[[1.0, 1.0], None], [None, [1.0, 1.0]]],
        "coefficient_interval": {"a": [3 - wide, 3 + wide]},
        "covariance_interval": [[[[4 - wide, 4 + wide]]], None],
    }
    assert found == parts
    assert completed({"tail_share": 0.1}) == {"tail_share": 0.1}
    assert completed({"coefficients": None, "coefficient_sigma": None}) == {
        "coefficients": None,
        "coefficient_sigma": None,
    }
    assert completed(None) is None


def test_what_a_mechanism_says_itself_comes_first():
    own = ReleaseValues([1.0], [0.5], parts={"mean": [1.0], "mean_sigma": [1.0], "mean_interval": [[-9.0, 9.0]]})
    found = with_intervals(SHAPES["variance"], replace(own, interval=[[0.0, 5.0]]))
    assert (found.interval, found.parts["mean_interval"]) == ([[0.0, 5.0]], [[-9.0, 9.0]])
    assert with_intervals(SHAPES["variance"], own).interval == interval_of("normal", [1.0], [0.5])
    window = {"window": {"value": [1.0], "sigma": [1.0]}}
    (word,) = list(NO_INTERVAL)[:1]
    words = {"value": word, "mean": word, "window": word}
    bare = {name: value for name, value in own.parts.items() if name != "mean_interval"}
    found = with_intervals(SHAPES["variance"], replace(own, parts=bare | window, no_interval=words))
    assert found.interval is found.parts["mean_interval"] is found.parts["window"]["interval"] is None
    assert found.parts["no_interval"] == words
    assert found.sigma == [0.5]  # the noise that was added is known all the same
    some = with_intervals(SHAPES["variance"], replace(own, interval=[None, [0.0, 5.0]], no_interval={"value": word}))
    assert (some.interval, some.parts["no_interval"]) == ([None, [0.0, 5.0]], {"value": word})


def test_a_core_that_tells_no_number_of_all_records_has_none():
    rows = np.random.default_rng(1).normal(20, 1, size=(3000, 2))
    told = {
        "step": 1e-3,
        "bounds": (-50, 50),
        "radius": 10,
        "epsilon": 2,
        "delta": 1e-8,
        "noise": Noise(SeededEntropy(1)),
    }
    for answer in (fcstream.private_dp_mean(rows, size_hint=3000, **told), fcstream.estimate_average(rows, **told)):
        assert (answer.status, answer.interval) == ("released", None)
        assert answer.parts["no_interval"] == {"value": "left_out"}


def test_totals_have_one_of_their_last_window():
    engine = Engine(sample(release={**BARE, "kind": "total", "epoch": "1m", "rho": 0.1}), noise=Noise(SeededEntropy(1)))
    engine.push(np.zeros(300), np.tile([20.0, 50.0], (300, 1)))
    (found, *_) = engine.close()
    window = found.parts["window"]
    (value,), (sigma,) = window["value"], window["sigma"]
    assert window["interval"] == [[value - 1.96 * sigma - 0.5, value + 1.96 * sigma + 0.5]]
    assert Release.from_bytes(found.to_bytes()) == found


def covariance_of(rows, bounds):
    told = {"rho": 1, "size_hint": len(rows), "step": 1e-3, "bounds": bounds, "noise": Noise(SeededEntropy(1))}
    return fcstream.private_covariance(rows, target=1, **told)


def test_answers_about_arrays_have_them():
    rows = np.random.default_rng(1).multivariate_normal([20, 50], [[4, 3], [3, 9]], size=5000)
    answer = covariance_of(rows, (0, 80))
    for own, ends, sigmas in zip(answer.value, answer.interval, answer.sigma, strict=True):
        for value, (low, high), sigma in zip(own, ends, sigmas, strict=True):
            assert low <= value - 1.9 * sigma < value + 1.9 * sigma < high  # clipping is in them too
    (low, high), (sigma, *_) = answer.parts["mean_interval"][0], answer.parts["mean_sigma"]
    assert low < answer.parts["mean"][0] < high
    assert high - low > 2 * 1.96 * sigma
    low, high = answer.parts["coefficient_interval"]["x0"]
    assert low < answer.parts["coefficients"]["x0"] < high
    assert len(answer.parts["correlation_interval"]) == 2
    assert "no_interval" not in answer.parts


def test_an_interval_that_says_nothing_is_null_with_a_word():
    rows = np.random.default_rng(1).multivariate_normal([20, 50], [[4, 3], [3, 9]], size=5000)
    answer = covariance_of(rows, (-1e6, 1e6))
    assert answer.interval == [[None, None], [None, None]]
    assert answer.parts["correlation_interval"] == [[[1.0, 1.0], None], [None, [1.0, 1.0]]]
    assert answer.parts["coefficient_interval"] == {"x0": None}
    assert set(answer.parts["no_interval"].values()) == {"range_too_wide"} <= set(NO_INTERVAL)
    assert answer.parts["no_interval"].keys() == {"value", "correlations", "coefficients"}
    assert answer.sigma is not None  # the noise is known all the same


@pytest.mark.parametrize(("radius", "told"), [(30.0, {"value": "clipped"}), (200.0, None)])
def test_whether_a_ball_has_an_interval_is_a_fact_of_its_ranges(radius, told):
    """Not of where the records are: in one of these windows all are near the center, in the other some are far."""
    ball = {
        "method": "ball",
        "center": [20.0, 50.0],
        "delta": None,
        "size_hint": None,
        "spread": None,
        "radius": radius,
    }
    engine = Engine(sample(release=ball), noise=Noise(SeededEntropy(1)))
    for opens, far in ((0, [20.0, 50.0]), (10_000, [79.0, 99.0])):
        engine.push(np.full(400, opens), np.array([[20.0, 50.0]] * 300 + [far] * 100))
    near, wide, *_ = engine.close()
    for release in (near, wide):
        assert release.status == "released"
        assert (release.parts or {}).get("no_interval") == told
        assert (release.interval is None) == (told is not None)
