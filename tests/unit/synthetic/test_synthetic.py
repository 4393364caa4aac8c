"""Synthetic tables: against slow twins, at their claimed cost, and as good as they are said to be."""

import itertools
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, stats
from support import naive
from support.helpers import data_file, sample

import fcstream
from fcstream import Noise, Release, SeededEntropy
from fcstream.accounting.losses import DPLoss, PrivacyLoss, epsilon_tight, rho_for_epsilon, zcdp_of_dp
from fcstream.config import Config
from fcstream.errors import ConfigError
from fcstream.ledgers import Request, Terms, WindowKey, open_ledger
from fcstream.ledgers.base import STREAM_BLOCK
from fcstream.releases.tables import marginals, synthetic, synthetic_paper
from fcstream.releases.tables.documents import epsilon_nano, synthetic_codes
from fcstream.releases.tables.marginals import agree
from fcstream.releases.tables.synthetic import Synthetic
from fcstream.synthetic import anonymize
from fcstream.synthetic.bingham import envelope, log_acceptance, proj, pvec
from fcstream.synthetic.cells import FINE, Cells, along, by_number, covering, rounded
from fcstream.synthetic.codes import Attribute, Codes
from fcstream.synthetic.counts import ContingencyTables, PairPanes, TableCounts, TablePanes
from fcstream.synthetic.mixtures import TableMixture, consistent, draw, product, to_simplex, to_simplex_l1

MIXED = [2] * 70 + [3, 5, 9]


class Silent(Noise):
    """Draws of nothing but 0: what is left is the arithmetic."""

    def discrete_gaussian(self, variance, size):
        return np.zeros(size, np.int64)

    def discrete_laplace(self, scale, size):
        return np.zeros(size, np.int64)


def codes_of(sizes):
    columns = [
        Attribute(f"x{k}", k, tuple(range(1, size)), tuple(map(str, range(size)))) for k, size in enumerate(sizes)
    ]
    return Codes.ordered(columns)


def table(n, sizes, seed=0):
    """Codes that hang together."""
    rng = np.random.default_rng(seed)
    lean = rng.random(n)
    return np.column_stack([np.minimum((rng.random(n) * 0.5 + lean * 0.5) * size, size - 1) for size in sizes]).astype(
        int
    )


def charge_of(loss):
    ledger = open_ledger("memory:", Terms("t", "stream", PrivacyLoss.cap(1e3, 0.5), ""))
    return ledger.charge([Request(WindowKey(0, 10_000), loss, (STREAM_BLOCK,))])[0].charge


def errors(made, real):
    """Root-mean-square errors of the 2- and 3-way marginals of Booleans."""
    made, real = made.astype(float), real.astype(float)
    found = []
    for order in (2, 3):
        gaps = [
            made[:, columns].all(axis=1).mean() - real[:, columns].all(axis=1).mean()
            for columns in map(list, itertools.combinations(range(real.shape[1]), order))
        ]
        found.append(math.sqrt(np.mean(np.square(gaps))))
    return found


# -- exact counts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [MIXED, [2] * 5, [2] * 64, [3, 4], [7]], ids=str)
def test_moments_and_cells_are_the_twins(sizes):
    codes, rows = codes_of(sizes), table(150, sizes)
    counter = TableCounts(codes)
    for pane, part in ((1, rows[:70]), (1, rows[70:71]), (2, rows[71:])):
        counter.add(pane, part.astype(float))
    view, bits = counter.view([1, 2, 7]), naive.table_bits(rows, sizes)
    assert view.size == 150
    assert view.bits().tolist() == bits
    moments = view.moments()
    assert moments.tolist() == naive.table_moments(bits)
    assert counter.view([2]).moments().tolist() == naive.table_moments(bits[71:])
    rng = np.random.default_rng(1)
    directions = rng.normal(size=(2, codes.bits))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    cells = Cells(codes, tuple(map(rounded, directions)), (5, -FINE), FINE)
    counts, ones = view.cells(cells)
    found = {}
    for row, numbers in zip(bits, naive.table_numbers(rows, sizes), strict=True):
        place = naive.table_place(numbers, cells.directions, cells.center, FINE, False)
        count, total = found.get(place, (0, np.zeros(codes.bits, int)))
        found[place] = (count + 1, total + row)
    held = sorted((count, total.tolist()) for count, total in found.values())
    assert sorted((int(c), o.tolist()) for c, o in zip(counts, ones, strict=True) if c) == held
    assert len(counts) == cells.number
    counter.drop(1)
    counter.drop(1)
    assert counter.panes == [2]
    assert counter.view([]).moments().tolist() == np.zeros((codes.bits,) * 2, int).tolist()


