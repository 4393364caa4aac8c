"""Synthetic tables: against slow twins, and as good as they are said to be."""

import itertools
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from support import naive
from support.helpers import data_file, sample
from support.tables import Silent, codes_of, table

import fcstream
from fcstream import Noise, Release, SeededEntropy
from fcstream.accounting.losses import PrivacyLoss, rho_for_epsilon
from fcstream.config import Config
from fcstream.errors import ConfigError
from fcstream.releases.tables.documents import synthetic_codes
from fcstream.releases.tables.marginals import agree
from fcstream.releases.tables.synthetic import Synthetic
from fcstream.synthetic import anonymize
from fcstream.synthetic.cells import FINE, Cells, along, by_number, rounded
from fcstream.synthetic.codes import Attribute, Codes
from fcstream.synthetic.counts import ContingencyTables, PairPanes, TableCounts, TablePanes
from fcstream.synthetic.mixtures import TableMixture, consistent, draw, product, to_simplex, to_simplex_l1

MIXED = [2] * 70 + [3, 5, 9]


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
    for name in ("anonymize", "microaggregate"):
        assert not [path for path in package.rglob("*.py") if f"import {name}" in path.read_text()][1:]
        with pytest.raises(ConfigError, match="kind"):
            Config.from_mapping(sample(release={"kind": name}))


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


def nltcs():
    return np.loadtxt(data_file("nltcs_bool.csv.gz"), delimiter=",", skiprows=1).astype(int)


@pytest.mark.slow
def test_nltcs_is_as_good_as_promised():
    rows = nltcs()
    rho = rho_for_epsilon(1, 1e-6)
    two, three = errors(synthetic_codes(fcstream.private_synthetic(rows, rho=rho))[1], rows)
    assert two <= 0.002  # one draw; the mean over draws is in bench/synthetic.py
    assert three <= 0.0019  # 0.0021 without products of three
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
    assert mechanism.forecast(mechanism.min_count // 2).probability < 0.01
