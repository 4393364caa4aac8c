"""Frequent values: the threshold, the gate on different texts, and what one record or user can change."""

import math
from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.helpers import Paid

import fcstream
from fcstream import Noise, SeededEntropy
from fcstream.accounting.losses import DELTA_UNIT, PrivacyLoss
from fcstream.formats.plain_columns import as_objects
from fcstream.releases.options import BuildContext
from fcstream.releases.statistics.frequent import FrequentOptions, ValueCounter, WindowValues
from fcstream.stream.lattice import Grid, Lattice
from fcstream.stream.user_values import UserValues

GRID = Grid(Lattice(1.0), ())
TEXTS = st.lists(st.sampled_from("abcdefgh"), max_size=40)


class Silent(Noise):
    """Draws of nothing: what is left is the arithmetic."""

    def discrete_gaussian(self, variance, size):
        return np.zeros(size, np.int64)


def mechanism_of(unit="event", **options):
    found = {"kind": "frequent", "rho": 0.5, "delta": 1e-9, **options}
    return FrequentOptions(**found).build(BuildContext(GRID, unit=unit, texts=("app",)))


def tail(variance, least):
    """The chance that a discrete Gaussian is at least `least`, to 40 digits."""
    with localcontext() as context:
        context.prec = 60
        rate = Decimal(variance.denominator) / (2 * Decimal(variance.numerator))
        far = 20 * math.isqrt(int(variance) + 1) + 20
        weights = [(-rate * y * y).exp() for y in range(far)]
        return sum(weights[least:]) / (2 * sum(weights) - 1)


@pytest.mark.parametrize("rho", [0.001, 0.1, 1.0, 20.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-9, 1e-3])
@pytest.mark.parametrize("k", [1, 7])
def test_the_threshold_is_the_least_number_that_a_text_of_one_record_hardly_reaches(rho, delta, k):
    mechanism = mechanism_of("user", rho=rho, delta=delta, values_per_user=k)
    assert mechanism.variance == Fraction(k) / (2 * Fraction(mechanism.loss.rho_nano, 10**9))
    wanted = Decimal(mechanism.loss.delta_femto) / DELTA_UNIT
    least = mechanism.threshold
    assert k * tail(mechanism.variance, least - 1) <= wanted  # 1 + N >= least
    assert least == 2 or k * tail(mechanism.variance, least - 2) > wanted * Decimal(1 - 1e-8)


@pytest.mark.parametrize("unit", ["event", "stream", "user"])
def test_gate_and_answer_cost_no_more_than_what_is_configured(unit):
    mechanism = mechanism_of(unit)
    assert mechanism.loss == PrivacyLoss.charge(0.5, 1e-9)
    assert (mechanism.gate is None) == (unit == "user")


def naive(texts, threshold, most):
    """What is told without noise."""
    counts = Counter(texts)
    if len(counts) > most:
        return None
    return sorted(((text, n) for text, n in counts.items() if n >= threshold), key=lambda each: (-each[1], each[0]))


def counted(mechanism, texts, cuts=()):
    counter = mechanism.counter(0, 1, Noise(SeededEntropy(0)))
    for part in np.split(as_objects(texts), sorted(min(cut, len(texts)) for cut in cuts)):
        counter.add(3, part)
    return counter.view(range(3, 4))


@settings(deadline=None)
@given(TEXTS, st.lists(st.integers(0, 40), max_size=3), st.integers(1, 8))
def test_without_noise_the_texts_from_the_threshold_on_are_told(texts, cuts, most):
    mechanism = mechanism_of(rho=50.0, delta=0.5, max_values=most)
    paid = Paid()
    found = mechanism.release(counted(mechanism, texts, cuts), paid, Silent(SeededEntropy(1)))
    wanted = naive(texts, mechanism.threshold, most)
    if wanted is None:
        assert (found.reason, found.value, found.parts) == ("too_many_values", None, None)
        assert paid.stages == [mechanism.gate.loss]
    else:
        assert list(zip(found.parts["levels"], found.value, strict=True)) == wanted
        assert sum(paid.stages, PrivacyLoss()) == mechanism.loss