@pytest.mark.parametrize("sizes", [MIXED, [2] * 9, [3, 4]], ids=str)
def test_full_cells_count_as_scattered_ones(sizes):
    """Hundreds of records in one cell, where counts kept by whole words run over."""
    codes, rows = codes_of(sizes), table(700, sizes, seed=1)
    counter = TableCounts(codes)
    for part in np.array_split(rows, [1, 64, 127, 600]):
        counter.add(0, part.astype(float))
    one = Cells(codes, (rounded(np.ones(codes.bits) / math.sqrt(codes.bits)),), (0,), 10**4 * FINE)
    counts, ones = counter.view([0]).cells(one)
    assert counts.sum() == 700
    assert ones.sum(axis=0).tolist() == np.sum(naive.table_bits(rows, sizes), axis=0).tolist()


def test_columns_may_stand_anywhere():
    """Booleans between categories and numbers, which are packed first."""
    sizes, places = [2, 2, 2, 3, 5], [4, 0, 2, 3, 1]
    rows = table(90, sizes)
    spread = np.empty((90, 5))
    spread[:, places] = rows
    columns = [
        Attribute(f"x{k}", place, tuple(range(1, size)), tuple(map(str, range(size))))
        for k, (size, place) in enumerate(zip(sizes, places, strict=True))
    ]
    counter = TableCounts(Codes.ordered(columns))
    for part in (spread[:50], np.asfortranarray(spread[50:])):
        counter.add(0, part)
    assert counter.view([0]).bits().tolist() == naive.table_bits(rows, sizes)


@pytest.mark.parametrize(("panes", "order"), [(TablePanes, 1), (TablePanes, 2), (TablePanes, 3), (PairPanes, 2)])
def test_contingency_tables_are_the_twins(panes, order):
    sizes = [2, 2, 3, 5]
    rows, tables = table(80, sizes), ContingencyTables(tuple(sizes), order)
    counter = panes(codes_of(sizes), tables)
    counter.add(0, rows[:50].astype(float))
    counter.add(1, rows[50:].astype(float))
    twin = [cell for part in naive.contingency(rows.tolist(), sizes, order) for cell in part]
    assert counter.view([0, 1]).tolist() == twin
    assert (tables.cells, tables.number) == (len(twin), len(tables.sets))
    counter.drop(0)
    assert (counter.panes, counter.view([0, 1]).sum()) == ([1], 30 * len(tables.sets))


