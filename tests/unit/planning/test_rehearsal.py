"""Rehearsals: noise, bias and refusals against the truth, on public and made-up records."""

import json
import math

import numpy as np
import pytest
from support.helpers import Paid

from fcstream.config import Config
from fcstream.errors import ConfigError
from fcstream.formats.batch import Batch
from fcstream.noise.samplers import Noise, SeededEntropy
from fcstream.planning.plan import plan
from fcstream.planning.records import file_url, synthetic_records
from fcstream.planning.rehearsal import RehearsalPlan, rehearse, run_once
from fcstream.planning.truths import yardstick_of
from fcstream.releases.averages import chi_quantile
from fcstream.releases.means import shares
from fcstream.releases.means.spread_histogram import supposed_deviation
from fcstream.reporting.rehearsal import NOTICE, NumberErrors

HOUR = 3_600_000
START = 1_458_000_000_000
NUMBERS = [{"name": "a", "min": -10.0, "max": 10.0}, {"name": "b", "min": -20.0, "max": 20.0, "scale": 2.0}]


def config(*releases, hours=1, **sections):
    base = {
        "stream": {"name": "tried"},
        "lattice": {"step": 0.001},
        "features": NUMBERS,
        "window": {"length": "1h", "start": "2016-03-15T00:00:00Z", "end": f"2016-03-15T{hours:02}:00:00Z"},
        "release": list(releases) if len(releases) > 1 else releases[0],
        "budget": {"rho": 1e8, "delta": 1e-3},
    }
    return Config.from_mapping(base | sections)


def batch(rows, times=None, **more):
    values = np.array(rows, float)
    times = START + np.arange(len(rows)) if times is None else np.array(times)
    return [Batch(times.astype(np.int64), values, np.arange(len(rows)), **more)]


def only(runs=3, **options):
    return RehearsalPlan(runs=runs, curves=False, **options)


def numbers(found, place=0):
    return {each.name: each for each in found.answers[place].numbers}


def test_errors_are_divided_exactly():
    found = NumberErrors.of("x", [[1.0, 3.0], [-1.0, 1.0]], sigmas=[3.0, 4.0], planned=[2.0])
    assert (found.windows, found.releases) == (2, 4)
    assert found.noise == pytest.approx(math.sqrt(2))  # squares 1 + 1 + 1 + 1 about the windows' means, 2 degrees
    assert found.bias == pytest.approx(1)  # means 2 and 0: (4 + 0) / 2, less the noise of a mean of two, 2 / 2
    assert found.error == pytest.approx(math.sqrt(3)) == pytest.approx(math.hypot(found.noise, found.bias))
    assert found.mean_error == 1
    assert found.mean_error_sigma == pytest.approx(math.sqrt(0.5))
    assert (found.sigma, found.planned) == (pytest.approx(math.sqrt(12.5)), 2)


def test_windows_that_some_seeds_refused_are_divided_by_what_was_released():
    found = NumberErrors.of("x", [[0.0, 2.0, 4.0], [5.0]])
    assert found.noise == pytest.approx(2)  # 8 / 2
    assert found.bias == pytest.approx(math.sqrt((4 + 25) / 2 - 4 * (1 / 3 + 1) / 2))
    assert found.releases == 4


def test_a_bias_is_told_from_noise():
    """Nine records lie at the center of the ball and one far outside, which is moved to its border."""
    ball = {"kind": "mean", "method": "ball", "center": [0.0, 0.0], "radius": 1.0, "rho": 1e4, "size_hint": 100}
    rows = [[0.0, 0.0]] * 90 + [[10.0, 0.0]] * 10
    found = numbers(rehearse(config(ball), batch(rows), plan=only(runs=8)))
    assert found["a"].mean_error == pytest.approx(0.1 - 1.0, abs=1e-3)
    assert found["a"].bias == pytest.approx(0.9, abs=1e-3)
    assert found["b"].bias < 1e-3
    assert 0 < found["a"].noise < 1e-3


