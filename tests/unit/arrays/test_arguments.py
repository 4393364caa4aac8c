"""Arguments of the functions that answer about one array."""

import inspect
import math
import re

import numpy as np
import pytest

import fcstream as f
from fcstream import ConfigError, Noise, SeededEntropy

pytestmark = pytest.mark.usefixtures("one_start")

BOX = {"step": 0.01, "bounds": (-1000, 1000)}


def seeded():
    return Noise(SeededEntropy(1))


def pair(n=1000):
    """Return rows with masked ones that hold numbers within the bounds, and the same rows with NaN there."""
    masked = np.ma.masked_array([[1.0], [2.0], [3.0]] * n, mask=[[0], [1], [0]] * n)
    return masked, np.array([[1.0], [np.nan], [3.0]] * n)


ABOUT_ROWS = {
    "sum": lambda rows: f.private_sum(rows, rho=1e6, **BOX, noise=seeded()).value,
    "sum of a list": lambda rows: f.private_sum(list(rows), rho=1e6, **BOX, noise=seeded()).value,
    "mean": lambda rows: (
        f.private_mean(rows, radius=10, rho=10, delta=1e-6, size_hint=2000, **BOX, noise=seeded()).value
    ),
    "estimator": lambda rows: (
        f.PrivateMean(radius=10, rho=10, delta=1e-6, size_hint=2000, **BOX, noise=seeded()).fit(rows).value_.tolist()
    ),
    "histogram": lambda rows: f.private_histogram(rows[:, 0], rho=1e6, edges=[0, 2], **BOX, noise=seeded()).value,
    "tree": lambda rows: f.private_tree(rows, rho=1, **BOX, noise=seeded()).value,
    "centers": lambda rows: f.private_centers(rows, 2, rho=10, **BOX, noise=seeded()).value,
    "covariance": lambda rows: f.private_covariance(rows, rho=10, size_hint=2000, **BOX, noise=seeded()).value,
    "marginals": lambda rows: f.private_marginals(rows - 1, rho=1, order=1, levels=[3], noise=seeded()).value,
}


@pytest.mark.parametrize("ask", ABOUT_ROWS.values(), ids=ABOUT_ROWS)
def test_masked_cells_are_what_nan_is(ask):
    """The mask was ignored, and what lay under it was counted."""
    masked, with_nan = pair()
    assert ask(masked) == ask(with_nan)


@pytest.mark.parametrize(
    "odd",
    [
        np.zeros((50, 1), "datetime64[s]"),
        np.zeros((50, 1), "timedelta64[ns]"),
        np.array([[np.timedelta64(5)]] * 50, object),
        [[np.timedelta64(5)]] * 50,
        np.ma.masked_array(np.zeros((50, 1), "timedelta64[s]"), mask=True),
        np.full((50, 1), 1 + 2j),
        [[1 + 2j]] * 50,
    ],
    ids=["moments", "spans", "object spans", "listed spans", "masked spans", "complex", "listed complex"],
)
def test_moments_spans_and_complex_numbers_are_no_numbers(odd):
    """They were taken as plain numbers, complex ones without their imaginary part."""
    with pytest.raises(ConfigError, match=r"points: must be .*: .*moments, time spans and complex numbers are none"):
        f.private_sum(odd, rho=1, **BOX)


def test_one_missing_entry_leaves_whole_numbers_what_they_are():
    """pandas makes floats of them, and all were left out."""
    pd = pytest.importorskip("pandas")
    answer = f.private_frequent(pd.Series([7] * 50 + [None]), rho=100, delta=1e-3, noise=seeded())
    assert answer.parts["levels"] == ["7"]
    assert abs(answer.value[0] - 50) < 5