@given(TEXTS, st.permutations(range(40)), st.integers(0, 40))
def test_neither_the_order_nor_the_parts_of_reading_change_a_seeded_release(texts, order, cut):
    mechanism = mechanism_of(rho=2.0, delta=0.01)
    shuffled = [texts[i] for i in order if i < len(texts)]
    one, two = (
        mechanism.release(counted(mechanism, each, cuts), Paid(), Noise(SeededEntropy(5)))
        for each, cuts in ((texts, ()), (shuffled, (cut,)))
    )
    assert one.parts == two.parts
    assert one.value.tolist() == two.value.tolist()


def test_a_pane_with_too_many_texts_keeps_none():
    counter = ValueCounter(3)
    counter.add(0, as_objects(["a", "b", "c"]))
    assert counter.view([0]) == WindowValues(3, {"a": 1, "b": 1, "c": 1})
    counter.add(0, as_objects(["d"]))
    counter.add(0, as_objects(["a"] * 5))
    assert counter._held[0] is None
    assert counter.view([0]) == WindowValues(4, None)
    counter.add(1, as_objects(["a", "b"]))
    counter.add(2, as_objects(["c", "d"]))
    assert counter.view([1, 2]) == WindowValues(4, None)  # of both together
    assert counter.view([1]).different == 2
    assert counter.view([0, 1]) == counter.view([0, 1, 2]) == WindowValues(4, None)  # of every window with that pane
    assert counter.view([1]) == WindowValues(2, {"a": 1, "b": 1})  # and of no other one
    counter.drop(0)
    assert counter.panes == [1, 2]
    assert "secret" not in repr(WindowValues(1, {"secret": 1}))


def test_the_gate_decides_by_a_noisy_number_and_always_above_what_is_held():
    mechanism = mechanism_of(max_values=50)
    gate = mechanism.gate
    assert gate.max_held == 50 + gate.margin
    # Of H texts or of one more: without delta it would show which.
    assert tail(gate.variance, gate.margin) <= Decimal(gate.loss.delta_femto) / DELTA_UNIT
    noise, half = Noise(SeededEntropy(1)), 400
    refused = sum(gate.refuses(50, noise) for _ in range(half))
    assert 0.2 * half < refused < 0.8 * half
    assert all(gate.refuses(gate.max_held + 1, noise) for _ in range(half))


RECORDS = st.lists(st.tuples(st.sampled_from(["u", "v", "w"]), st.sampled_from("abcdefgh")), max_size=40)


@given(RECORDS, st.randoms(use_true_random=False), st.integers(1, 3))
def test_a_users_texts_are_a_function_of_that_users_records(records, random, k):
    """The others may come, go, and be read in any order."""

    def kept(rows):
        users = UserValues(k, b"salt" * 8)
        for name, text in rows:
            users.add(5, as_objects([name]), np.zeros(1, np.int64), as_objects([text]))
        keys, texts = users.read(5, b"salt" * 8)
        return dict(zip(keys.tolist(), texts.tolist(), strict=True))

    shuffled = random.sample(records, len(records))
    both, alone = kept(records), [kept([row for row in shuffled if row[0] == name]) for name in "uvw"]
    assert both == kept(shuffled)
    assert both == {key: texts for each in alone for key, texts in each.items()}
    sizes = sorted(min(k, len({text for name, text in records if name == each})) for each in {r[0] for r in records})
    assert sorted(map(len, both.values())) == sizes


def test_which_texts_of_a_user_count_depends_on_user_window_and_key():
    def chosen(window=1, name="u", salt=b"a" * 32):
        users = UserValues(1, salt)
        texts = as_objects([str(i) for i in range(64)])
        users.add(window, as_objects([name] * 64), np.zeros(64, np.int64), texts)
        return users.read(window, salt)[1][0]

    assert len({chosen(), chosen(window=2), chosen(name="v"), chosen(salt=b"b" * 32)}) > 1
    assert chosen() == chosen()


def test_a_flooded_window_keeps_nothing():
    users = UserValues(2, b"k" * 32)
    users.add(0, as_objects(["u", "v"]), np.zeros(2, np.int64), as_objects(["a", "b"]))
    assert users.size(0) == 2
    users.flood(0)
    users.add(0, as_objects(["w"]), np.zeros(1, np.int64), as_objects(["a"]))
    keys, texts = users.read(0, b"k" * 32)
    assert (len(keys), texts) == (0, None)
    users.forget_before(1)
    assert users.is_empty