# -- sensitivities, by enumeration ---------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [[2, 2, 2, 2], [2, 3], [2, 4, 3], [2, 2, 5], [6, 7]], ids=str)
def test_sensitivities_are_those_of_every_record(sizes):
    codes = codes_of(sizes)
    everybody = naive.table_numbers(itertools.product(*map(range, sizes)), sizes)
    owner = codes.owners.tolist()
    for u in everybody:
        pairs = [u[i] * u[j] for i, j in itertools.combinations(range(len(u)), 2) if owner[i] != owner[j]]
        assert codes.norm_squared == sum(x * x for x in u)
        assert codes.norm == sum(map(abs, u))
        assert codes.pairs_squared == sum(x * x for x in pairs)
        assert codes.pairs_norm == sum(map(abs, pairs))
    if set(sizes) == {2}:
        p = len(sizes)
        assert (codes.norm_squared, codes.pairs_squared) == (p, p * (p - 1) // 2)


def test_ranges_of_second_moments_of_the_cube():
    """Replacing one record moves eigenvalues over a range of sqrt(4 / 3) p; adding one, over p."""
    for p in (3, 6):
        cube = np.array(list(itertools.product([0, 1], repeat=p)), float)
        ranges = [np.ptp(np.linalg.eigvalsh(np.outer(x, x) - np.outer(y, y))) for x in cube for y in cube]
        assert max(ranges) == pytest.approx(math.sqrt(4 / 3) * p, rel=0.01)
        assert max(ranges) < 2 * p
        assert max(np.ptp(np.linalg.eigvalsh(np.outer(x, x))) for x in cube) == pytest.approx(p)


def test_a_damped_mean_moves_by_what_the_noise_covers():
    for b, size in ((4, 3), (4, 4), (4, 5), (7, 30)):
        for kept in range(size + 1):  # one coordinate: the worst is all alike
            before = Fraction(kept, max(size, b))
            for x in (0, 1):
                assert abs(Fraction(kept + x, max(size + 1, b)) - before) <= Fraction(1, b)


# -- cells ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [[2] * 7, [2, 2, 3, 5]], ids=str)
def test_every_possible_record_has_a_cell_of_its_own_making(sizes):
    codes = codes_of(sizes)
    everybody = np.array(list(itertools.product(*map(range, sizes))))
    rng = np.random.default_rng(2)
    for trial in range(6):
        directions = rng.normal(size=(1 + trial % 3, codes.bits))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        cells = Cells(
            codes, tuple(map(rounded, directions)), tuple(range(len(directions))), int(0.7 * FINE), trial % 2 == 1
        )
        alone = []
        for row in everybody:  # alone in its window
            counter = TableCounts(codes)
            counter.add(0, row[None, :].astype(float))
            counts, _ = counter.view([0]).cells(cells)
            alone.append(int(np.flatnonzero(counts)[0]))
        numbers = naive.table_numbers(everybody, sizes)
        places = [naive.table_place(u, cells.directions, cells.center, cells.width, cells.odd) for u in numbers]
        assert len(set(zip(alone, places, strict=True))) == len(set(alone)) == len(set(places))
        counter = TableCounts(codes)
        counter.add(0, everybody[rng.permutation(len(everybody))].astype(float))  # among all others
        assert counter.view([0]).cells(cells)[0].tolist() == np.bincount(alone, minlength=cells.number).tolist()
        assert cells.number < 4 * len(set(places)) + 8, "far more cells than records can be in"


def test_noise_decides_how_many_cells():
    codes = codes_of([2] * 12)
    directions = np.linalg.qr(np.random.default_rng(0).normal(size=(12, 12)))[0]
    numbers = [along(codes, directions, np.zeros(12), noise, 0.01).number for noise in (0.0, 1e-4, 1e-3, 3e-3, 1.0)]
    assert numbers == sorted(numbers, reverse=True)
    assert numbers[0] > 50
    assert numbers[-1] <= 2
    for noise, number in zip((1e-4, 1e-3), numbers[1:3], strict=True):
        assert math.sqrt(number) * noise <= 0.01
    assert by_number(codes, 0.0, 0.01).number == 13
    assert by_number(codes, 1.0, 0.01).number == 1


def test_every_public_cell_is_released_empty_ones_too():
    rows = np.zeros((3000, 6))  # all alike: one cell holds everybody
    found = fcstream.private_synthetic(rows, rho=2.0, noise=Silent(SeededEntropy(0)))
    assert sorted(found.parts["counts"])[-1] == 3000
    assert found.parts["counts"].count(0) == len(found.parts["counts"]) - 1 > 3
    seen = [fcstream.private_synthetic(rows, rho=2.0, noise=Noise(SeededEntropy(s))).parts["counts"] for s in range(5)]
    assert all(sum(count != 0 for count in counts) > len(counts) / 2 for counts in seen)


# -- mixtures and rows ---------------------------------------------------------------------------------------------


def test_projections_onto_the_simplex():
    rng = np.random.default_rng(3)
    for n in (1, 2, 5, 40):
        weights = rng.normal(scale=0.4, size=n)
        assert to_simplex(weights) == pytest.approx(naive.to_simplex(weights.tolist()), abs=1e-9)
        kept = to_simplex_l1(weights)
        assert kept.sum() == pytest.approx(1)
        positive = np.maximum(weights, 0)
        assert np.abs(kept - weights).sum() <= np.abs(np.eye(n)[0] - weights).sum() + 1e-9
        assert (kept > 0).tolist() == (positive > 0).tolist() or positive.sum() == 0
    inside = np.array([0.2, 0.3, 0.5])
    assert to_simplex(inside) == pytest.approx(inside)
    assert to_simplex_l1(np.array([-1.0, -2.0])).tolist() == [0.5, 0.5]


def test_parts_of_a_cell_are_the_cell_until_they_are_fitted():
    codes = codes_of([2, 2, 3])
    points = consistent(codes, np.random.default_rng(8).random((3, codes.bits)))
    mixture = TableMixture(np.array([0.7, 0.25, 0.05]), points)
    owners, weights, apart = mixture._parted(codes, 20)
    assert len(weights) == 20
    assert np.bincount(owners, weights) == pytest.approx(mixture.weights)
    assert np.bincount(owners)[0] > 10
    assert consistent(codes, apart) == pytest.approx(apart)
    assert len({tuple(row) for row in apart.tolist()}) == 20
    owners, weights, same = mixture._parted(codes, 2)
    assert (owners.tolist(), weights.tolist()) == ([0, 1, 2], [0.7, 0.25, 0.05])
    assert same == pytest.approx(points)


@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (9, 300, 250), (300, 9, 700), (40, 2048, 2048), (2048, 5, 33)])
def test_products_in_parts_are_products(m, k, n):
    rng = np.random.default_rng(m)
    a, b = (rng.integers(-9, 9, shape).astype(np.float32) for shape in ((m, k), (k, n)))
    assert (product(a, b) == a @ b).all()  # small whole numbers: exact in any order
    assert (product(b.T, a.T) == (a @ b).T).all()


def test_points_become_probabilities():
    codes = codes_of([2, 2, 3, 5])
    points = consistent(codes, np.random.default_rng(4).normal(size=(20, codes.bits)))
    assert points.min() >= 0
    assert points.max() <= 1
    for block in codes.blocks[2:]:
        assert points[:, block].sum(axis=1) == pytest.approx(1)


