"""Arguments of the functions that answer about one array."""

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
    "centers": lambda rows: f.private_centers(rows, 2, rho=10, **BOX, noise=seeded()).centers.tolist(),
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
    with pytest.raises(ConfigError, match=r"points: must be .*: moments, time spans and complex numbers are none"):
        f.private_sum(odd, rho=1, **BOX)


def test_one_missing_entry_leaves_whole_numbers_what_they_are():
    """pandas makes floats of them, and all were left out."""
    pd = pytest.importorskip("pandas")
    answer = f.private_frequent(pd.Series([7] * 50 + [None]), rho=100, delta=1e-3, noise=seeded())
    assert answer.parts["levels"] == ["7"]
    assert abs(answer.value[0] - 50) < 5


ROWS = np.random.default_rng(1).uniform(-1, 1, (300, 1))
BOUNDS = {
    "sum": lambda bounds: f.private_sum(ROWS, rho=1, step=0.01, bounds=bounds, noise=seeded()).value,
    "tree": lambda bounds: f.private_tree(ROWS, rho=1, step=0.01, bounds=bounds, noise=seeded()).value,
    "points": lambda bounds: f.private_points(ROWS, rho=1, step=0.01, bounds=bounds, noise=seeded()).value,
    "centers": lambda bounds: f.private_centers(
        ROWS, 2, rho=1, step=0.01, bounds=bounds, noise=seeded()
    ).counts.tolist(),
    "mixture": lambda bounds: f.private_mixture(
        ROWS, 2, rho=1, step=0.01, bounds=bounds, noise=seeded()
    ).counts.tolist(),
}


@pytest.mark.parametrize("ask", BOUNDS.values(), ids=BOUNDS)
def test_bounds_may_be_an_array(ask):
    """Some functions asked for the truth value of an array."""
    assert ask(np.array([-1, 1])) == ask((-1, 1))
    for odd in ((-1, 1, 2), 5, "ab", None, ("x", 1)):
        with pytest.raises(ConfigError, match=r"^bounds: must be "):
            ask(odd)


@pytest.mark.parametrize("ask", [f.private_centers, f.private_mixture])
def test_a_tree_finds_a_limited_number_of_clusters(ask):
    """A million clusters were looked for without an end."""
    with pytest.raises(ConfigError, match=r"^k: must be at most 256 for a tree, got 1000000: "):
        ask(ROWS, 10**6, rho=1, step=1e-5, bounds=(-1, 1))
    made = ask(ROWS, np.int64(3), rho=1, step=1e-5, bounds=(-1, 1), noise=seeded())
    assert made.counts.tolist() == ask(ROWS, 3, rho=1, step=1e-5, bounds=(-1, 1), noise=seeded()).counts.tolist()


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