def test_a_user_moves_a_released_number_by_one_however_often_a_text_comes():
    rows = [("u", "a")] * 30 + [("v", "a"), ("v", "b"), ("v", "c")]
    names, texts = zip(*rows, strict=True)
    users = UserValues(2, b"k" * 32)
    users.add(0, as_objects(names), np.zeros(len(rows), np.int64), as_objects(texts))
    counter = mechanism_of("user", values_per_user=2).counter(0, 1, Noise(SeededEntropy(0)))
    counter.add(0, users.read(0, b"k" * 32)[1])
    counts = counter.view([0]).counts
    assert sum(counts.values()) == 3
    assert counts["a"] in (1, 2)
    assert set(counts.values()) <= {1, 2}


@pytest.mark.slow
def test_noise_is_as_wide_as_sigma_says():
    texts = ["a"] * 500 + ["b"] * 300
    noise = Noise(SeededEntropy(9))
    runs = [fcstream.private_frequent(texts, rho=0.02, delta=1e-6, noise=noise) for _ in range(800)]
    assert all(run.parts["levels"] == ["a", "b"] for run in runs)
    drawn, sigma = np.array([run.value for run in runs]), runs[0].sigma[0]
    # Five deviations of a sample variance of 800 draws: a false alarm in a million runs.
    assert np.all(np.abs(drawn.std(axis=0) / sigma - 1) < 5 / math.sqrt(2 * 800))
    assert np.all(np.abs(drawn.mean(axis=0) - [500, 300]) < 5 * sigma / math.sqrt(800))


def test_a_list_may_hold_anything():
    answer = fcstream.private_frequent(
        ["Zu\u0308rich", "Z\u00fcrich", None, "", 7, "7", "x" * 300, "\ud800", 3.5, True] * 50, rho=1, delta=1e-9
    )
    assert sorted(answer.parts["levels"]) == ["7", "Z\u00fcrich", "true"]
    assert answer.features is None
    assert (answer.rho, answer.delta) == (1.0, 1e-9)


def test_users_of_a_list_count_once():
    ids = np.repeat(np.arange(200), 50)
    answer = fcstream.private_frequent(["a"] * 9000 + ["b"] * 1000, ids=ids, rho=1, delta=1e-9)
    assert answer.parts["levels"] == ["a", "b"]
    np.testing.assert_allclose(answer.value, [180, 20], atol=8)


@pytest.mark.parametrize(
    ("unit", "options", "key"),
    [
        ("user", {"max_values": 10}, "release.max_values"),
        ("event", {"values_per_user": 2}, "release.values_per_user"),
        ("user", {"values_per_user": 0}, "release.values_per_user"),
        ("event", {"max_values": 0}, "release.max_values"),
        ("event", {"feature": "title"}, "release.feature"),
        ("event", {"delta": 0.0}, "release.delta"),
        ("event", {"rho": 1e-9}, "release.rho"),  # ended in a division by zero
    ],
)
def test_wrong_options_are_refused(unit, options, key):
    with pytest.raises(fcstream.ConfigError) as caught:
        mechanism_of(unit, **options)
    assert caught.value.key == key


def test_a_window_is_refused_at_a_fraction_of_the_cost():
    answer = fcstream.private_frequent([str(i) for i in range(500)], rho=1, delta=1e-9, max_values=100)
    assert (answer.reason, answer.value, answer.parts) == ("too_many_values", None, None)
    assert answer.rho == 0.02


def test_a_plan_says_which_texts_are_told():
    mechanism = mechanism_of()
    notes = mechanism.notes(5, GRID)
    assert f"from a noisy number of {mechanism.threshold} records on" in notes.lines[0]
    assert notes.facts["threshold"] == mechanism.threshold
    assert "raise `release.rho`" in notes.warnings[0]
    assert mechanism.notes(10_000, GRID).warnings == ()
    assert notes.stopped == mechanism.gate.loss
    more = mechanism.with_loss(PrivacyLoss.charge(2.0, 1e-9))
    assert (more.gate, more.loss.rho) == (mechanism.gate, 2.0)