def test_rows_have_the_law_of_their_mixture_and_one_level_each():
    codes, rng = codes_of([2, 2, 3]), np.random.default_rng(5)
    points = consistent(codes, rng.random((4, codes.bits)))
    mixture = TableMixture(np.array([0.4, 0.3, 0.2, 0.1]), points)
    rows = draw(codes, mixture, 997, 11)
    assert rows.shape == (997, 3)
    assert (rows == draw(codes, mixture, 997, 11)).all()
    assert (rows != draw(codes, mixture, 997, 12)).any()
    bits = codes.encoded(rows)
    for block in codes.blocks[2:]:
        assert (bits[:, block].sum(axis=1) == 1).all()
    # Cells and levels within them are drawn systematically: off by at most two in each cell.
    assert np.abs(bits.sum(axis=0) - 997 * (mixture.weights @ points)).max() <= 8
    pairs = np.zeros((3, 3))
    for seed in range(300):  # few rows: the law of one row, not of the sum
        few = draw(codes, mixture, 2, seed)
        for a, b in itertools.product(range(2), range(2)):
            pairs[a, b] += np.sum((few[:, 0] == a) & (few[:, 2] == b)) / 600
    law = [
        [mixture.weights @ ((points[:, 0] if a else 1 - points[:, 0]) * points[:, 2 + b]) for b in range(2)]
        for a in range(2)
    ]
    assert pairs[:2, :2] == pytest.approx(np.array(law), abs=0.09)


def test_a_release_is_read_back_to_the_same_rows():
    rows = table(4000, [2, 2, 3, 5])
    found = fcstream.private_synthetic(rows, rho=1.0, levels=[2, 2, 3, 5])
    again = Release.from_bytes(found.to_bytes())
    assert (synthetic_codes(again)[1] == synthetic_codes(found)[1]).all()
    made = fcstream.synthetic_rows(found)
    assert list(made) == ["x0", "x1", "x2", "x3"]
    assert len(made["x2"]) == found.parts["rows"] == found.count
    assert set(made["x0"]) == {False, True}
    assert set(made["x3"]) <= set("01234")
    with pytest.raises(ConfigError, match="kind 'synthetic'"):
        fcstream.synthetic_rows(fcstream.private_marginals(rows, rho=1.0, levels=[2, 2, 3, 5]))


# -- cost ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [[2] * 16, [2, 2, 3, 9], [2]], ids=str)
def test_the_parts_cost_what_is_charged(sizes):
    codes = codes_of(sizes)
    mechanism = Synthetic(PrivacyLoss.charge(0.1234567), codes)
    means, pairs, counts, sums = mechanism.scales
    cost = Fraction(codes.norm_squared + 1) / (2 * means) + Fraction(codes.pairs_squared) / (2 * pairs)
    cost += 1 / (2 * counts) + Fraction(codes.norm_squared) / (2 * sums)
    charged = Fraction(mechanism.loss.rho_nano, 10**9)
    assert cost <= charged
    assert float(cost) == pytest.approx(float(charged), rel=1e-4 if codes.pairs_squared else 0.7)
    assert sum(mechanism.shares) == mechanism.loss.rho_nano
    pure = Synthetic(zcdp_of_dp(DPLoss.charge(1)), codes, is_pure=True)
    means, pairs, counts, sums = pure.scales
    epsilon = (codes.norm + 1) / means + max(1, codes.pairs_norm) / pairs + 1 / counts + codes.norm / sums
    assert epsilon == pure.epsilon
    assert 1 - 1e-8 <= epsilon <= 1
    assert zcdp_of_dp(DPLoss(epsilon_nano(pure.loss), 0)).rho_nano <= pure.loss.rho_nano


def test_the_papers_parts_cost_epsilon():
    """Theorem 5.12: a third for directions, a third for weights, a third for means, rounding included."""
    codes = codes_of([2] * 9)
    mechanism = synthetic_paper.PaperSynthetic(zcdp_of_dp(DPLoss.charge(1)), codes, 20_000, 0.7)
    asked = []

    class Listening(Silent):
        def discrete_laplace(self, scale, size):
            asked.append((scale, size))
            return np.zeros(size, np.int64)

    counter = TableCounts(codes)
    counter.add(0, table(500, [2] * 9).astype(float))
    found = mechanism.release(counter.view([0]), charge_of(mechanism.loss), Listening(SeededEntropy(0)))
    (weights, cells), (means, entries) = asked
    assert entries == 9 * cells == 9 * len(found.parts["counts"])
    assert 2 / weights == mechanism.epsilon / 3
    grain, b = 64 * mechanism.damping, mechanism.damping
    moved = 2 * (Fraction(9 * grain, b) + 9)  # two cells, p coordinates, each rounded down
    assert moved / means <= mechanism.epsilon / 3
    assert b == math.ceil(math.sqrt(9 * 20_000**0.3))
    # What the window holds is never divided by.
    more = TableCounts(codes)
    more.add(0, np.concatenate([table(500, [2] * 9)] * 2).astype(float))
    twice = mechanism.release(more.view([0]), charge_of(mechanism.loss), Silent(SeededEntropy(0)))
    assert twice.count == found.count == 20_000


