"""Rows that functions about arrays leave out: told to the caller, and to nobody else."""

import json
from datetime import date
from decimal import Decimal

import numpy as np
import pytest

import fcstream
from fcstream import ConfigError, Noise, Release, SeededEntropy, UnusableRecords

ROWS = np.random.default_rng(1).normal(0, 1, (4000, 2))
PUBLIC = {"rho": 1.0, "step": 0.01, "bounds": (-10, 10)}
ODD = [[np.nan, 1], [1, np.inf], [11, 1], [np.nan, np.inf], [1, -11]]
COUNTS = {"missing": 2, "not_finite": 1, "out_of_range": 2}


def noise():
    return Noise(SeededEntropy(1))


FUNCTIONS = {
    "mean": lambda x: fcstream.private_mean(x, radius=8, delta=1e-6, size_hint=4000, noise=noise(), **PUBLIC),
    "sum": lambda x: fcstream.private_sum(x, noise=noise(), **PUBLIC),
    "covariance": lambda x: fcstream.private_covariance(x, size_hint=4000, noise=noise(), **PUBLIC),
    "tree": lambda x: fcstream.private_tree(x, noise=noise(), **PUBLIC),
    "points": lambda x: fcstream.private_points(x, noise=noise(), **PUBLIC),
    "centers": lambda x: fcstream.private_centers(x, 2, noise=noise(), **PUBLIC),
    "tuples": lambda x: fcstream.private_centers(
        x, 2, ball=10, rho=1, delta=1e-6, size_hint=4000, step=0.01, method="friendly", noise=noise()
    ),
    "mixture": lambda x: fcstream.private_mixture(x, 2, noise=noise(), **PUBLIC),
    "average": lambda x: fcstream.estimate_average(
        x[:500], radius=8, epsilon=2, delta=1e-4, step=0.01, bounds=(-10, 10), noise=noise()
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_left_out_is_told_and_is_no_part_of_the_release(name):
    """Nobody was told."""
    answer = FUNCTIONS[name](np.concatenate([ODD, ROWS]))
    assert answer.left_out == COUNTS
    assert FUNCTIONS[name](ROWS).left_out == {}
    assert "left_out=" not in repr(answer)
    if isinstance(answer, Release):
        assert "left_out" not in answer.as_dict()
        assert b'"left_out":' not in answer.to_bytes()
        assert Release.from_bytes(answer.to_bytes()).as_dict().keys() == answer.as_dict().keys()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_array_of_which_nothing_can_be_used_is_no_answer(name):
    """It was paid for."""
    told = r"^points: must hold rows that can be used, none of 2 can \(1 missing, 1 not_finite\): "
    with pytest.raises(UnusableRecords, match=told) as caught:
        FUNCTIONS[name](np.array(ODD[:2]))
    assert caught.value.reasons == {"missing": 1, "not_finite": 1}
    if name == "tuples":  # a public ball may be empty
        assert FUNCTIONS[name](np.array(ODD)).status == "refused"
    else:
        with pytest.raises(UnusableRecords, match=r"2 out_of_range\): check them, and `bounds`; nothing was charged$"):
            FUNCTIONS[name](np.array(ODD))


def test_one_column():
    column = np.concatenate([np.array(ODD).T[0], ROWS[:, 0]])
    for answer in (
        fcstream.private_quantiles(column, [0.5], noise=noise(), **PUBLIC),
        fcstream.private_histogram(column, edges=[0], noise=noise(), **PUBLIC),
    ):
        assert answer.left_out == {"missing": 2, "out_of_range": 1}
    with pytest.raises(UnusableRecords, match=r"^values: "):
        fcstream.private_quantiles([np.nan], [0.5], **PUBLIC)


def test_codes_and_texts():
    codes = np.random.default_rng(2).integers(0, 2, (5000, 2)).astype(float)
    codes[:4, 0] = [2, 0.5, np.nan, -1]
    for function in (fcstream.private_marginals, fcstream.private_synthetic):
        assert function(codes, rho=1, noise=noise()).left_out == {"missing": 1, "unknown_level": 3}
        with pytest.raises(UnusableRecords, match=r"^rows: "):
            function(codes[:4], rho=1)
    texts = ["a"] * 500 + [None, "", 0.5, "x" * 300, float("nan")]
    answer = fcstream.private_frequent(texts, rho=1, delta=1e-6, noise=noise())
    assert answer.left_out == {"missing": 3, "not_a_text": 1, "too_long": 1}
    ids = [*range(499), None, *range(5)]
    answer = fcstream.private_frequent(texts, ids=ids, rho=1, delta=1e-6, noise=noise())
    assert answer.left_out == {"missing": 4, "not_a_text": 1, "too_long": 1}
    with pytest.raises(UnusableRecords, match=r"^values: "):
        fcstream.private_frequent([None, 0.5], rho=1, delta=1e-6)
    assert json.loads(answer.to_bytes())["status"] == "released"


def test_no_rows_are_no_mistake():
    assert fcstream.private_sum(np.empty((0, 2)), noise=noise(), **PUBLIC).left_out == {}
    assert fcstream.private_frequent([], rho=1, delta=1e-6, noise=noise()).left_out == {}


def test_a_wrong_cell_leaves_out_its_row_alone():
    """The whole array was refused, or the cell was taken for a number."""
    wrong = [["x", 1], [1, True], [None, 1], [1, date(2026, 1, 1)], [1, "2"], [float("inf"), None], [1, Decimal("NaN")]]
    rows = [[Decimal(1), 2], [np.float32(3), 4.5]] * 50
    wanted = fcstream.private_sum(rows, noise=noise(), **PUBLIC).value
    for given in (wrong + rows, np.array(wrong + rows, object)):
        answer = fcstream.private_sum(given, noise=noise(), **PUBLIC)
        assert (answer.value, answer.left_out) == (wanted, {"missing": 2, "not_a_number": 4, "not_finite": 1})
    with pytest.raises(UnusableRecords, match=r"none of 2 can \(1 missing, 1 not_a_number\)"):
        fcstream.private_sum([[1, "x"], [1.5, None]], **PUBLIC)


def test_a_column_that_can_hold_no_numbers_is_refused():
    pd = pytest.importorskip("pandas")
    for odd in ([True, False], ["1", "2"], [b"1", b"2"], [date(2026, 1, 1)] * 2, pd.to_datetime(["2026-01-01"] * 2)):
        for ask, given in (
            (lambda x: fcstream.private_quantiles(x, [0.5], **PUBLIC), odd),
            (lambda x: fcstream.private_quantiles(x, [0.5], **PUBLIC), np.array(odd)),
            (lambda x: fcstream.private_sum(x, **PUBLIC), pd.DataFrame({"a": [1.5, 2.5], "b": odd})),
        ):
            with pytest.raises(ConfigError, match=r"^(values|points): must be a .*: truth values, texts, moments, "):
                ask(given)
    for public in (True, "5", None):
        with pytest.raises(ConfigError, match=r"^bounds: must be \(low, high\)"):
            fcstream.private_sum(ROWS, rho=1, step=0.01, bounds=(-10, public))
        with pytest.raises(ConfigError, match=r"^quantiles: must be a list of numbers"):
            fcstream.private_quantiles(ROWS[:, 0], [0.5, public], **PUBLIC)


def test_each_column_of_a_frame_has_a_type_of_its_own():
    """As one array of float64 all cells at the maximum of a column of float32 were left out."""
    pd, pl, pa = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    columns = {"humidity": np.full(500, 99.9, np.float32), "count": np.arange(500), "level": np.full(500, 0.3)}
    public = {"rho": 1e6, "step": 1e-6, "bounds": ((0, 0, 0), (99.9, 1000, 0.3))}
    for frame in (pd.DataFrame(columns), pl.DataFrame(columns), pa.table(columns)):
        answer = fcstream.private_sum(frame, noise=noise(), **public)
        assert answer.left_out == {}
        assert answer.value == pytest.approx([49_950, 124_750, 150], abs=2)
    estimator = fcstream.PrivateCovariance(size_hint=500, noise=noise(), **public).fit(pd.DataFrame(columns))
    assert estimator.answer_.left_out == {}
    assert estimator.feature_names_in_.tolist() == list(columns)


def test_truth_values_and_texts_are_codes():
    pd = pytest.importorskip("pandas")
    coins = np.random.default_rng(2).random((2000, 2)) < 0.5
    wanted = fcstream.private_marginals(coins.astype(int), rho=1, order=1, noise=noise()).value
    texts = np.array(["false", "true"], object)[coins.astype(int)]
    mixed = pd.DataFrame({"a": coins[:, 0], "b": texts[:, 1]})
    for given in (coins, coins.tolist(), texts, mixed, pd.DataFrame(coins).astype("boolean")):
        answer = fcstream.private_marginals(given, rho=1, order=1, noise=noise())
        assert (answer.value, answer.left_out) == (wanted, {})
    odd = [[True, "x"], [None, 1], [0, 7], [1, Decimal("0.5")], [1, date(2026, 1, 1)]]
    answer = fcstream.private_marginals(odd + coins.tolist(), rho=1, order=1, noise=noise())
    assert (answer.value, answer.left_out) == (wanted, {"missing": 1, "unknown_level": 4})
