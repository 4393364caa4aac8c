"""Rows that functions about arrays leave out: told to the caller, and to nobody else."""

import json

import numpy as np
import pytest

import fcstream
from fcstream import Noise, Release, SeededEntropy, UnusableRecords

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