def test_public_cells_stay_those_that_were_counted_whatever_a_window_may_cost():
    """Savings offer another rho: there would be other cells then, and no record is kept to count them."""
    codes, rows = codes_of([2] * 9), table(900, [2] * 9)
    first = Synthetic(PrivacyLoss.charge(0.02), codes, "ones", 900)
    other = first.with_loss(PrivacyLoss.charge(0.9))
    assert first._by_number != other._by_number
    counter = first.counter(9, 1, Noise())
    counter.add(0, rows.astype(float))
    found = other.release(counter.view([0]), charge_of(other.loss), Silent(SeededEntropy(0)))
    assert len(found.parts["counts"]) == first._by_number.number
    assert sum(found.parts["counts"]) == 900


def test_stages_that_never_started_go_back():
    codes = codes_of([2] * 8)
    mechanism = Synthetic(PrivacyLoss.charge(0.01), codes)
    counter = TableCounts(codes)
    counter.add(0, table(50, [2] * 8).astype(float))
    charge = charge_of(mechanism.loss)
    assert mechanism.release(counter.view([0]), charge, Noise(SeededEntropy(0))).reason == "too_few"
    assert charge.unused == PrivacyLoss(mechanism.loss.rho_nano - mechanism.shares[0])
    counter.add(0, table(mechanism.least_count * 3, [2] * 8).astype(float))
    charge = charge_of(mechanism.loss)
    assert mechanism.release(counter.view([0]), charge, Noise(SeededEntropy(0))).reason is None
    assert charge.unused == PrivacyLoss()
    with pytest.raises(RuntimeError, match="charge of its own"):
        mechanism.release(counter.view([0]), charge, Noise(SeededEntropy(0)))


def outcomes(mechanism, rows, runs, seed, drawn, weaker):
    """What one window's release is, many times; the parameter of the noise of a kind goes through `weaker`."""
    counter = TableCounts(mechanism.codes)
    counter.add(0, rows.astype(float))
    view = counter.view([0])
    for run in range(runs):
        noise = Noise(SeededEntropy(seed + run))
        draw_ = getattr(noise, drawn)
        setattr(noise, drawn, lambda scale, n, draw_=draw_: draw_(weaker(scale), n))
        yield mechanism.release(view, charge_of(mechanism.loss), noise)


def printed(mechanism, rows, runs, seed, factor=1):
    """Numbers that one window's release prints, many times."""
    found = outcomes(mechanism, rows, runs, seed, "discrete_gaussian", lambda v: v * Fraction(factor) ** 2)
    return np.array([[o.count, *o.parts["counts"], *(o.value.T @ o.parts["weights"])] for o in found], float)


def test_the_whole_release_stays_below_its_claim_and_weak_noise_is_caught(monkeypatch):
    monkeypatch.setattr(TableMixture, "fitted", lambda self, *rest: self)  # only takes time: post-processing
    from support.audits import epsilon_lower_bound

    one = np.zeros((600, 3), int)
    two, delta = np.concatenate([one, [[1, 1, 1]]]), 1e-3
    mechanism = Synthetic(PrivacyLoss.charge(0.25), codes_of([2] * 3), "ones", 600)
    claim = epsilon_tight(0.25, delta)
    assert epsilon_lower_bound(printed(mechanism, one, 600, 0), printed(mechanism, two, 600, 10**6), delta) < claim
    weak = printed(mechanism, one, 600, 0, "0.04"), printed(mechanism, two, 600, 10**6, "0.04")
    assert epsilon_lower_bound(*weak, delta) > claim


def columns_of(mechanism, rows, runs, seed, factor=1):
    """`printed`, whatever number of cells there are: how many records all of them, and the fullest two, hold."""
    out = []
    for one in outcomes(mechanism, rows, runs, seed, "discrete_laplace", lambda scale: scale * Fraction(factor)):
        counts, shares = sorted(one.parts["counts"]), one.value.T @ one.parts["weights"]
        out.append([one.count, sum(counts), *counts[-2:], len(counts), *shares])
    return np.array(out, float)


def test_the_pure_release_of_categories_stays_below_its_claim_and_weak_noise_is_caught(monkeypatch):
    """Learned cells, a column of many levels and one of few; the record more is alone in its levels."""
    monkeypatch.setattr(TableMixture, "fitted", lambda self, *rest: self)
    monkeypatch.setattr(synthetic, "MAX_AXES", 1)  # more only take time
    from support.audits import epsilon_lower_bound

    mechanism = Synthetic(zcdp_of_dp(DPLoss.charge(1)), codes_of([2, 3, 6]), is_pure=True)
    one = np.zeros((2 * mechanism.least_count, 3), int)
    two = np.concatenate([one, [[1, 2, 5]]])
    assert epsilon_lower_bound(columns_of(mechanism, one, 250, 0), columns_of(mechanism, two, 250, 10**6), 0.0) < 1
    weak = columns_of(mechanism, one, 250, 0, "0.04"), columns_of(mechanism, two, 250, 10**6, "0.04")
    assert epsilon_lower_bound(*weak, 0.0) > 1