def test_noise_is_told_from_bias():
    count = {"kind": "count", "rho": 0.005}
    found = numbers(rehearse(config(count), batch([[0.0, 0.0]] * 50), plan=only(runs=400)))["count"]
    assert found.noise == pytest.approx(10, rel=0.1) == pytest.approx(found.sigma, rel=0.1)
    assert found.planned == found.sigma == pytest.approx(10)
    assert found.bias < 1


def exact(kind, **options):
    return {"kind": kind, "rho": 1e6, "name": f"{kind} {len(options)}"} | options


def test_truths_are_exact_where_the_noise_is_nothing():
    """With sliding windows, conditions, keys and records that come in any order."""
    rng = np.random.default_rng(5)
    rows = np.round(rng.uniform(-9, 9, (400, 2)), 3)
    times = START + rng.integers(0, 4 * HOUR, 400)
    keys = np.array([f"k{i}" for i in rng.integers(0, 3, 400)], object)
    tried = config(
        exact("count"), exact("count", where={"a": {"min": 0.0, "max": 4.0}}), exact("sum"),
        exact("sum", features=["b"], where={"a": {"min": -3.0, "max": 9.0}}),
        exact("histogram", feature="b", edges=[-4.0, 0.0, 9.0]),
        hours=4, stream={"name": "tried", "key": "k", "keys": ["k0", "k1"]},
        window={"length": "2h", "slide": "30m", "start": "2016-03-15T00:00:00Z", "end": "2016-03-15T04:00:00Z"},
    )  # fmt: skip
    found = rehearse(tried, batch(rows, times, keys=keys), plan=only(runs=2))
    assert found.windows == 2 * 5
    assert found.rejected == {"unknown_key": int((keys == "k2").sum())}
    for place, answer in enumerate(found.answers):
        for each in answer.numbers:
            assert each.error < (1e-9 if answer.kind != "sum" else 0.1), (place, each)
    inside = [(keys == k) & (times < START + 2 * HOUR) for k in ("k0", "k1")]
    assert found.sizes[0] <= min(int(each.sum()) for each in inside) <= found.sizes[2]


def test_users_count_by_their_points_and_runs_repeat():
    users = np.array([f"u{i % 30}" for i in range(90)], object)
    rows = [[float(i % 30) / 10, float(i)] for i in range(90)]
    tried = config(exact("count"), exact("mean", method="ball", center=[0.0, 0.0], radius=60.0, size_hint=30),
                   stream={"name": "tried", "unit": "user", "user": "u", "per_user": "mean"},
                   features=[NUMBERS[0], {"name": "b", "min": 0.0, "max": 100.0}])  # fmt: skip
    found = rehearse(tried, batch(rows, users=users), plan=only(runs=2))
    assert found.sizes == (30, 30, 30)
    assert numbers(found)["count"].error == 0
    assert numbers(found, 1)["b"].error < 0.1
    assert rehearse(tried, batch(rows, users=users), plan=only(runs=2)) == found


def test_ranks_and_values_of_quantiles():
    rng = np.random.default_rng(2)
    rows = np.round(rng.normal(0, 2, (501, 2)), 3)
    levels = {"kind": "quantiles", "feature": "a", "quantiles": [0.25, 0.5], "rho": 1e3}
    tried = config(levels)
    answer = tried.job.answers[0]
    truth = yardstick_of(answer.mechanism, answer.grid).truth(answer.grid.points(rows))
    ordered = np.sort(rows[:, 0])
    assert truth["value"] == pytest.approx([ordered[125], ordered[250]])  # 126 of 501 suffice, and 251
    found = numbers(rehearse(tried, batch(rows), plan=only()))
    assert {"rank of 0.25", "rank of 0.5"} < found.keys()
    assert found["rank of 0.5"].error < 0.005
    assert found["rank of 0.5"].planned == pytest.approx(answer.mechanism.rank_sigmas[1] / 501)
    assert found["a/0.25"].planned is None


