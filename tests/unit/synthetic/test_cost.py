"""What synthetic tables and marginals cost: parts, stages, and audits of the whole."""

import math
from fractions import Fraction

import numpy as np
import pytest
from support import naive
from support.tables import Silent, codes_of, table

from fcstream import Noise, SeededEntropy
from fcstream.accounting.losses import DPLoss, PrivacyLoss, epsilon_tight, zcdp_of_dp
from fcstream.ledgers import Request, Terms, WindowKey, open_ledger
from fcstream.ledgers.base import STREAM_BLOCK
from fcstream.releases.tables import marginals, synthetic, synthetic_paper
from fcstream.releases.tables.documents import epsilon_nano
from fcstream.releases.tables.synthetic import Synthetic
from fcstream.synthetic.counts import TableCounts
from fcstream.synthetic.mixtures import TableMixture
from fcstream.synthetic.triples import Triples


def charge_of(loss):
    ledger = open_ledger("memory:", Terms("t", "stream", PrivacyLoss.cap(1e3, 0.5), ""))
    return ledger.charge([Request(WindowKey(0, 10_000), loss, (STREAM_BLOCK,))])[0].charge


@pytest.mark.parametrize("sizes", [[2] * 16, [2, 2, 3, 9], [2] * 40, [2]], ids=str)
@pytest.mark.parametrize("count", [1000, 10**6])
def test_the_parts_cost_what_is_charged(sizes, count):
    codes = codes_of(sizes)
    mechanism = Synthetic(PrivacyLoss.charge(0.1234567), codes)
    scales, shares = mechanism.scales(count), mechanism.shares(count)
    # The products of three that a window pays for, but for tables of more bits, from which they are chosen.
    products = codes_of(sizes[:25]) if len(sizes) > 25 else codes
    triples = Triples.all_of(products).squared
    cost = Fraction(1) / (2 * scales.records) + Fraction(codes.norm_squared) / (2 * scales.means)
    cost += Fraction(codes.pairs_squared) / (2 * scales.pairs)
    cost += Fraction(triples) / (2 * scales.triples) if scales.triples else 0
    cost += 1 / (2 * scales.cell_counts) + Fraction(codes.norm_squared) / (2 * scales.cell_sums)
    charged = Fraction(mechanism.loss.rho_nano, 10**9)
    assert cost <= charged
    assert float(cost) == pytest.approx(float(charged), rel=1e-4 if codes.pairs_squared else 0.8)
    assert sum(shares) == mechanism.loss.rho_nano
    assert mechanism.takes_triples(count) is bool(shares.triples) is (count == 10**6 and len(sizes) > 1)
    # What is known before a window's number of records is the same for all numbers.
    for name in ("records", "cell_counts", "cell_sums"):
        assert getattr(shares, name) == getattr(mechanism.shares(0), name)
        assert getattr(scales, name) == getattr(mechanism.scales(0), name)


@pytest.mark.parametrize("sizes", [[2] * 5, [2, 2, 3, 5], [3, 4, 6]], ids=str)
def test_what_a_release_draws_for_triples_costs_their_share(sizes):
    """The variances that are asked for, by the twin's sensitivity."""
    codes, asked = codes_of(sizes), []

    class Listening(Silent):
        def discrete_gaussian(self, variance, size):
            asked.append((variance, size))
            return np.zeros(size, np.int64)

    counter = TableCounts(codes)
    counter.add(0, table(4000, sizes).astype(float))
    mechanism = Synthetic(PrivacyLoss.charge(0.5), codes)
    charge = charge_of(mechanism.loss)
    assert mechanism.release(counter.view([0]), charge, Listening(SeededEntropy(0))).reason is None
    shares, (variance, size) = mechanism.shares(4000), asked[3]
    assert charge.unused == PrivacyLoss()
    products = naive.table_triples(naive.table_numbers(np.array([[0] * len(sizes)]), sizes)[0], sizes)
    assert size == len(products)
    cost = Fraction(sum(x * x for x in products)) / (2 * variance)
    assert cost <= Fraction(shares.triples, 10**9)
    assert float(cost) == pytest.approx(shares.triples / 1e9, rel=1e-3)