ROWS = np.random.default_rng(1).uniform(-1, 1, (300, 1))
PLANE = np.random.default_rng(1).uniform(-1, 1, (300, 2))
HINTED = {"rho": 10, "delta": 1e-6, "size_hint": 300}
DP = {"radius": 3, "epsilon": 10, "delta": 1e-6}
ASKED = {  # function -> its first argument and others, besides `step`, `bounds` and `noise`
    "private_mean": ({"points": PLANE}, {"radius": 3, **HINTED}),
    "private_sum": ({"points": PLANE}, {"rho": 1}),
    "private_histogram": ({"values": PLANE[:, 0]}, {"rho": 1, "edges": [0.0]}),
    "private_quantiles": ({"values": PLANE[:, 0]}, {"rho": 1, "quantiles": [0.5]}),
    "private_variance": ({"points": PLANE}, {"radius": 3, **HINTED}),
    "private_covariance": ({"points": PLANE}, {"rho": 1, "size_hint": 300}),
    "private_dp_mean": ({"points": PLANE}, {"size_hint": 300, **DP}),
    "estimate_average": ({"points": PLANE}, DP),
    "private_centers": ({"points": PLANE}, {"k": 2, "rho": 1}),
    "private_mixture": ({"points": PLANE}, {"k": 2, "rho": 1}),
    "private_tree": ({"points": PLANE}, {"rho": 1}),
    "private_points": ({"points": PLANE}, {"rho": 1}),
    "private_marginals": ({"rows": (PLANE > 0).astype(int)}, {"rho": 1}),
    "private_synthetic": ({"rows": (PLANE > 0).astype(int)}, {"rho": 1}),
    "private_frequent": ({"values": ["a"] * 50}, {"rho": 1, "delta": 1e-6}),
}
VARIANTS = {  # other methods, which read other arguments
    "private_mean": [
        {"method": "ball", "center": [0, 0]},
        {"method": "friendly"},
        {"scale": "learned"},
        {"radius": "search", "radius_min": 0.1, "radius_max": 1},
    ],
    "private_covariance": [
        {"method": "friendly", "epsilon": 1, "delta": 1e-5, "shards": 100, "rho": None, "size_hint": None},
    ],
    "private_centers": [
        {"method": method, "ball": 2, "bounds": None, "delta": 1e-6, "size_hint": 300}
        for method in ("friendly", "ktuples", "tree", "auto")
    ],
    "private_mixture": [
        {"method": method, "ball": 2, "bounds": None, "delta": 1e-6, "size_hint": 300, "spread": 0.1}
        for method in ("friendly", "ktuples", "tree", "auto")
    ],
    "private_points": [{"method": "cells"}, {"method": "tree"}],
    "private_histogram": [{"edges": None, "categories": [0.0]}],
    "private_synthetic": [{"rho": None, "epsilon": 1, "size_hint": 300, "variant": each} for each in ("pure", "paper")],
}
FUNCTIONS = [name for name in f.__all__ if name.startswith(("private_", "estimate_"))]
BOXED = [name for name in FUNCTIONS if "bounds" in inspect.signature(getattr(f, name)).parameters]


def asked(name, **changes):
    """What a function answers, with some arguments changed."""
    first, others = ASKED[name]
    return getattr(f, name)(**first | (BOX | {"bounds": (-1, 1)} if name in BOXED else {}) | others | changes)


def told(answer):
    """An answer's value, as lists."""
    assert answer.status == "released"
    return answer.value if isinstance(answer.value, list) else answer.value.tolist()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_answer_has_its_value_under_one_name(name):
    """Those about clusters called it `centers` and `means` alone."""
    answer = asked(name, noise=seeded())
    assert answer.status in ("released", "refused")
    assert (answer.value is None) == (answer.status == "refused")
    assert hasattr(answer, "sigma")
    assert hasattr(answer, "private")
    if name == "private_tree":
        assert f.count_in_range(answer, {"x0": (0, 1)}).value > 0


def test_every_estimator_has_the_value_of_its_answer():
    names = {
        "PrivateMean": "private_mean",
        "PrivateCenters": "private_centers",
        "PrivateCovariance": "private_covariance",
    }
    assert set(names) == {name for name in f.__all__ if name.startswith("Private") and hasattr(getattr(f, name), "fit")}
    for estimator, name in names.items():
        fitted = getattr(f, estimator)(**ASKED[name][1], **BOX | {"bounds": ([-1, -1], [1, 1])}, noise=seeded())
        assert fitted.fit(PLANE).value_.tolist() == told(asked(name, noise=seeded()))