@pytest.mark.slow
def test_centers_are_matched_and_covariances_compared():
    rng = np.random.default_rng(3)
    rows = np.concatenate([rng.normal((-5, -10), 0.3, (400, 2)), rng.normal((5, 10), 0.3, (600, 2))])
    tried = config(
        {"kind": "centers", "method": "tree", "k": 2, "rho": 50.0, "name": "groups"},
        {"kind": "covariance", "rho": 50.0, "size_hint": 1000, "name": "matrix"},
    )
    found = rehearse(tried, batch(np.round(rows, 3)), plan=only(runs=2))
    groups, matrix = numbers(found), numbers(found, 1)
    assert set(groups) == {"a/0", "a/1", "b/0", "b/1"}
    assert max(each.error for each in groups.values()) < 0.1
    assert matrix["correlation a/b"].error < 0.02
    assert "k-means" in found.answers[0].note


def test_refusals_are_counted_and_windows_without_records_have_no_error():
    core = {"kind": "mean", "radius": 3.0, "rho": 0.25, "delta": 1e-9, "size_hint": 600}
    times = START + np.array([0, 1, 2, 3 * HOUR + 5])
    found = rehearse(config(core, hours=4), batch([[0.0, 0.0]] * 4, times), plan=only(runs=3))
    (answer,) = found.answers
    assert answer.released == 0
    assert answer.refused == {"too_few": 3 * 4}
    assert answer.numbers == ()
    assert "no errors" in answer.note
    assert answer.expected < 0.01
    assert found.sizes == (0, 0, 3)


def test_windows_without_budget_are_refusals():
    count = {"kind": "count", "rho": 0.5}
    stream, budget = {"name": "tried", "unit": "stream"}, {"rho": 1.0, "delta": 0.0}
    times = START + np.arange(4) * HOUR
    for exhausted in ("refuse", "stop"):
        tried = config(count, hours=4, stream=stream, budget=budget | {"exhausted": exhausted})
        found = rehearse(tried, batch([[0.0, 0.0]] * 4, times), plan=RehearsalPlan(runs=2))
        assert found.answers[0].refused == {"budget_exhausted": 2 * 2}
        by_axis = {curve.axis: curve.points for curve in found.curves}
        assert all(point.answers[0].refused == {} for point in by_axis["rho"])  # curves are about errors alone


def test_nobody_is_left_out_of_a_window_that_is_rehearsed():
    """Half of the users were left out of counts, which were said to be without bias."""
    stream = {"name": "tried", "unit": "user", "user": "id"}
    tried = config({"kind": "count", "rho": 1.0}, hours=4, stream=stream, budget={"rho": 2.0, "delta": 0.0})
    times = np.repeat(START + np.arange(4) * HOUR, 50)
    users = np.array([f"{i % 50}" for i in range(200)], object)
    found = rehearse(tried, batch([[0.0, 0.0]] * 200, times, users=users), plan=only(runs=4))
    assert found.answers[0].refused == {"budget_exhausted": 2 * 4}
    assert numbers(found)["count"].mean_error == pytest.approx(0, abs=2)


PLANNED = [
    {"kind": "count", "rho": 0.1, "name": "n"},
    {"kind": "sum", "rho": 0.1, "name": "sums"},
    {"kind": "histogram", "feature": "a", "edges": [-1.0, 1.0], "rho": 0.1, "name": "bins"},
    {"kind": "mean", "method": "ball", "center": [0.0, 0.0], "radius": 24.0, "rho": 0.1, "name": "ball"},
    {"kind": "quantiles", "feature": "b", "quantiles": [0.5], "rho": 0.4, "name": "middle"},
]