@pytest.mark.parametrize("sizes", [[2] * 16, [2, 2, 3, 9], [2]], ids=str)
def test_the_parts_of_the_pure_release_cost_epsilon(sizes):
    codes = codes_of(sizes)
    pure = Synthetic(zcdp_of_dp(DPLoss.charge(1)), codes, is_pure=True)
    scales = pure.scales(10**6)
    assert scales.triples == 0
    epsilon = 1 / scales.records + codes.norm / scales.means + max(1, codes.pairs_norm) / scales.pairs
    epsilon += 1 / scales.cell_counts + codes.norm / scales.cell_sums
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
    codes, rows = codes_of([2] * 9), table(2000, [2] * 9)
    first = Synthetic(PrivacyLoss.charge(0.02), codes, "ones", 4_000)
    other = first.with_loss(PrivacyLoss.charge(0.9))
    assert first._by_number != other._by_number
    counter = first.counter(9, 1, Noise())
    counter.add(0, rows.astype(float))
    found = other.release(counter.view([0]), charge_of(other.loss), Silent(SeededEntropy(0)))
    assert len(found.parts["counts"]) == first._by_number.number
    assert sum(found.parts["counts"]) == 2000


def test_stages_that_never_started_go_back():
    codes = codes_of([2] * 8)
    mechanism = Synthetic(PrivacyLoss.charge(0.01), codes)
    counter = TableCounts(codes)
    counter.add(0, table(50, [2] * 8).astype(float))
    charge = charge_of(mechanism.loss)
    assert mechanism.release(counter.view([0]), charge, Noise(SeededEntropy(0))).reason == "too_few"
    assert charge.unused == PrivacyLoss(mechanism.loss.rho_nano - mechanism.shares(0).records)
    counter.add(0, table(mechanism.min_count * 3, [2] * 8).astype(float))
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_pure_release_of_categories_stays_below_its_claim_and_weak_noise_is_caught(monkeypatch):
    """Learned cells, a column of many levels and one of few; the record more is alone in its levels."""
    monkeypatch.setattr(TableMixture, "fitted", lambda self, *rest: self)
    monkeypatch.setattr(synthetic, "MAX_AXES", 1)  # more only take time
    from support.audits import epsilon_lower_bound

    mechanism = Synthetic(zcdp_of_dp(DPLoss.charge(1)), codes_of([2, 3, 6]), is_pure=True)
    one = np.zeros((2 * mechanism.min_count, 3), int)
    two = np.concatenate([one, [[1, 2, 5]]])
    assert epsilon_lower_bound(columns_of(mechanism, one, 250, 0), columns_of(mechanism, two, 250, 10**6), 0.0) < 1
    weak = columns_of(mechanism, one, 250, 0, "0.04"), columns_of(mechanism, two, 250, 10**6, "0.04")
    assert epsilon_lower_bound(*weak, 0.0) > 1


@pytest.mark.slow
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


@pytest.mark.slow
def test_sums_of_three_stay_below_their_claim_and_weak_noise_is_caught(monkeypatch):
    """What the release adds for triples of columns with levels, whose products are 8 for one record."""
    from support.audits import epsilon_lower_bound

    monkeypatch.setattr(TableMixture, "fitted", lambda self, codes, released, *rest: released)
    sizes, delta = [6, 7, 8], 1e-3
    mechanism = Synthetic(PrivacyLoss.charge(0.25), codes_of(sizes))
    told = []
    monkeypatch.setattr(
        Synthetic, "published", lambda self, released, *rest: told.append(released.products[0] * released.count)
    )
    one = np.zeros((3000, 3), int)
    assert mechanism.takes_triples(3000)

    def sums(rows, seed, weaker):
        told.clear()
        for _ in outcomes(mechanism, rows, 120, seed, "discrete_gaussian", weaker):
            pass
        return np.array(told)[:, None]

    claim = epsilon_tight(float(Fraction(mechanism.shares(3000).triples, 10**9)), delta)
    two = np.concatenate([one, [[0, 0, 0]]])
    assert epsilon_lower_bound(sums(one, 0, lambda v: v), sums(two, 10**6, lambda v: v), delta) < claim
    weak = [sums(rows, seed, lambda v: v / 600) for rows, seed in ((one, 0), (two, 10**6))]
    assert epsilon_lower_bound(*weak, delta) > claim
