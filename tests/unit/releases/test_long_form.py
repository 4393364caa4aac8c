"""Releases in long form: which number is called what."""

from dataclasses import replace

import numpy as np
import pytest
from support.release_kinds import released

from fcstream import Release
from fcstream.releases.intervals import interval_of
from fcstream.releases.long_form import intervals, long_form, named_numbers
from fcstream.testing import sample_release


def made(**changes):
    return Release(**(FIELDS | changes))


FIELDS = {name: getattr(sample_release(), name) for name in Release.__slots__}
PLACES = ["a/0", "b/0", "a/1", "b/1", "a/2", "b/2"]
NAMES = {
    "mean/recentered": ["a", "b"],
    "mean/friendly": ["a", "b"],
    "mean/ball": ["a", "b"],
    "mean/tracking": ["a", "b"],
    "mean/basic": ["a", "b"],
    "count": ["count"],
    "sum": ["a", "b"],
    "total": ["total"],
    "histogram": ["a/-40..0", "a/0..20", "a/20..80"],
    "quantiles": ["a/0.1", "a/0.5", "a/0.9"],
    "variance": ["a", "b"],
    "centers/auto": PLACES,
    "centers/friendly": PLACES,
    "mixtures/auto": PLACES,
    "marginals": [f"a,b/{a},{b}" for a in ("-40..0", "0..30", "30..80") for b in ("0..20", "20..60", "60..100")],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_numbers_have_names(name):
    release = released(name)
    found = list(named_numbers(release))
    assert [number[0] for number in found] == NAMES[name]
    assert [number[1] for number in found] == np.ravel(release.value).tolist()
    ends = [pair for pair in intervals(release) if None not in pair]
    assert all(low <= number[1] <= high for number, (low, high) in zip(found, ends, strict=False))
    # Where the noise is known, there is an interval, or a word for why there is none.
    assert bool(ends or "no_interval" in (release.parts or {})) == any(number[2] is not None for number in found)
    sigmas = [None] * len(found) if release.sigma is None else np.ravel(release.sigma).tolist()
    assert [number[2] for number in found] == sigmas


@pytest.mark.parametrize("name", ["points/cells", "points/tree"])
def test_points_have_numbers(name):
    release = released(name)
    found = [number[0] for number in named_numbers(release)]
    assert len(set(found)) == len(found) == np.size(release.value)
    assert found[:2] == ["a/0", "b/0"]


def test_made_up_rows_have_no_numbers_but_a_row_that_says_so():
    """What they are drawn from, thousands of numbers, means nothing one by one."""
    release = released("synthetic")
    assert np.size(release.value) > 1
    (row,) = long_form([release])
    assert (row.status, row.kind, row.name, row.value) == ("released", "synthetic", None, None)


def test_a_covariance_names_both_features():
    release = made(kind="covariance", features=["a", "b"], value=[[1.0, 2.0], [2.0, 5.0]], sigma=None)
    assert [number[:2] for number in named_numbers(release)] == [("a/a", 1), ("b/a", 2), ("a/b", 2), ("b/b", 5)]


def test_categories_and_edges_are_written_so_that_they_can_be_told_apart():
    parts = {"feature": "a", "categories": [1.0, 2.5]}
    release = made(kind="histogram", features=None, value=[1.0, 2.0, 3.0], sigma=[1.0] * 3, parts=parts)
    assert [number[0] for number in named_numbers(release)] == ["a/1", "a/2.5", "a/other"]
    parts = {"feature": "a", "edges": [1000000.25, 1000000.5, 1e30]}
    release = made(kind="histogram", features=None, value=[1.0, 2.0], sigma=[1.0] * 2, parts=parts)
    assert [number[0] for number in named_numbers(release)] == [
        "a/1000000.25..1000000.5",
        f"a/1000000.5..{int(1e30)}",
    ]


def test_numbers_of_frequent_texts_are_called_by_their_texts():
    parts = {"feature": "app", "levels": ["maps", "mail"], "threshold": 8}
    release = made(kind="frequent", features=None, value=[9.0, 8.0], sigma=[1.0] * 2, parts=parts)
    assert list(named_numbers(release)) == [("app/maps", 9.0, 1.0), ("app/mail", 8.0, 1.0)]


def test_what_nobody_has_named_is_counted():
    """Values of other packages' kinds, of any shape; what is no number has no row."""
    release = made(kind="hot", features=None, value=[[1, None], ["x", [2.0, True]]], sigma=[0.5], parts={"x": 1})
    assert list(named_numbers(release)) == [("hot/0/0", 1, None), ("hot/1/1/0", 2.0, None)]


def test_null_sigmas_stay_null():
    release = made(kind="centers", features=["a", "b"], value=[[1.0, 2.0]], sigma=[[0.5, None]])
    assert [number[2] for number in named_numbers(release)] == [0.5, None]


def test_a_refusal_has_one_row_and_a_key_its_own_column():
    (row,) = long_form([made(stream="t/x/y", key="x/y", status="refused", reason="too_few", value=None, sigma=None)])
    assert (row.stream, row.key, row.name, row.value, row.sigma) == ("t", "x/y", None, None, None)
    assert (row.status, row.reason) == ("refused", "too_few")
    assert row.low is row.high is None
    assert row.answer == row.kind == "mean"


def test_both_ends_of_intervals_stand_beside_their_numbers():
    value, sigma = [[1.0, 2.0], [3.0, 4.0]], [[0.5, None], [0.0, 1.0]]
    release = made(kind="centers", features=["a", "b"], value=value, sigma=sigma)
    assert {(row.low, row.high) for row in long_form([release])} == {(None, None)}  # of a version without intervals
    rows = list(long_form([replace(release, interval=interval_of("normal", value, sigma))]))
    assert [(row.low, row.high) for row in rows] == [
        (1.0 - 0.98, 1.0 + 0.98),
        (None, None),
        (3.0, 3.0),
        (4.0 - 1.96, 4.0 + 1.96),
    ]
