"""Friend counts under predicates on tuples, matrices, bits and a user's function."""

import doctest
import threading
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from support import naive

import fcstream.predicates.bits
from fcstream.errors import ConfigError
from fcstream.predicates import (
    HammingBits,
    MatchTuples,
    MatchWithin,
    MatrixDistance,
    OrderedTuples,
    PredicateCounts,
    UserPredicate,
    base,
    pack_bits,
)
from fcstream.predicates.matrices import min_eigenvalue
from fcstream.stream.lattice import MAX_COORDINATE

SEVENTH = Fraction(1, 7)


@njit
def near(x, y):
    total = 0.0
    for c in range(len(x)):
        total += (x[c] - y[c]) ** 2
    return total <= 50.0


def near_twin(x, y):
    return sum((int(a) - int(b)) ** 2 for a, b in zip(x, y, strict=True)) <= 50


def counts_of(predicate, items):
    counter = PredicateCounts(predicate)
    counter.add(0, items)
    return counter.counts([0]).tolist()


def clusters(rng, n, k, d, spread=100.0, noise=6.0, strangers=0.2):
    """Tuples around k centers in any order, some strangers, some equal tuples, some tuples with equal points."""
    centers = rng.normal(size=(k, d)) * spread
    items = centers + rng.normal(size=(n, k, d)) * noise * rng.choice([0.2, 1, 2], size=(n, 1, 1))
    odd = rng.random(n) < strangers
    items[odd] = rng.normal(size=(odd.sum(), k, d)) * spread
    items = rng.permuted(np.rint(items), axis=1) if d == 1 else np.rint(items)[:, rng.permutation(k)]
    if n > 4:
        items[1] = items[0]
        items[2] = items[0][::-1]
        items[3, -1] = items[3, 0]
        items[4] = items[3]
    return items


def random_matrices(rng, n, d, width=0.08):
    """Symmetric positive definite matrices at distances around 0.1, one singular, one equal pair."""
    root = rng.normal(size=(d, d)) + 2 * np.eye(d)
    change = rng.normal(size=(n, d, d)) * width / d**0.5
    matrices = root @ (np.eye(d) + (change + change.transpose(0, 2, 1)) / 2) @ root.T
    matrices = (matrices + matrices.transpose(0, 2, 1)) / 2
    if n > 3:
        matrices[1] = matrices[0]
        matrices[2] = np.outer(np.arange(d) + 1, np.arange(d) + 1)  # singular, if d > 1
        matrices[3] = matrices[2]
    return matrices


def case(name, rng, n):
    """(predicate, items, twin of two items)"""
    k, d = int(rng.integers(1, 6)), int(rng.integers(1, 5))
    gamma = Fraction(rng.choice(["1/7", "1/3", "1/2", "1", "5/9"]))
    spread = float(rng.choice([2, 100, 10**11]))  # many ties; some; sums beyond 2**53
    tuples = clusters(rng, n, k, d, spread, spread * rng.choice([0.02, 0.06, 0.2]))
    if name == "match":
        return MatchTuples(k, d, gamma), tuples, lambda x, y: naive.match_tuples(x, y, gamma)
    if name == "within":
        r2 = max(1, int(rng.choice([0.001, 0.01, 0.1]) * min(spread, 1e7) ** 2))
        return MatchWithin(k, d, r2, gamma), tuples, lambda x, y: naive.match_within(x, y, gamma, r2)
    if name == "ordered":
        r2 = tuple(max(1, int(r)) for r in rng.uniform(0.001, 0.4, k) * min(spread, 1e7) ** 2)
        return OrderedTuples(r2, d), tuples, lambda x, y: naive.ordered_tuples(x, y, r2)
    if name == "bits":
        bits = int(rng.choice([1, 7, 63, 64, 65, 130, 200]))
        limit = int(rng.integers(0, bits + 1))
        strings = rng.random((n, bits)) < 0.5
        strings[n // 2 :] = strings[: n - n // 2] ^ (rng.random((n - n // 2, bits)) < 0.2)
        words = pack_bits(strings)
        text = {row.tobytes(): string for row, string in zip(words, strings, strict=True)}
        return (
            HammingBits(bits, limit),
            words,
            lambda x, y: naive.hamming_bits(text[x.tobytes()], text[y.tobytes()], limit),
        )
    if name == "user":
        return UserPredicate(near), np.rint(rng.normal(size=(n, 3)) * 4), near_twin
    raise AssertionError(name)


KINDS = ["match", "within", "ordered", "bits", "user"]


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=25)
@given(st.integers(1, 90), st.integers(0, 2**32 - 1))
def test_counts_equal_the_naive_twin_in_any_batches_and_order(name, n, seed):
    rng = np.random.default_rng(seed)
    predicate, items, twin = case(name, rng, n)
    expected = naive.predicate_counts(items, twin)
    assert counts_of(predicate, items) == expected
    order = rng.permutation(n)
    counter = PredicateCounts(predicate)
    for part in np.array_split(order, int(rng.integers(1, n + 1))):
        counter.add(7, items[part])
    assert counter.counts([7]).tolist() == [expected[i] for i in order]
    assert counter.size(7) == n