@pytest.mark.parametrize("name", BOXED)
def test_bounds_are_one_pair_or_one_for_each_column(name):
    """Most functions took one pair for all columns, and some asked for the truth value of an array."""
    columns = np.shape(next(iter(ASKED[name][0].values())))[1:] or (1,)
    expected = told(asked(name, noise=seeded()))
    for same in (
        np.array([-1, 1]),
        ([-1] * columns[0], [1] * columns[0]),
        (-np.ones(columns), 1),
        (-1, np.ones(columns)),
    ):
        assert told(asked(name, bounds=same, noise=seeded())) == expected
    for odd in ((-1, 1, 2), 5, "ab", None, ("x", 1), (1, -1), ([-1] * 5, [1] * 5), [(-1, 1)] * 3, (-1, float("nan"))):
        if odd is not None or name not in ("private_centers", "private_mixture"):
            with pytest.raises(ConfigError, match=r"^bounds: must be "):
                asked(name, bounds=odd)


@pytest.mark.parametrize("name", [name for name in BOXED if "points" in ASKED[name][0] and name[0] == "p"])
def test_every_column_has_its_own_bounds(name):
    """What lies in one column's range and outside of the other's is left out; what is told lies in both ranges."""
    rows = np.column_stack([PLANE[:, 0], 100 + 50 * PLANE[:, 1]])
    far = np.concatenate([rows, np.column_stack([rows[:100, 1], rows[:100, 1]])])
    ends = {"bounds": ([-1, 50], [1, 150]), "rho": 1e4, "epsilon": 10, "radius": 150}
    ends = {key: value for key, value in ends.items() if key == "bounds" or key in ASKED[name][1]}
    one, other = (asked(name, points=points, noise=seeded(), **ends) for points in (rows, far))
    assert told(one) == told(other)


BAD = [-1, 0, math.nan, math.inf, 1e300, 1e-300, 1e-12, 1e12, 2**60, 3, 0.5, "x", None, True, [], [5], (1, -1), (0, 0),
       (0, 1e-9), (-1e15, 1e15), [0.7, 0.7], [2, 2, 2], object()]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_errors_name_arguments_of_the_function(name):
    """They named keys of a configuration (`release.rho`, `features.x0.min`, `origin`), or were Python's own."""
    own = set(inspect.signature(getattr(f, name)).parameters)
    found = []
    for variant in ({}, *VARIANTS.get(name, ())):
        for argument in own - {"oracle"}:
            for bad in BAD:
                try:
                    asked(name, **{"noise": seeded()} | variant | {argument: bad})
                except ConfigError as error:
                    found.append((f"{argument} = {bad!r}: {error}", error))
    for about, error in found:
        assert set(error.key.split(", ")) <= own, about
        assert {text.split(" ")[0] for text in re.findall("`([^`]+)`", error.message)} <= own | {"Noise"}, about
        assert not re.search(r"\b(release|features|lattice|budget|window|stream)\.\w", str(error)), about
    assert len(found) > 50


@pytest.mark.parametrize("ask", [f.private_centers, f.private_mixture])
def test_a_tree_finds_a_limited_number_of_clusters(ask):
    """A million clusters were looked for without an end."""
    with pytest.raises(ConfigError, match=r"^k: must be at most 256 for a tree, got 1000000: "):
        ask(ROWS, 10**6, rho=1, step=1e-5, bounds=(-1, 1))
    made = ask(ROWS, np.int64(3), rho=1, step=1e-5, bounds=(-1, 1), noise=seeded())
    assert made.parts["counts"] == ask(ROWS, 3, rho=1, step=1e-5, bounds=(-1, 1), noise=seeded()).parts["counts"]