def test_marginals_stay_below_their_claim_and_weak_noise_is_caught():
    from support.audits import epsilon_lower_bound

    codes, delta = codes_of([2, 2, 3]), 1e-3
    mechanism = marginals.Marginals(PrivacyLoss.charge(0.25), codes, 2)
    claim = epsilon_tight(0.25, delta)

    def told(n, seed, factor=1):
        counter, out = mechanism.counter(3, 1, Noise()), []
        counter.add(0, np.zeros((n, 3)))
        for run in range(320):
            noise = Noise(SeededEntropy(seed + run))
            draw_ = noise.discrete_gaussian
            noise.discrete_gaussian = lambda v, n, draw_=draw_: draw_(v * Fraction(factor) ** 2, n)
            outcome = mechanism.release(counter.view([0]), charge_of(mechanism.loss), noise)
            out.append([outcome.count, *outcome.value])
        return np.array(out)

    assert epsilon_lower_bound(told(50, 0), told(51, 10**6), delta) < claim
    assert epsilon_lower_bound(told(50, 0, "0.1"), told(51, 10**6, "0.1"), delta) > claim


# -- private directions --------------------------------------------------------------------------------------------


def circle(matrix, low, high):
    """Mass of exp(<Ax, x>) on the circle between two angles."""
    return integrate.quad(
        lambda t: math.exp(np.array([math.cos(t), math.sin(t)]) @ matrix @ [math.cos(t), math.sin(t)]), low, high
    )[0]


@pytest.mark.parametrize("values", [(0.0, 0.0), (3.0, 1.0), (30.0, 0.0)])
def test_pvec_has_its_law_on_the_circle(values):
    turn = np.array([[0.8, -0.6], [0.6, 0.8]])
    matrix = turn @ np.diag(values) @ turn.T
    noise = Noise(SeededEntropy(1))
    drawn = pvec(matrix, noise, 4000)
    assert np.linalg.norm(drawn, axis=1) == pytest.approx(1)
    edges = np.linspace(-math.pi, math.pi, 13)
    seen = np.histogram(np.arctan2(drawn[:, 1], drawn[:, 0]), edges)[0]
    for wrong, passes in ((1.0, True), (1.6, False)):
        mass = np.array([circle(wrong * matrix, a, b) for a, b in itertools.pairwise(edges)])
        held = mass / mass.sum() * 4000 > 5
        expected = np.append(mass[held], mass[~held].sum() + 1e-12) / mass.sum() * 4000
        p = (
            stats.chisquare(np.append(seen[held], seen[~held].sum()), expected).pvalue
            if expected[-1] > 1
            else (stats.chisquare(seen[held], mass[held] / mass[held].sum() * seen[held].sum()).pvalue)
        )
        assert (p > 1e-4) == passes or not any(values)


def test_pvec_has_its_law_on_the_sphere():
    """Second moments against numeric integration in three dimensions."""
    values = np.array([4.0, 1.0, 0.0])
    noise = Noise(SeededEntropy(2))
    drawn = pvec(np.diag(values), noise, 4000)

    def mass(weight):
        return integrate.dblquad(
            lambda z, t: weight(math.sqrt(1 - z * z) * math.cos(t), math.sqrt(1 - z * z) * math.sin(t), z)
            * math.exp((1 - z * z) * (values[0] * math.cos(t) ** 2 + values[1] * math.sin(t) ** 2)),
            0, 2 * math.pi, -1, 1, epsabs=1e-4,
        )[0]  # fmt: skip

    whole = mass(lambda x, y, z: 1.0)
    for k, weight in enumerate((lambda x, y, z: x * x, lambda x, y, z: y * y, lambda x, y, z: z * z)):
        assert (drawn[:, k] ** 2).mean() == pytest.approx(mass(weight) / whole, abs=0.02)
    assert np.abs(drawn.mean(axis=0)).max() < 0.06


@pytest.mark.parametrize("q", [2, 3, 5, 16])
def test_proposals_are_never_too_likely_and_often_enough_taken(q):
    rng, noise = np.random.default_rng(q), Noise(SeededEntropy(q))
    for scale in (0.0, 1.0, 50.0, 1e4):
        gaps = np.append(rng.random(q - 1) * scale, 0.0)
        b = envelope(gaps)
        assert np.sum(1 / (b + 2 * gaps)) == pytest.approx(1, rel=1e-6)
        x = noise.normals(4000 * q).reshape(-1, q) / np.sqrt(1 + 2 * gaps / b)
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        logs = log_acceptance(x, gaps, b)
        assert logs.max() < 1e-9
        assert log_acceptance(x, gaps, 0.7 * b).max() < 1e-9, "a rounded b would be harmful"
        assert np.exp(logs).mean() > 0.97 * math.sqrt(2 / (math.e * q))


