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