@pytest.mark.parametrize("name", [*KINDS, "matrices"])
def test_every_window_over_panes_equals_the_naive_twin(name, monkeypatch):
    monkeypatch.setattr(base, "BATCH", 7)  # many batches
    monkeypatch.setattr(base, "_MAX_TILES", 1)  # many chunks
    monkeypatch.setattr(base, "_FIRST_TILES", 1)
    monkeypatch.setattr(base, "_PIVOT_AT", 5)  # many pivots
    monkeypatch.setattr(base, "_PIVOT_AFTER", 2)
    rng = np.random.default_rng(5)
    reach, n, distinct = 3, 330, 50
    if name == "matrices":
        predicate, pool, twin = MatrixDistance(3, 0.1), random_matrices(rng, distinct, 3), matrix_twin
    else:
        predicate, pool, twin = case(name, rng, distinct)
    bits = [[twin(x, y) for y in pool] for x in pool]
    drawn = rng.integers(0, distinct, n)
    items = pool[drawn]
    counter = PredicateCounts(predicate, reach)
    held: dict[int, list[int]] = {}
    done = 0
    while done < n:
        pane, m = int(rng.integers(0, 6)), int(rng.integers(1, 40))
        counter.add(pane, items[done : done + m])
        held.setdefault(pane, []).extend(range(done, min(n, done + m)))
        done += m
        if rng.random() < 0.1:
            gone = int(rng.integers(0, 6))
            counter.drop(gone)
            counter.drop(gone)
            held.pop(gone, None)
        first = int(rng.integers(0, 6))
        window = [i for pane in range(first, first + reach) for i in held.get(pane, [])]
        got = counter.counts(range(first + reach - 1, first - 1, -1)).tolist()
        assert got == [sum(i == j or bits[drawn[i]][drawn[j]] for j in window) for i in window]
        assert counter.panes == sorted(held)
        assert all(counter.size(pane) == len(held.get(pane, [])) for pane in range(6))


def matrix_twin(x, y):
    """matrixDist by eigenvalues, away from the limit."""
    if np.linalg.eigvalsh(x)[0] < 1e-9 or np.linalg.eigvalsh(y)[0] < 1e-9:
        return False
    inverse = np.linalg.inv(np.linalg.cholesky(x))
    values = np.linalg.eigvalsh(inverse @ y @ inverse.T)
    distance = max(abs(values - 1).max(), abs(1 / values - 1).max())
    assert abs(distance - 0.1) > 1e-5, "the test's data came too close to the limit"
    return distance <= 0.1


@pytest.mark.slow
@pytest.mark.parametrize("k", [2, 5, 8])
@pytest.mark.parametrize("d", [2, 16])
def test_all_steps_of_a_match_at_full_size(k, d):
    """Tight, wide and broken clusters in one window: pivot, numbers and full comparison all decide some pairs."""
    rng = np.random.default_rng(k * d)
    items = np.concatenate([clusters(np.random.default_rng(1), 24, k, d, 1e4, noise, 0.1) for noise in (3, 80, 400)])
    items = items[rng.permutation(len(items))]
    items = np.stack([item[rng.permutation(k)] for item in items])
    expected = naive.predicate_counts(items, lambda x, y: naive.match_tuples(x, y, SEVENTH))
    assert 3 < np.mean(expected) < len(items)
    assert counts_of(MatchTuples(k, d), items) == expected
    within = MatchWithin(k, d, int(300**2 * d))
    expected = naive.predicate_counts(items, lambda x, y: naive.match_within(x, y, SEVENTH, int(300**2 * d)))
    assert counts_of(within, items) == expected