def test_proj_is_orthonormal_and_finds_what_is_large():
    noise, matrix = Noise(SeededEntropy(3)), np.diag([300.0, 200.0, 0.0, 0.0, 0.0])
    for _ in range(20):
        found = proj(matrix, 2, noise)
        assert found @ found.T == pytest.approx(np.eye(2), abs=1e-9)
        assert (found[:, :2] ** 2).sum() > 1.9


def largest_loss(one, two):
    """Of PVEC on the circle, exactly: the largest log ratio of the two densities."""
    whole = math.log(circle(one, 0, 2 * math.pi) / circle(two, 0, 2 * math.pi))
    angles = [np.array([math.cos(t), math.sin(t)]) for t in np.linspace(0, math.pi, 721)]
    return max(abs(x @ (one - two) @ x - whole) for x in angles)


@pytest.mark.parametrize(("parts", "is_private"), [(synthetic_paper.PARTS, True), (3, False)])
def test_correcting_one_of_two_slips_is_caught(parts, is_private):
    """One of errata 5.1 and 5.2 put right and the other left as printed would use n epsilon / (3 t) S."""
    from support.audits import epsilon_lower_bound

    epsilon, others = 6.0, 2.0  # points of the unit ball: one record e1 becomes e2
    step = epsilon / parts
    one, two = np.diag([step, others]), np.diag([0.0, others + step])
    claim = epsilon / 3
    assert (largest_loss(one, two) <= claim) == is_private
    first, second = Noise(SeededEntropy(4)), Noise(SeededEntropy(5))
    drawn = [pvec(matrix, noise, 60_000) ** 2 for matrix, noise in ((one, first), (two, second))]
    assert (epsilon_lower_bound(*drawn, 0.0) <= claim) == is_private


def test_the_covering_covers_and_the_nearest_is_nearest():
    rng = np.random.default_rng(6)
    for axes, alpha in ((1, 0.6), (2, 0.55), (3, 0.5)):
        cover = covering(axes, alpha)
        points = rng.normal(size=(500, axes))
        points /= np.maximum(1, np.linalg.norm(points, axis=1, keepdims=True))
        far = np.linalg.norm(points[:, None] - cover * alpha / math.sqrt(axes), axis=2).min(axis=1)
        assert far.max() <= alpha
        assert (np.linalg.norm(cover * alpha / math.sqrt(axes), axis=1) <= 1 + 1e-12).all()
    bits = table(60, [2] * 8)
    directions = [rounded(one) for one in np.linalg.qr(rng.normal(size=(8, 2)))[0].T]
    cover = covering(2, 0.55)
    found = synthetic_paper.nearest(bits, directions, cover, 0.55)
    places = bits @ np.array(directions).T / FINE / math.sqrt(8)
    gaps = np.linalg.norm(places[:, None] - cover * 0.55 / math.sqrt(2), axis=2)
    assert gaps[np.arange(60), found] == pytest.approx(gaps.min(axis=1), abs=1e-5)
    assert covering(0, 0.5).shape == (1, 0)