@pytest.mark.slow
def test_plan_and_rehearsal_agree_within_a_tenth():
    tried = config(*(each | {"size_hint": 500} for each in PLANNED), hours=20)
    found = rehearse(tried, plan=only(runs=40, windows=20))
    predicted = {part.name: part.sigma for part in plan(tried).answers}
    assert predicted["n"]["n" if "n" in predicted["n"] else "count"] == numbers(found)["count"].planned
    compared = 0
    for answer in found.answers:
        assert answer.share == pytest.approx(answer.expected, abs=0.02)
        for each in answer.numbers:
            if each.planned is not None:
                compared += 1
                # Ranks are predicted for records at equal distances from each other, which those made up are not.
                near = 0.15 if each.name.startswith("rank") else 0.1
                assert each.noise == pytest.approx(each.planned, rel=near), (answer.name, each)
                assert each.sigma is None or each.sigma == pytest.approx(each.planned, rel=0.02)
    assert compared == 1 + 2 + 3 + 2 + 1
    assert found.made_up
    assert found.sizes == (500, 500, 500)


def test_plan_and_rehearsal_agree_about_means_with_a_core(monkeypatch):
    """Noise is what was planned: what a release states, and which records the core holds."""
    monkeypatch.setattr(shares, "CORE_MARGINS", (3.0,))  # so that coins move it
    core = {"kind": "mean", "radius": 8.0, "spread": 1.5, "rho": 2.0, "delta": 1e-9, "size_hint": 800}
    core["outliers"] = "leave_out"
    found = rehearse(config(core, hours=3), plan=only(runs=30, windows=3))
    (answer,) = found.answers
    assert answer.share == 1 == pytest.approx(answer.expected, abs=0.01)
    noise = math.sqrt(sum((each.noise / each.planned) ** 2 for each in answer.numbers) / 2)
    assert noise == pytest.approx(1, rel=0.1)
    for each in answer.numbers:
        assert 0.7 * each.planned < each.sigma < 0.95 * each.planned


@pytest.mark.parametrize("release", [{}, {"spread": 1.5}, {"method": "friendly"}], ids=str)
def test_what_is_predicted_is_the_noise_of_releases_of_the_same_records(release, monkeypatch):
    """Eight features at a rho with which the coins of the core count for as much as what is added."""
    monkeypatch.setattr(shares, "CORE_MARGINS", (3.0,))
    release = {"kind": "mean", "radius": 8.0, "rho": 8.0, "delta": 1e-9, "size_hint": 1000} | release
    release["outliers"] = "leave_out"
    features = [{"name": f"x{k}", "min": -20.0, "max": 20.0} for k in range(8)]
    (answer,) = config(release, features=features).job.answers
    mechanism, spread = answer.mechanism, release.get("spread", supposed_deviation(8.0, 8) * math.sqrt(8))
    rows = np.random.default_rng(5).normal(0, spread / math.sqrt(8), (1000, 8))
    counter = mechanism.counter(8, 1, Noise(SeededEntropy(0)))
    counter.add(0, answer.grid.points(rows))
    values, sigmas = [], []
    for seed in range(40):
        outcome = mechanism.release(counter.view([0]), Paid(), Noise(SeededEntropy(seed)))
        values.append(answer.grid.values(outcome.value))
        sigmas.append(answer.grid.widths(outcome.sigma))
    planned = np.array([*mechanism.predicted_sigmas(1000, answer.grid).values()])
    noise = np.sqrt((np.var(values, axis=0, ddof=1) / planned**2).mean())
    assert noise == pytest.approx(1, rel=0.1)
    assert (np.mean(sigmas) < 0.8 * planned[0]) == ("method" not in release)  # friendly averages add much more


