"""Products of three bits: their sums, what one record moves, which are chosen, and what the fit makes of them."""

import itertools

import numpy as np
import pytest
from support import naive
from support.tables import codes_of, table

from fcstream._kernels import synthetic as kernels
from fcstream.synthetic import triples as module
from fcstream.synthetic.counts import TableCounts
from fcstream.synthetic.mixtures import ReleasedMoments, TableMixture, consistent
from fcstream.synthetic.triples import MAX_TRIPLES, Triples


@pytest.mark.parametrize("sizes", [[2] * 5, [2, 2, 3, 5], [3, 4, 6], [2, 2]], ids=str)
def test_every_possible_record_moves_the_sums_by_the_same(sizes):
    triples = Triples.all_of(codes_of(sizes))
    for numbers in naive.table_numbers(itertools.product(*map(range, sizes)), sizes):
        products = naive.table_triples(numbers, sizes)
        assert len(products) == len(triples.bits)
        assert sum(x * x for x in products) == triples.squared
        assert triples.squared <= len(triples.bits)
    one_set = Triples(triples.codes, triples.sets[1:2])
    assert one_set.squared <= len(one_set.bits)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("sizes", [[2] * 9, [2] * 3 + [3, 5, 6], [3, 4, 6]], ids=str)
def test_sums_of_products_are_the_twins(sizes, ahead):
    codes, rows = codes_of(sizes), table(200, sizes)
    triples = Triples.all_of(codes)
    counter = TableCounts(codes, triples=triples if ahead else None)
    for pane, part in ((1, rows[:1]), (1, rows[1:90]), (2, rows[90:])):
        counter.add(pane, part.astype(float))
    for panes, own in (([1, 2], rows), ([2], rows[90:])):
        view = counter.view(panes)
        found = triples.sums(view.triples(triples), view.moments(), view.size)
        twin = np.sum([naive.table_triples(u, sizes) for u in naive.table_numbers(own, sizes)], axis=0)
        assert found.tolist() == twin.tolist()


def test_all_triples_of_25_booleans_and_no_more():
    assert len(Triples.all_of(codes_of([2] * 25)).bits) == MAX_TRIPLES
    assert not Triples.all_of(codes_of([2] * 26)).sets
    assert len(Triples.all_of(codes_of([3, 25, 30])).bits) == 3 * 25 * 30
    assert not Triples.all_of(codes_of([4, 25, 30])).sets


def released(codes, rows, sigma):
    numbers = 2 * codes.encoded(rows) - codes.shifts
    noise = np.random.default_rng(0).normal(0, sigma, (codes.bits, codes.bits))
    pairs = numbers.T @ numbers / len(rows) + np.triu(noise, 1) + np.triu(noise, 1).T
    return ReleasedMoments(len(rows), numbers.mean(axis=0), pairs, sigma, sigma)


def test_chosen_are_triples_that_hang_together(monkeypatch):
    sizes = [2] * 6 + [3, 5]
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.integers(0, size, 4000) for size in sizes])
    rows[:, 1] = rows[:, 0] ^ (rng.random(4000) < 0.2)
    rows[:, 4] = rows[:, 1] ^ (rng.random(4000) < 0.2)
    codes = codes_of(sizes)
    monkeypatch.setattr(module, "MAX_TRIPLES", 1)
    told = released(codes, rows, 0.02)
    assert Triples.chosen(codes, told).sets == ((0, 1, 4),)
    monkeypatch.setattr(module, "MAX_TRIPLES", 40)
    many = Triples.chosen(codes, told)
    assert (0, 1, 4) in many.sets
    assert 1 <= len(many.bits) <= 40
    assert all(len(set(one)) == 3 for one in many.sets)
    monkeypatch.setattr(module, "MAX_CHOSEN_BITS", codes.bits - 1)
    assert not Triples.chosen(codes, told).sets