@pytest.mark.parametrize("scale", [1, 7919, 2**30, 2**36 + 1])
@pytest.mark.parametrize("gamma", [SEVENTH, Fraction(3, 5), Fraction(1)])
def test_equality_is_no_match_at_any_scale(gamma, scale):
    """den^2 * D1 against num^2 * D2 with a difference of -1, 0 and +1 step of one coordinate."""
    p, q = gamma.denominator, gamma.numerator
    x = np.array([[0, 0], [(p + q) * scale, 0]], np.float64)
    at = np.array([[q * scale, 0], [(p + q) * scale, 0]], np.float64)  # |x_1 - y_1| = q, |x_2 - y_1| = p
    for nudge in (-1, 0, 1):
        y = at.copy()
        y[0, 0] += nudge
        expected = naive.match_tuples(x, y, gamma)
        assert expected == (nudge < 0)
        for a, b in ((x, y), (y, x), (x[::-1], y), (x, y[::-1])):
            assert MatchTuples(2, 2, gamma)(a, b) == expected
            radius_squared = int((q * scale + nudge) ** 2)
            if 1 <= radius_squared < 2**53:
                assert MatchWithin(2, 2, radius_squared, gamma)(a, b) == expected
                assert not MatchWithin(2, 2, max(1, radius_squared - 1), gamma)(a, b) or radius_squared == 1


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(2, 4), st.integers(1, 6))
def test_near_ties_of_huge_coordinates_are_decided_in_integers(seed, k, d):
    """Sums far beyond 2**53 that differ by a few units, too close for floats."""
    rng = np.random.default_rng(seed)
    gamma = Fraction(rng.choice(["1", "1/2", "3/5", "1/7"]))
    far = MAX_COORDINATE
    x = np.rint(rng.uniform(-far, far, size=(k, d)))
    # a point of y that splits the way between two points of x in the ratio gamma : 1, plus a little
    y = x.copy()
    share = float(gamma / (1 + gamma))
    y[0] = np.rint(x[0] + (x[1] - x[0]) * share)
    items = [x, y]
    for _ in range(6):
        z = y.copy()
        z[0] += rng.integers(-1, 2, d)
        items.append(np.clip(z, -far, far))
    items = np.stack([item[rng.permutation(k)] for item in items])
    expected = naive.predicate_counts(items, lambda a, b: naive.match_tuples(a, b, gamma))
    assert counts_of(MatchTuples(k, d, gamma), items) == expected


@pytest.mark.parametrize("gamma", [SEVENTH, Fraction(1, 2), Fraction(3, 5), Fraction(1)])
def test_sums_of_80_bits_that_differ_by_one_unit(gamma):
    """Equal, or one unit apart: floats cannot tell, integers do, for either point that decides."""
    p, q, n = gamma.denominator, gamma.numerator, 2**36
    for extra in (0, 1, -1):
        other = [-p * n, extra]
        x, y = np.array([[0, 0], other], np.float64), np.array([[q * n, 0], other], np.float64)
        expected = naive.match_tuples(x, y, gamma)
        assert expected == (extra != 0)
        for a, b in ((x, y), (y, x), (x[::-1], y), (x, y[::-1])):
            assert MatchTuples(2, 2, gamma)(a, b) == expected
            assert not MatchWithin(2, 2, 2**53 - 1, gamma)(a, b)


def test_a_tuple_with_equal_points_counts_itself_only():
    twins = np.array([[[1.0, 2.0], [1.0, 2.0]]] * 5)
    assert counts_of(MatchTuples(2, 2), twins) == [1] * 5
    assert counts_of(MatchWithin(2, 2, 100), twins) == [1] * 5
    assert counts_of(OrderedTuples((1, 1), 2), twins) == [5] * 5
    assert not MatchTuples(2, 2)(twins[0], twins[1])
    proper = np.array([[[1.0, 2.0], [1.0, 3.0]]] * 5)
    assert counts_of(MatchTuples(2, 2), proper) == [5] * 5


def test_single_points():
    points = np.array([[[0.0]], [[3.0]], [[MAX_COORDINATE]]])
    assert counts_of(MatchTuples(1, 1), points) == [3, 3, 3]
    assert counts_of(MatchWithin(1, 1, 9), points) == [2, 2, 1]
    assert counts_of(OrderedTuples((8,), 1), points) == [1, 1, 1]