CLOSE = {"radius": 8.0, "rho": 0.5, "delta": 1e-9}
FOUND_OUT = [
    {"kind": "mean", **CLOSE, "size_hint": 800},
    {"kind": "mean", **CLOSE, "size_hint": 800, "outliers": "leave_out"},
    {"kind": "mean", **CLOSE, "method": "tracking", "size_hint": 800},
    {"kind": "variance", **CLOSE, "rho": 1.0, "size_hint": 1500},
    {"kind": "covariance", "rho": 1.0, "size_hint": 3000},
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "release", FOUND_OUT, ids=lambda each: f"{each['kind']}, {each.get('method', each.get('outliers'))}"
)
def test_plan_and_rehearsal_agree_where_the_spread_is_found(release):
    """Releases state what was planned; the rest of their noise is which records the core and the ball hold."""
    windows, runs = (1, 60) if release.get("method") == "tracking" else (12, 6)  # later windows go on from the first
    found = rehearse(config(release, hours=windows), plan=only(runs=runs, windows=windows, first_seed=100))
    (answer,) = found.answers
    assert answer.share == 1
    told = [each for each in answer.numbers if each.planned is not None]
    assert len(told) == (1 if release["kind"] == "covariance" else 2)
    for each in told:
        assert each.sigma == pytest.approx(each.planned, rel=0.1)
    noise = math.sqrt(sum((each.noise / each.planned) ** 2 for each in told) / len(told))
    assert noise == pytest.approx(1, rel=0.25)


@pytest.mark.parametrize("d", [1, 2, 3, 8, 64])
def test_points_that_plans_suppose_lie_within_half_the_radius(d):
    rng = np.random.default_rng(d)
    norms = np.linalg.norm(rng.normal(0, supposed_deviation(10.0, d), (20_000, d)), axis=1)
    assert np.quantile(norms, 0.999) == pytest.approx(5.0, rel=0.03)
    for level in (0.5, 0.9, 0.98):
        assert chi_quantile(d, level) * supposed_deviation(10.0, d) == pytest.approx(
            np.quantile(norms, level), rel=0.03
        )


@pytest.mark.slow
def test_curves_change_one_setting_and_say_what_cannot_be_used():
    core = {"kind": "mean", "method": "ball", "center": [0.0, 0.0], "radius": 4.0, "rho": 1.0, "size_hint": 100}
    found = rehearse(config(core, hours=8), plan=RehearsalPlan(runs=6, windows=8))
    curves = {curve.axis: curve for curve in found.curves}
    assert [curve.axis for curve in found.curves] == ["rho", "length", "radius"]
    assert [point.setting for point in curves["rho"].points] == [(0.25,), (0.5,), (1.0,), (2.0,), (4.0,)]
    assert [point.setting for point in curves["length"].points] == [(900,), (1800,), (3600,), (7200,), (14400,)]
    noise = {point.factor: noise for point, _, noise, _ in curves["rho"].relative(0)}
    assert noise[0.25] == pytest.approx(2 * noise[1], rel=0.25)
    assert noise[4] == pytest.approx(noise[1] / 2, rel=0.25)
    assert curves["rho"].points[2].answers == found.answers
    longer = {point.factor: noise for point, _, noise, _ in curves["length"].relative(0)}
    assert longer[4] == pytest.approx(longer[1] / 4, rel=0.5)
    short = rehearse(config(core), plan=RehearsalPlan(runs=2, windows=1))
    last = {curve.axis: curve for curve in short.curves}["length"].points[-1]
    assert last.answers == ()
    assert "longer than" in last.problem
    assert any("cannot be used" in line for line in short.lines())


def test_everything_says_that_it_is_not_for_publication():
    found = rehearse(config({"kind": "count", "rho": 0.1, "size_hint": 20}), plan=RehearsalPlan(runs=2, windows=2))
    table = json.loads(json.dumps(found.as_dict()))
    assert (table["publishable"], table["private"], table["notice"]) == (False, False, NOTICE)
    assert found.lines()[0] == NOTICE.upper()
    assert found.lines()[-1] == NOTICE
    assert any("made up from the declared ranges" in line for line in found.lines())


def test_kinds_without_one_truth_say_so():
    tree = {"kind": "tree", "rho": 5.0}
    found = rehearse(config(tree), batch([[1.0, 1.0]] * 300), plan=only(runs=2))
    assert found.answers[0].numbers == ()
    assert "not rehearsed, only its refusals" in found.answers[0].note