def test_slopes_of_triples_are_those_of_the_misfit():
    rng = np.random.default_rng(1)
    numbers, weights = rng.normal(size=(5, 7)), rng.random(7)
    triples = np.array([[0, 1, 2], [1, 3, 4], [0, 2, 4]])
    means = rng.normal(size=3)

    def misfit(numbers):
        found = [sum(weights * numbers[i] * numbers[j] * numbers[k]) for i, j, k in triples]
        return 3 * np.sum((found - means) ** 2)

    slopes = np.zeros((5, 7), np.float32)
    short = [x.astype(np.float32) for x in (numbers, weights, means)]
    kernels.add_triple_slopes(short[0], short[1], triples, short[2], np.float32(6), slopes)
    for i, s in itertools.product(range(5), range(7)):
        step = np.zeros((5, 7))
        step[i, s] = 1e-5
        assert slopes[i, s] == pytest.approx((misfit(numbers + step) - misfit(numbers - step)) / 2e-5, abs=1e-3)


def test_means_by_all_that_was_released_are_nearer():
    sizes = [2, 5, 6, 3, 4, 6]
    codes, rows = codes_of(sizes), table(5000, sizes)
    exact = released(codes, rows, 0.0).means
    told = released(codes, rows, 0.05)
    noisy = np.random.default_rng(3).normal(exact, 0.05)
    told = ReleasedMoments(5000, noisy, told.pairs, 0.05, 0.05)
    assert np.abs(released(codes, rows, 1e-9).all_say(codes) - exact).max() < 1e-6
    assert np.square(told.all_say(codes) - exact).mean() < 0.8 * np.square(noisy - exact).mean()


def test_raked_parts_have_the_means_that_are_wanted():
    codes, rng = codes_of([2, 2, 3, 6]), np.random.default_rng(2)
    points = consistent(codes, rng.random((9, codes.bits)))
    weights = rng.dirichlet(np.ones(9))
    wanted = consistent(codes, rng.random((1, codes.bits)))[0]
    points[0, 0] = 0.0
    raked = TableMixture(weights, points).raked(codes, wanted).points
    assert weights @ raked == pytest.approx(wanted, abs=2e-3)
    assert raked[0, 0] == 0
    assert consistent(codes, raked) == pytest.approx(raked, abs=1e-9)


def test_a_step_of_the_fit_equals_the_plain_formulas_to_the_last_bit():
    random, short = np.random.default_rng(4), np.float32
    for parts, bits, is_bounded in ((1, 1, True), (37, 5, False), (64, 33, True)):
        points, slope, more, first, second = random.normal(0.5, 0.4, (5, parts, bits)).astype(short)
        second = np.abs(second)
        weights, pull, shifts = (random.random(size).astype(short) for size in (parts, bits, bits))
        owners = np.sort(random.integers(0, 3, parts))
        excess, own = random.normal(size=(3, bits)).astype(short), weights[:, None]
        numbers, mass, held, sums = *np.zeros((3, parts, bits), short), np.empty(bits, short)
        kernels.weigh(points, weights, shifts, numbers, mass, held, sums)
        assert (numbers == 2 * points - shifts).all()
        assert (mass == own * (2 * points - shifts)).all()
        assert (held == own * points).all()
        assert (sums == mass.sum(axis=0)).all()
        down = (slope + pull) * (2 * own) + more + own * short(7) * excess[owners]
        expected_first = 0.9 * first + 0.1 * down
        expected_second = 0.99 * second + 0.01 * down**2
        size = short(0.02) / (np.sqrt(expected_second / short(0.3)) + short(1e-12))
        expected = points - size * expected_first / short(0.2)
        decays = np.array([0.2, 0.3], short)
        kernels.fit_step(
            points, weights, owners, slope, pull, more, excess, short(7), first, second, short(0.02), decays, is_bounded
        )
        assert (first == expected_first).all()
        assert (second == expected_second).all()
        assert (points == (np.clip(expected, 0, 1) if is_bounded else expected)).all()