@pytest.mark.parametrize("scale", [1, 2**20])
def test_ordered_boundary(scale):
    far = 2**39
    x = np.array([[far, -far], [-far, far]], np.float64)
    y = x + np.array([[3, 4], [5, 12]], np.float64) * scale
    for low, high in ((0, 0), (-1, 0), (0, -1), (1, 1)):
        r2 = (25 * scale**2 + low, 169 * scale**2 + high)
        assert OrderedTuples(r2, 2)(x, y) == OrderedTuples(r2, 2)(y, x) == (min(low, high) >= 0)


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 2, 3, 5, 10])
def test_matrix_counts_equal_the_naive_twin(d):
    rng = np.random.default_rng(d)
    matrices = random_matrices(rng, 24 if d < 5 else 12, d)
    limit = Fraction(0.1)
    outer = naive.predicate_counts(matrices, lambda x, y: naive.matrix_distance(x, y, limit))
    inner = naive.predicate_counts(matrices, lambda x, y: naive.matrix_distance(x, y, limit * (1 - Fraction(1, 2**15))))
    assert inner == outer, "no pair of the test's data is near the limit"
    if d > 1:  # a rank-one matrix is not positive definite
        assert outer[2] == outer[3] == 1
    assert outer[0] == outer[1] >= 2
    assert 1 < np.mean(outer) < len(matrices)
    assert counts_of(MatrixDistance(d, 0.1), matrices) == outer
    scales = 2.0 ** rng.integers(-100, 100, d)  # the distance does not change
    assert counts_of(MatrixDistance(d, 0.1), matrices * scales * scales[:, None]) == outer


def test_matrix_bits_do_not_depend_on_order_or_batch():
    """Also at the limit itself, where rounding decides."""
    rng = np.random.default_rng(0)
    d, n = 4, 150
    matrices = random_matrices(rng, n, d)
    for i in range(4, n, 2):  # pairs at the edge of the margin
        values, vectors = np.linalg.eigh(matrices[i])
        root = vectors * values**0.5
        stretch = np.eye(d)
        stretch[0, 0] = 1 + 0.1 * (1 - 2**-16)
        pair = root @ stretch @ root.T
        matrices[i + 1] = (pair + pair.T) / 2
    predicate = MatrixDistance(d, 0.1)
    whole = counts_of(predicate, matrices)
    for _ in range(5):
        order = rng.permutation(n)
        counter = PredicateCounts(predicate)
        for part in np.array_split(order, int(rng.integers(1, n))):
            counter.add(0, matrices[part])
        assert counter.counts([0]).tolist() == [whole[i] for i in order]


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5))
def test_matrix_friends_are_truly_within_the_limit(seed, d):
    """Pairs within rounding of the limit: the margin is wider than the rounding."""
    rng = np.random.default_rng(seed)
    limit = float(rng.choice([0.01, 0.1, 1.0, 30.0]))
    root = rng.normal(size=(d, d)) * 10.0 ** rng.uniform(-3, 3, d)
    x = root @ root.T
    stretch = np.ones(d)
    stretch[0] = (1 + limit * (1 + rng.choice([-(2**-15), -(2**-16), -(2**-17), 0, 2**-40]))) ** rng.choice([-1, 1])
    y = root @ np.diag(stretch) @ root.T
    x, y = (x + x.T) / 2, (y + y.T) / 2
    predicate = MatrixDistance(d, limit)
    assert predicate(x, y) == predicate(y, x)
    if predicate(x, y):
        assert naive.matrix_distance(x, y, Fraction(limit) * (1 + Fraction(1, 2**60)))
    scale = np.sqrt(np.diag(x))
    safe = np.linalg.eigvalsh(x / scale / scale[:, None])[0] > 2 * min_eigenvalue(d, limit)
    if safe and abs(stretch[0] - 1) < limit and naive.matrix_distance(x, y, Fraction(limit) * (1 - Fraction(1, 2**15))):
        assert predicate(x, y)


def test_matrices_that_are_not_positive_definite_count_themselves_only():
    bad = np.stack([np.zeros((2, 2)), -np.eye(2), np.ones((2, 2)), np.diag([1, 1e-200]), np.diag([1e300, 1e300])])
    assert counts_of(MatrixDistance(2, 0.5), np.concatenate([bad, bad])) == [1] * 10
    nearly = np.array([[1, 1 - 1e-12], [1 - 1e-12, 1]])
    assert not MatrixDistance(2, 0.5)(nearly, nearly)