# -- anonymity, which is no privacy ------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "groups"), [(200, 9), (1003, 100), (4000, 130)])
def test_groups_are_as_large_as_promised(n, groups):
    rows = table(n, [2] * 6, seed=n)
    found = anonymize(rows, groups, rows=700, noise=Noise(SeededEntropy(7)))
    assert len(found.sizes) == groups
    assert found.sizes.sum() == n
    assert (found.sizes[:-1] == n // groups).all()
    assert found.sizes[-1] >= n // groups
    assert found.points.T @ found.sizes == pytest.approx(rows.sum(axis=0))  # everybody is in one group
    assert found.rows.shape == (700, 6)
    assert np.abs(found.rows.mean(axis=0) - found.points.mean(axis=0)).max() < 0.1
    assert "NOT differentially private" in found.promise
    if groups == 130:  # cells along one direction: alike records share a group
        apart = np.mean([p @ (1 - p) for p in found.points])
        shuffled = anonymize(rows, 99, noise=Noise(SeededEntropy(7)))
        assert apart < 0.9 * np.mean([p @ (1 - p) for p in shuffled.points])


@pytest.mark.parametrize(
    ("rows", "groups", "more"),
    [
        ([[0, 1]] * 20, 8, {}),
        ([[0, 1]] * 20, 21, {}),
        ([[0, 2]] * 20, 9, {}),
        ([[0, 1]] * 20, 9, {"rows": 0}),
        ([0], 9, {}),
    ],
)
def test_what_cannot_be_anonymized(rows, groups, more):
    with pytest.raises(ConfigError):
        anonymize(rows, groups, **more)


def test_no_release_reaches_what_is_only_anonymous():
    """Nothing but the folder's own front imports it, and no kind of release is named after it."""
    package = Path(fcstream.__file__).parent
    using = [
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if "microaggregation import" in path.read_text()
    ]
    assert using == ["synthetic/__init__.py"]
    assert not [path for path in package.rglob("*.py") if "import anonymize" in path.read_text()][1:]
    with pytest.raises(ConfigError, match="kind"):
        Config.from_mapping(sample(release={"kind": "anonymize"}))


# -- marginals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [1, 2, 3])
def test_agreement_is_least_squares(order):
    sizes = (2, 3, 2, 4)
    tables = ContingencyTables(sizes, order)
    whole = np.array(list(itertools.product(*map(range, sizes))))
    design = np.array(
        [
            [all(row[a] == k for a, k in zip(columns, cell, strict=True)) for row in whole]
            for columns in tables.sets
            for cell in itertools.product(*(range(sizes[a]) for a in columns))
        ],
        float,
    )
    noisy = np.random.default_rng(7).normal(size=len(design)) * 10
    fitted = design @ np.linalg.lstsq(design, noisy, rcond=None)[0]
    assert agree(noisy, tables) == pytest.approx(fitted, abs=1e-8)


def test_marginals_say_what_the_tables_hold():
    rows, sizes = table(500, [2, 3, 2]), [2, 3, 2]
    found = fcstream.private_marginals(rows, rho=1.0, levels=sizes, noise=Silent(SeededEntropy(0)))
    named = dict(zip(map(tuple, found.parts["tables"]), found.value, strict=True))
    assert named["x0", "x2"] == [
        float(np.sum((rows[:, 0] == a) & (rows[:, 2] == b))) for a in range(2) for b in range(2)
    ]
    assert named["x0", "x1"] == naive.contingency(rows[:, :2].tolist(), [2, 3], 2)[0]
    assert (found.count, found.rho) == (500, 1.0)
    many = np.array([fcstream.private_marginals(rows, rho=0.1, levels=sizes, order=1).value[0] for _ in range(300)])
    # One column in a table: three tables, of which only the total is said three times.
    assert many[:, 0].std() == pytest.approx(math.sqrt(3 / 0.2 * (1 / 2 + 1 / 4 / 1.25)), rel=0.25)


def test_marginals_of_many_columns_and_of_too_many():
    rows = np.random.default_rng(0).random((300, 200)) < 0.3
    found = fcstream.private_marginals(rows, rho=1.0, noise=Silent(SeededEntropy(0)))
    assert len(found.value) == 199 * 100
    assert found.value[-1] == naive.contingency(rows[:, -2:].astype(int).tolist(), [2, 2], 2)[0]
    # So many tables that listing them would take for ever.
    with pytest.raises(ConfigError, match=r"order: .*tables have [\d,]+ cells, at most 1,048,576 .* fewer `columns`"):
        fcstream.private_marginals(np.zeros((1, 2000)), rho=1.0, order=3)


# -- how good it is ------------------------------------------------------------------------------------------------


def nltcs():
    return np.loadtxt(data_file("nltcs_bool.csv.gz"), delimiter=",", skiprows=1).astype(int)


def test_nltcs_is_as_good_as_promised():
    rows = nltcs()
    rho = rho_for_epsilon(1, 1e-6)
    two, three = errors(synthetic_codes(fcstream.private_synthetic(rows, rho=rho))[1], rows)
    assert two <= 0.002  # promised: 0.006 and 0.005
    assert three <= 0.003
    pure = fcstream.private_synthetic(rows, epsilon=1, size_hint=21_574)
    two, three = errors(synthetic_codes(pure)[1], rows)
    assert two <= 0.0071 * 1.25  # a single draw; the mean over draws is in bench/synthetic.py
    assert three <= 0.0063 * 1.25
    printed_ = fcstream.private_synthetic(rows, epsilon=1, size_hint=21_574, variant="paper")
    assert errors(synthetic_codes(printed_)[1], rows)[0] > 0.1
    direct = fcstream.private_marginals(rows, rho=rho)
    real = [rows[:, list(columns)].all(axis=1).mean() for columns in itertools.combinations(range(16), 2)]
    assert math.sqrt(np.mean((np.array([one[-1] for one in direct.value]) / 21_574 - real) ** 2)) < 0.0017


def test_plans_speak_of_the_error_that_comes_out():
    sizes = [2] * 10
    rows = table(5000, sizes)
    mechanism = Synthetic(PrivacyLoss.charge(0.02), codes_of(sizes))
    forecast = mechanism.forecast(5000)
    found = [
        errors(synthetic_codes(fcstream.private_synthetic(rows, rho=0.02, noise=Noise(SeededEntropy(s))))[1], rows)[0]
        for s in range(4)
    ]
    assert 0.3 < np.mean(found) / forecast.sigma < 1.7
    assert forecast.probability > 0.99
    assert mechanism.forecast(mechanism.least_count // 2).probability < 0.01