def test_windows_follow_the_data_where_these_lie_outside_of_the_schedule():
    late = START + 500 * 24 * HOUR + 25 * 60_000
    records = batch([[0.0, 0.0]] * 3, [late, late + HOUR, late + 3 * HOUR])
    found = rehearse(config({"kind": "count", "rho": 1e6}), records, plan=only(runs=2, windows=2))
    assert (found.windows, found.left_out, found.sizes) == (2, 2, (1, 1, 1))
    assert numbers(found)["count"].error == 0


def test_made_up_records_lie_in_the_ranges_and_spread_as_planned():
    features = [
        {"name": "a", "min": 0.0, "max": 1e6, "transform": "log1p", "origin": 6.0, "scale": 0.5, "factor": 0.1},
        {"name": "kind", "type": "category", "levels": ["x", "y", "z"]},
        {"name": "on", "type": "boolean"},
    ]
    tried = config({"kind": "count", "rho": 1.0, "size_hint": 3000}, features=features)
    made = synthetic_records(tried, START, 2, 7)
    assert len(made.times_ms) == 6000
    assert set(np.unique(made.values[:, 1])) == {0, 1, 2}
    assert set(np.unique(made.values[:, 2])) == {0, 1}
    released, rejected = run_once(config({"kind": "count", "rho": 1e6}, hours=2, features=features), [made], 1)
    assert rejected == {}
    assert [release.value for release in released] == [[3000], [3000]]
    mean = {"kind": "mean", "radius": 2.0, "rho": 1.0, "delta": 1e-9, "size_hint": 5000}
    scaled = synthetic_records(config(mean), START, 1, 7).values / [1.0, 2.0]
    assert np.mean(np.sqrt((scaled**2).sum(axis=1)) < 1) == pytest.approx(0.999, abs=0.002)  # half the radius


@pytest.mark.parametrize(
    ("change", "key", "text"),
    [
        ({"stream": {"name": "t", "key": "k", "keys": {"discover": "frequent", "every": "1h", "delta": 1e-6}}},
         "stream.keys", "must be declared"),
        ({"stream": {"name": "t", "key": "k", "keys": ["x"], "unit": "user", "user": "u", "key_budgets": "shared"}},
         "stream.key_budgets", "must be 'divided'"),
        ({"features": [*NUMBERS, {"name": "words", "type": "text"}]}, "--public", "is required"),
    ],
)  # fmt: skip
def test_what_cannot_be_rehearsed_says_why(change, key, text):
    with pytest.raises(ConfigError, match=text) as error:
        rehearse(config({"kind": "count", "rho": 1.0}, hours=2, **change), plan=only())
    assert error.value.key == key


def test_records_that_cannot_be_used_say_why():
    tried = config({"kind": "count", "rho": 1.0})
    with pytest.raises(ConfigError, match=r"--public: must hold records .* none can \(out_of_range 2\)"):
        rehearse(tried, batch([[99.0, 0.0]] * 2), plan=only())
    with pytest.raises(ConfigError, match="there are none"):
        rehearse(tried, [], plan=only())
    for options, key in (({"runs": 1}, "--runs"), ({"windows": 0}, "--windows"), ({"first_seed": -1}, "--seed")):
        with pytest.raises(ConfigError, match="must be at least") as error:
            RehearsalPlan(**options)
        assert error.value.key == key


def test_formats_are_told_by_their_names():
    urls = ["csv:a.csv", "csv:a.CSV.gz", "jsonl:x/a.json", "jsonl:a.ndjson.gz", "parquet:a.parquet", "arrow:a.arrow"]
    for path, url in [("csv:rows.txt", "csv:rows.txt"), *((url.partition(":")[2], url) for url in urls)]:
        assert file_url(path, "--public") == url
    with pytest.raises(ConfigError, match=r"--public: must end in one of \.csv"):
        file_url("rows.txt", "--public")