SUM = {"rho": 1, "step": 0.01, "bounds": (-1, 1)}
MEAN = SUM | {"radius": 1, "delta": 1e-6, "size_hint": 300}
CODES = np.zeros((50, 3))
TEXTS = ["a"] * 50
WRONG = [
    *((f.private_sum, (ROWS,), SUM, {"step": odd}) for odd in ("0.01", None, True, np.timedelta64(1))),
    *((f.private_sum, (ROWS,), SUM, {"rho": odd}) for odd in ("1", None, [1])),
    (f.private_sum, (ROWS,), SUM, {"noise": SeededEntropy(1)}),
    (f.private_histogram, (ROWS[:, 0],), SUM, {"edges": ["x"]}),
    (f.private_quantiles, (ROWS[:, 0],), SUM, {"quantiles": 0.5}),
    *((f.private_mean, (ROWS,), MEAN, {"size_hint": odd}) for odd in ("600", 600.0, True)),
    *(
        (f.private_mean, (ROWS,), MEAN, {name: "x"})
        for name in ("radius_min", "spread", "outliers", "radius", "center")
    ),
    (f.private_variance, (ROWS,), MEAN, {"size_hint": "600"}),
    *((f.private_covariance, (ROWS,), SUM | {"size_hint": 300}, {name: 2.0}) for name in ("components", "target")),
    *((f.private_frequent, (TEXTS,), {"rho": 1, "delta": 1e-6}, {"rho": odd}) for odd in ("1", None)),
    (f.private_frequent, (TEXTS,), {"rho": 1, "delta": 1e-6}, {"max_bytes": "9"}),
    (f.private_frequent, (), {"rho": 1, "delta": 1e-6}, {"values": 5}),
    *((f.private_marginals, (CODES,), {"rho": 1}, {"rho": odd}) for odd in ("1", None)),
    *((f.private_marginals, (CODES,), {"rho": 1}, {"order": odd}) for odd in (2.0, True, "2")),
    *((f.private_marginals, (CODES,), {"rho": 1}, {"levels": odd}) for odd in (5, [2.0, 2, 2], "222")),
    *((f.private_synthetic, (CODES,), {"rho": 1}, {"size": odd}) for odd in (2.5, 0, "5")),
    *((f.private_synthetic, (CODES,), {"rho": 1}, {name: "x"}) for name in ("rho", "variant", "projection", "kappa")),
    *((f.private_centers, (ROWS,), SUM, {"k": odd}) for odd in (2.0, True, "two", None)),
    *(
        (f.private_centers, (ROWS,), SUM | {"k": 2}, {name: "x"})
        for name in ("rho", "delta", "step", "spread", "tuples")
    ),
    (f.private_centers, (ROWS,), SUM | {"k": 2}, {"method": "x"}),
    (f.private_centers, (ROWS,), SUM | {"k": 2}, {"radius": None}),
    (f.private_centers, (ROWS,), SUM | {"k": 2}, {"fallback_share": "x"}),
    *((f.private_tree, (ROWS,), SUM, {"names": odd}) for odd in (5, [5], "x")),
    *(
        (f.private_mixture, (ROWS,), SUM | {"k": 2}, {name: "x"})
        for name in ("rho", "step", "size_hint", "k", "method")
    ),
    (f.private_tree, (ROWS,), SUM, {"max_boxes": "x"}),
    *((f.private_points, (ROWS,), SUM, {"rows": odd}) for odd in (2.5, "x", True)),
    (f.private_points, (ROWS,), SUM | {"method": "cells"}, {"rows": 10}),
]


@pytest.mark.parametrize(
    ("ask", "given", "named", "odd"), WRONG, ids=[f"{ask.__name__} {odd!r:.40}" for ask, _, _, odd in WRONG]
)
def test_an_argument_of_a_wrong_type_is_named(ask, given, named, odd):
    """A traceback of Python came, or the argument was taken for something else."""
    (name,) = odd
    with pytest.raises(ConfigError, match=f"^{name}: "):
        ask(*given, **named | odd)


def test_an_error_holds_no_records():
    with pytest.raises(ConfigError, match=r"^rho: must be a number, got a ndarray$"):
        f.private_sum(ROWS, **SUM | {"rho": ROWS})