@pytest.mark.parametrize("bits", [1, 64, 65, 1024])
def test_hamming_limits_and_packing(bits):
    rng = np.random.default_rng(bits)
    x = rng.random(bits) < 0.5
    for distance in {0, 1, bits // 2, bits}:
        y = x.copy()
        y[rng.permutation(bits)[:distance]] ^= True
        a, b = pack_bits(np.stack([x, y]))
        for limit in {0, max(0, distance - 1), distance, bits}:
            assert HammingBits(bits, limit)(a, b) == (distance <= limit)
    words = pack_bits(x[None])
    assert words.shape == (1, -(-bits // 64))
    assert [bool(int(words[0, j // 64]) >> (j % 64) & 1) for j in range(bits)] == x.tolist()
    assert pack_bits(np.empty((0, bits), bool)).shape == (0, -(-bits // 64))
    assert doctest.testmod(fcstream.predicates.bits).attempted > 0


@pytest.mark.slow
def test_user_functions_of_every_kind():
    numbers = np.array([1, 2, 4, 8], np.int64)
    assert counts_of(UserPredicate(lambda x, y: abs(x - y) <= 2), numbers) == [2, 3, 2, 1]
    words = numbers.astype(np.uint64)
    assert counts_of(UserPredicate(lambda x, y: x % np.uint64(2) == y % np.uint64(2)), words) == [1, 3, 3, 3]
    pictures = np.arange(3 * 2 * 2, dtype=np.float64).reshape(3, 2, 2)
    assert counts_of(UserPredicate(lambda x, y: abs(x[1, 1] - y[1, 1]) < 5), pictures) == [2, 3, 2]


def test_input_is_copied_and_not_changed():
    items = np.rint(np.random.default_rng(0).normal(size=(40, 3, 2)) * 100)
    before = items.copy()
    counter = PredicateCounts(MatchTuples(3, 2))
    counter.add(0, items)
    assert (items == before).all()
    expected = counter.counts([0]).tolist()
    items[:] = 0
    counter.add(0, before)
    assert counter.counts([0]).tolist()[:40] == counts_of(MatchTuples(3, 2), np.concatenate([before, before]))[:40]
    assert expected == counts_of(MatchTuples(3, 2), before)


def test_counters_in_threads_do_not_disturb_each_other():
    rng = np.random.default_rng(2)
    cases = [case(name, np.random.default_rng(i), 400) for i, name in enumerate(KINDS[:4])]
    expected = [counts_of(predicate, items) for predicate, items, _ in cases]
    results = [None] * len(cases)

    def work(i):
        predicate, items, _ = cases[i]
        for _ in range(3):
            counter = PredicateCounts(predicate)
            for part in np.array_split(items, 20):
                counter.add(0, part)
            results[i] = counter.counts([0]).tolist()

    threads = [threading.Thread(target=work, args=(i,)) for i in rng.permutation(len(cases))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == expected


def test_no_items_no_counts():
    counter = PredicateCounts(HammingBits(8, 1))
    counter.add(0, np.empty((0, 1), np.uint64))
    assert counter.counts([0, 0]).shape == (0,)
    assert counter.counts([]).dtype == np.int64
    assert counter.panes == []
    assert counter.size(3) == 0


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: MatchTuples(0, 2), "k: must be at least 1"),
        (lambda: MatchTuples(2, 0), "dimension"),
        (lambda: MatchTuples(2, 2**16), "dimension"),
        (lambda: MatchTuples(2, 2, Fraction(0)), "gamma"),
        (lambda: MatchTuples(2, 2, Fraction(8, 7)), "gamma"),
        (lambda: MatchTuples(2, 2, 0.5), "gamma: must be a Fraction"),
        (lambda: MatchTuples(2, 1000, Fraction(99, 100)), "simpler fraction"),
        (lambda: MatchTuples(2, 2, Fraction(1, 2**26)), "simpler fraction"),
        (lambda: MatchWithin(2, 2, 0), "radius_squared"),
        (lambda: MatchWithin(2, 2, 2**53), "radius_squared"),
        (lambda: OrderedTuples((), 2), "radii_squared: must be at least 1 point"),
        (lambda: OrderedTuples((1, 0), 2), "radii_squared"),
        (lambda: MatrixDistance(0, 0.1), "dimension"),
        (lambda: MatrixDistance(2, 0.0), "limit"),
        (lambda: MatrixDistance(2, np.nan), "limit"),
        (lambda: MatrixDistance(2, 1e-12), "no matrix could be decided"),
        (lambda: HammingBits(0, 0), "bits"),
        (lambda: HammingBits(8, 9), "limit"),
        (lambda: HammingBits(8, -1), "limit"),
        (lambda: UserPredicate("f"), "must be a function of two items, got str"),
        (lambda: pack_bits([[1, 0]]), "must be bool"),
        (lambda: PredicateCounts(near), "must be a predicate"),
        (lambda: PredicateCounts(HammingBits(8, 1), 0), "reach"),
        (lambda: PredicateCounts(HammingBits(8, 1), 2).counts([0, 2]), "less than reach=2 apart, got 0 to 2"),
    ],
)
def test_bad_arguments(make, what):
    with pytest.raises(ConfigError, match=what):
        make()


def test_two_items_must_have_one_shape():
    with pytest.raises(ConfigError, match="same shape"):
        HammingBits(8, 1)(np.zeros(1, np.uint64), np.zeros(2, np.uint64))


SENTINEL = 777123


@pytest.mark.parametrize(
    ("predicate", "items", "what"),
    [
        (MatchTuples(2, 2), np.full((3, 2), float(SENTINEL)), "shape"),
        (MatchTuples(2, 2), np.full((3, 3, 2), float(SENTINEL)), "shape"),
        (MatchTuples(2, 2), np.full((3, 2, 2), SENTINEL + 0.5), "lattice"),
        (MatchTuples(2, 2), np.full((3, 2, 2), np.nan), "lattice"),
        (OrderedTuples((1, 1), 2), np.full((3, 2, 2), SENTINEL * 2.0**40), "lattice"),
        (MatchTuples(2, 2), [[SENTINEL], [1, 2]], "rectangular"),
        (MatrixDistance(2, 0.1), np.full((3, 2), float(SENTINEL)), "shape"),
        (MatrixDistance(2, 0.1), np.full((3, 2, 2), np.inf), "finite"),
        (MatrixDistance(2, 0.1), np.array([[[1.0, SENTINEL], [0, 1]]]), "symmetric"),
        (MatrixDistance(2, 0.1), [["x"]], "rectangular"),
        (HammingBits(8, 1), np.full((3, 1), SENTINEL), "uint64"),
        (HammingBits(8, 1), np.full((3, 2), 1, np.uint64), "shape"),
        (HammingBits(8, 1), np.full((3, 1), SENTINEL, np.uint64), "beyond"),
        (UserPredicate(lambda x, y: x < y), np.array([float(SENTINEL)]), "reflexive"),
        (UserPredicate(lambda x, y: x <= y), np.array([float(SENTINEL), 1]), "symmetric"),
        (UserPredicate(lambda x, y: x.nothing), np.array([float(SENTINEL)]), "compile"),
        (UserPredicate(lambda x: True), np.array([float(SENTINEL)]), "compile"),
        (UserPredicate(lambda x, y: True), np.array([SENTINEL], np.int32), "float64, int64 or uint64"),
    ],
)
def test_bad_items_change_nothing_and_are_not_shown(predicate, items, what):
    counter = PredicateCounts(predicate)
    with pytest.raises(ConfigError, match=what) as error:
        counter.add(0, items)
    assert str(SENTINEL) not in str(error.value)
    assert error.value.__cause__ is None
    assert counter.panes == []
    assert counter.counts([0]).shape == (0,)


def test_user_items_keep_their_shape_and_errors_tear_the_counter():
    @njit
    def touchy(x, y):
        if x[0] + y[0] == 1000.0:
            raise ValueError("no")
        return True

    counter = PredicateCounts(UserPredicate(touchy))
    counter.add(0, np.ones((4, 2)))
    with pytest.raises(ConfigError, match="like the first"):
        counter.add(0, np.ones((4, 3)))
    with pytest.raises(ConfigError, match="like the first"):
        counter.add(0, np.ones((4, 2), np.int64))
    assert counter.counts([0]).tolist() == [4] * 4
    with pytest.raises(ConfigError, match="ValueError") as error:
        counter.add(0, np.full((1, 2), 999.0))
    assert "999" not in str(error.value)
    for use in (lambda: counter.counts([0]), lambda: counter.add(0, np.ones((1, 2)))):
        with pytest.raises(ConfigError, match="make a new one"):
            use()


def test_predicates_are_values():
    assert MatchTuples(2, 3) == MatchTuples(2, 3, SEVENTH)
    assert len({OrderedTuples((1, 2), 3), OrderedTuples([1, 2], 3)}) == 1
    with pytest.raises(AttributeError):
        HammingBits(8, 1).limit = 2
