"""The analyst: the same protocol for simulated devices and real ones, and the four queries."""

import math
from fractions import Fraction

import numpy as np
import pytest
from support import naive
from support.crowds import CROWD, LINE, simulation
from support.devices import PLANE

from fcstream.accounting.filters import BudgetSchedule
from fcstream.accounting.losses import PrivacyLoss
from fcstream.errors import ConfigError, LedgerError, LedgerMismatch
from fcstream.local import Box, Component, Distance, Euclidean, GreatCircle, LocalBudget, LocalFilter, Records
from fcstream.local.analyst.series import Series, shares
from fcstream.local.device.journal import MemoryJournal
from fcstream.local.queries.counting import RangeCount, balanced_cut, paper_cut
from fcstream.local.queries.density import KernelDensity, predicted_errors
from fcstream.local.queries.elimination import (
    Question,
    Rounds,
    non_interactive,
)
from fcstream.local.queries.neighbors import Nearest
from fcstream.local.queries.threshold import ShareBelow
from fcstream.local.simulation import Fleet, Simulation
from fcstream.noise.samplers import Noise, SeededEntropy


def test_devices_without_a_value_count_in_no_box():
    """Issue: they answered from the middle of the public box: 501 were reported for 308."""
    box = RangeCount.around("place", PLANE, (500, 500), (200, 200))
    points = PLANE.encode_all(
        np.vstack([np.random.default_rng(8).uniform(0, 1000, (800, 2)), np.full((200, 2), np.nan)])
    )
    truth = box.exact(points[:800])
    for method in ("BM0", "BM1", "PM0", "PM1"):
        answer = box.run(simulation(points), "q", np.full(1000, 10**12), method)
        assert answer.missing == 0
        assert abs(answer.value - truth) <= 8, method
    nearest = Nearest.at("place", PLANE, (500, 500), 3)
    found = nearest.run(simulation(points), "r", np.full(1000, 10**12), "PM1")
    assert max(np.asarray(found.value).ravel().tolist()) < 800


@pytest.mark.parametrize("space", [PLANE, LINE, GreatCircle(), Euclidean((3.0,), (4.4,), step=1.0)])
def test_the_point_of_a_missing_value_is_public_and_outside(space):
    nowhere = space.nowhere
    width = max(b - a for a, b in space._bounds)
    assert all(n < a for n, (a, _) in zip(nowhere, space._bounds, strict=True))
    assert all(a - n >= min(width, b - a) for n, (a, b) in zip(nowhere, space._bounds, strict=True))
    for value in (None, "x", [], [float("nan")] * space.dimension, [1e400] * 2, object()):
        assert space.encode(value) == nowhere
    count = 2 if isinstance(space, GreatCircle) else space.dimension
    assert space.encode_all(np.full((2, count), np.nan)).tolist() == [list(nowhere)] * 2
    assert space.reach >= max(map(abs, nowhere))
    assert "missing" not in space.as_dict()


def test_a_configured_point_for_missing_values():
    space = Euclidean((0.0, 0.0), (1000.0, 1000.0), step=2.0, missing=(10.0, 1500.0))
    assert space.encode(None) == (5, 750)
    assert space.as_dict()["missing"] == [10.0, 1500.0]
    gulf = GreatCircle(missing=(0.0, 0.0)).encode(None)
    assert np.abs(np.subtract(gulf, GreatCircle().encode((0.0, 0.0)))).max() <= 1
    for wrong in ((1.0,), (1.0, float("nan")), (1e15, 0.0)):
        with pytest.raises(ConfigError, match="missing"):
            Euclidean((0.0, 0.0), (1000.0, 1000.0), step=1.0, missing=wrong)
    with pytest.raises(ConfigError, match="missing"):
        GreatCircle(missing=(1.0, 2.0, 3.0))


def fleet(points, seed=1, rho=10, journal=None, space=PLANE, wrap=Fleet):
    noise, journal = Noise(SeededEntropy(seed)), journal or MemoryJournal()
    budget = LocalBudget.concentrated(rho)
    return wrap(
        [
            LocalFilter(budget, {"place": Component(space, row)}, journal, name=str(i), noise=noise)
            for i, row in enumerate((points * space.step).tolist())
        ]
    )


@pytest.mark.slow
@pytest.mark.parametrize("method", ["PM0", "PM1", "BM1"])
def test_simulated_devices_say_what_real_ones_say(method):
    points = CROWD[:150]
    query = RangeCount("place", PLANE, Box((1000, 1000), (300, 300)))
    budgets = np.linspace(10**8, 5 * 10**9, 150).astype(np.int64)
    real, made_up = fleet(points), simulation(points, rho=10)
    for number in range(3):  # the third finds some budgets used up
        answers = [query.run(crowd, f"q{number}", budgets, method, Rounds(4)) for crowd in (real, made_up)]
        assert answers[0].value == answers[1].value
        assert answers[0].missing == answers[1].missing
        for name in ("consumed", "known", "sums", "state"):
            assert (getattr(answers[0].transcript, name) == getattr(answers[1].transcript, name)).all()
    assert answers[0].missing > 0
    assert [d.spent.rho_nano for d in real.devices] == made_up.spent.tolist()
    assert made_up.spent.max() <= 10 * 10**9


class Dies(Fleet):
    """The analyst dies in some round; the devices have been asked, and their answers are lost."""

    die_in = None

    def ask(self, question, who, costs):
        found = super().ask(question, who, costs)
        if question.round == self.die_in:
            raise KeyboardInterrupt
        return found


def test_an_analyst_restarted_in_mid_query_gets_the_same_answers_for_nothing(tmp_path):
    query = RangeCount("place", PLANE, Box((1000, 1000), (300, 300)))
    schedule = BudgetSchedule(10 * 10**9, 4)
    for die_in in (1, 3):
        crowd, path = fleet(CROWD[:60], wrap=Dies), tmp_path / f"books{die_in}"
        series = Series(crowd, schedule, "s", path)
        series.run(query, "PM1", Rounds(4))
        left = series.account.remaining.copy()
        for _ in range(3):  # as often as it likes
            crowd.die_in = die_in
            with pytest.raises(KeyboardInterrupt):
                series.run(query, "PM1", Rounds(4))
            assert (series.account.remaining == left).all()
            series.close()
            crowd.die_in = None
            series = Series(crowd, schedule, "s", path)  # the books are those before the query
            assert series.step == 2
            assert (series.account.remaining == left).all()
        answer = series.run(query, "PM1", Rounds(4))
        assert answer.missing == 0
        assert (10**10 - series.account.remaining).tolist() == [d.spent.rho_nano for d in crowd.devices]
        series.close()
    with pytest.raises(LedgerMismatch):
        Series(crowd, BudgetSchedule(10 * 10**9, 5), "s", path)
    with pytest.raises(LedgerMismatch):
        Series(fleet(CROWD[:59]), schedule, "s", path)
    path.write_bytes(b"broken")
    with pytest.raises(LedgerError):
        Series(crowd, schedule, "s", path)


def test_a_restarted_analyst_hears_the_same_bytes():
    """Round by round: what devices said before the analyst died they say again, at no cost."""
    query = RangeCount("place", PLANE, Box((1000, 1000), (300, 300)))
    budgets = np.full(60, 3 * 10**9)
    crowd = fleet(CROWD[:60], wrap=Dies)
    once = query.run(crowd, "q", budgets, "PM1", Rounds(4))
    spent = [d.spent for d in crowd.devices]
    twice = query.run(crowd, "q", budgets, "PM1", Rounds(4))
    assert once.value == twice.value
    assert (once.transcript.sums == twice.transcript.sums).all()
    assert [d.spent for d in crowd.devices] == spent
    other = query.run(crowd, "q", budgets * 2, "PM1", Rounds(4))  # the same id for another price
    assert other.missing == 60


def test_silent_devices_are_left_out_and_count_as_charged():
    class Deaf(Fleet):
        def ask(self, question, who, costs):
            answered, values = super().ask(question, who, costs)
            hears = who % 3 != 0
            return answered & hears, values[hears[answered]]

    crowd = fleet(CROWD[:90], wrap=Deaf)
    found = RangeCount("place", PLANE, Box((1000, 1000), (3000, 3000))).run(crowd, "q", np.full(90, 10**9), "BM1")
    assert found.missing == 30
    assert found.value <= 60
    assert (found.transcript.consumed == 10**9).all()
    assert found.saving == 0


def test_an_analyst_refuses_lies():
    class Liar(Fleet):
        def ask(self, question, who, costs):
            from fcstream.local.simulation import ask_of, read_replies

            one = ask_of(question, 0)
            good = b'{"nano":1000000000,"query":"q","round":1,"status":"answered","values":[5]}'
            lies = [good, good[:-1], b"", None, b"[]", good.replace(b"[5]", b"[5,6]"), good.replace(b"5]", b"5.5]")]
            lies += [
                good.replace(b'"q"', b'"p"'),
                good.replace(b"[5]", b"[1" + b"0" * 30 + b"]"),
                good.replace(b"[5]", b"[true]"),
            ]
            return read_replies(question, one, lies, costs)

    crowd = fleet(CROWD[:10], wrap=Liar)
    found = RangeCount("place", PLANE, Box((0, 0), (1, 1))).run(crowd, "q", np.full(10, 10**9), "BM1")
    assert found.missing == 9


@pytest.mark.slow
def test_savings_pay_for_better_answers():
    """Twelve counts with a budget each, and the same with what was saved: the error falls."""
    errors = {}
    for method in ("BM1", "PM1"):
        series = Series(simulation(rho=12, seed=3), BudgetSchedule(12 * 10**9, 12), "s")
        found = []
        for step in range(12):
            query = RangeCount("place", PLANE, Box((900 + 20 * step, 1000), (160, 160)))
            offered = series.shares()
            answer = series.run(query, method, Rounds(8))
            assert (answer.transcript.consumed <= offered).all()
            found.append(query.error(answer.value, query.exact(CROWD)))
        errors[method] = np.mean(found)
        assert (series.account.remaining >= 0).all()
    assert errors["PM1"] < errors["BM1"]
    assert series.account.remaining.min() < series.account.remaining.max()


def test_asking_beyond_an_account_is_refused():
    series = Series(simulation(CROWD[:5]), BudgetSchedule(10**9, 2), "s")
    question = Question("q", 1, "place", PLANE, Distance((0, 0)))
    with pytest.raises(ConfigError):
        series.account.ask(question, np.arange(5), np.full(5, 2 * 10**9))


@pytest.mark.parametrize("method", ["BM0", "BM1", "PM0", "PM1"])
def test_counts_of_all_methods(method):
    query = RangeCount.around("place", PLANE, (500.0, 480.0), (300.0, 200.0))
    truth = query.exact(CROWD)
    values = [query.run(simulation(seed=s), "q", np.full(4000, 20 * 10**9), method, Rounds(6)) for s in range(4)]
    assert np.mean([query.error(v.value, truth) for v in values]) < 0.05
    saved = np.mean([v.saving for v in values])
    assert (saved > 0.25) if method.startswith("PM") else saved == 0
    assert values[0].bound > 0


@pytest.mark.slow
def test_eliminating_costs_no_accuracy():
    """PM and BM err alike on the same budget, up to chance: 40 queries, errors within a tenth."""
    query = RangeCount("place", PLANE, Box((1000, 1000), (200, 200)), "none")
    truth = query.exact(CROWD)
    for pair in (("BM0", "PM0"), ("BM1", "PM1")):
        spread = []
        for method in pair:
            crowds = [simulation(seed=seed) for seed in range(20)]
            values = [query.run(crowd, "q", np.full(4000, 10**10), method, Rounds(8)).value for crowd in crowds]
            spread.append(np.sqrt(np.mean((np.array(values) - truth) ** 2)))
        assert 0.5 < spread[1] / spread[0] < 1.5


def test_turned_boxes():
    angle = 0.7
    turn = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    query = RangeCount.around("place", PLANE, (500.0, 500.0), (400.0, 100.0), turn=turn)
    gap = (CROWD - 500) @ turn.T
    inside = (np.abs(gap) < [200, 50]).all(axis=1)
    assert abs(query.exact(CROWD) - inside.sum()) <= 3  # points within 1e-9 of the boundary may differ
    answer = query.run(simulation(), "q", np.full(4000, 10**11), "PM1")
    assert abs(answer.value - inside.sum()) < 25


@pytest.mark.slow
def test_balanced_cuts_are_the_roots_and_the_printed_ones_are_not():
    gammas = [0.3, 0.45, 0.499, 0.51, 1.0, 2.0]
    cuts = balanced_cut([1.0, 1.0], gammas)
    assert np.allclose(cuts, [-0.089, -0.202, -0.247, -0.258, -0.859, -2.55], atol=4e-3)
    for gamma, cut, printed in zip(gammas, cuts, paper_cut([1.0, 1.0], gammas), strict=True):
        outside, inside = naive.misplaced([1.0, 1.0], gamma, float(cut))
        assert abs(outside - inside) < 2e-4
        outside, inside = naive.misplaced([1.0, 1.0], gamma, float(printed))
        assert abs(outside - inside) > 0.02
    assert abs(balanced_cut([1.0], [0.2])[0]) < 0.01  # a line has two ends of the same size
    assert balanced_cut([1.0, 1.0, 1.0], [0.2])[0] < balanced_cut([1.0, 1.0], [0.2])[0]
    far = RangeCount("place", PLANE, Box((0, 0), (50, 80)))
    many = np.geomspace(0.5, 60, 400)
    assert np.allclose(far.cuts(many), balanced_cut([50, 80], many), atol=0.05)
    assert (RangeCount("place", PLANE, Box((0, 0), (5, 8)), "none").cuts(many) == 0).all()
    with pytest.raises(ConfigError):
        paper_cut([1.0], [1.0])
    with pytest.raises(ConfigError):
        balanced_cut(np.ones(17), [1.0])


@pytest.mark.parametrize("method", ["BM0", "BM1", "PM0", "PM1"])
def test_the_unbiased_kernel_is_unbiased_and_the_plain_one_is_not(method):
    """All at one distance, noise of half a bandwidth."""
    points = np.tile([[560, 500]], (6000, 1))
    k = 2 if method.endswith("0") else 1
    rho = int(0.5 * (100 / 30) ** 2 * 10**9)
    values = {}
    for kernel in ("plain", "unbiased"):
        query = KernelDensity.at("place", PLANE, (500.0, 500.0), 60.0, kernel)
        values[kernel] = query.run(simulation(points, seed=5), "q", np.full(6000, rho), method, Rounds(3)).value
    truth = math.exp(-0.5)
    assert abs(query.exact(points) - truth) < 1e-12
    blurred = (1 + 0.25) ** (-k / 2) * math.exp(-0.5 / 1.25)
    assert abs(values["unbiased"] - truth) < 0.02
    assert abs(values["plain"] - blurred) < 0.02
    if k == 2:
        assert abs(values["plain"] - truth) > 0.05


def test_the_kernel_is_chosen_by_predicted_error():
    assert predicted_errors(0.1, 1.0, 2, 10**6)[1] < predicted_errors(0.1, 1.0, 2, 10**6)[0]
    assert predicted_errors(0.97, 1.0, 2, 10)[1] > predicted_errors(0.97, 1.0, 2, 10)[0]
    assert predicted_errors(1.5, 1.0, 2, 10)[1] == math.inf
    # The prediction is right: noise at one distance, many times.
    draws = np.random.default_rng(1).normal([1.0, 0.0], 0.6, (200_000, 2))
    away = (draws**2).sum(axis=1)
    plain = np.exp(-away / 2)
    assert abs(plain.mean() - (1.36) ** -1 * math.exp(-1 / 2.72)) < 5e-3
    query = KernelDensity.at("place", PLANE, (500.0, 500.0), 150.0)
    values = [query.run(simulation(seed=seed), "q", np.full(4000, 3 * 10**9), "PM1").value for seed in range(3)]
    errors = [query.error(value, query.exact(CROWD)) for value in values]
    assert max(errors) < 0.02


@pytest.mark.parametrize("method", ["BM0", "BM1", "PM0", "PM1"])
def test_neighbors_of_all_methods(method):
    query = Nearest.at("place", PLANE, (520.0, 470.0), 15)
    answer = query.run(simulation(), "q", np.full(4000, 500 * 10**9), method, Rounds(8))
    away = query.phi.estimate(CROWD.astype(float))
    excess = np.sort(away[answer.value]) - np.sort(away)[:15]
    assert excess.max() <= answer.bound
    assert query.error(answer.value, CROWD) < 0.4
    assert (answer.saving > 0.5) == method.startswith("PM")
    assert query.error(query.exact(CROWD), CROWD) == 0


@pytest.mark.parametrize("method", ["BM1", "PM1"])
def test_thresholds_in_the_central_model(method):
    space = Records(0.0, 500_000.0)
    incomes = np.random.default_rng(2).lognormal(10.8, 0.8, 3000)
    for share, expected in (("0.05", False), ("0.9", True), ("0.4", None)):
        query = ShareBelow("incomes", space, 40_000.0, share)
        holder = LocalFilter(
            LocalBudget.concentrated(1), {"incomes": Component(space, incomes)}, noise=Noise(SeededEntropy(3))
        )
        answer = query.run(Fleet([holder]), "q", np.array([5 * 10**8]), method, Rounds(8))
        assert query.exact(incomes) is bool((incomes <= 40_000.4).mean() < float(share))
        if expected is not None:
            assert answer.value is expected is query.exact(incomes)
            assert (answer.saving > 0.8) == (method == "PM1")
    with pytest.raises(ConfigError):
        query.run(Fleet([holder]), "r", np.array([10**8]), "PM0")


def test_adding_one_record_moves_a_threshold_by_at_most_its_sensitivity():
    phi = ShareBelow("t", Records(0, 10), 5, Fraction(1, 3)).phi
    for table in ((), (1,), (9, 2, 5), (7, 7)):
        for more in (0, 5, 6, 10):
            assert abs(phi.evaluate((*table, more))[0] - phi.evaluate(table)[0]) <= phi.sensitivity
    assert phi.sensitivity == 2  # of thirds: max(q, 1 - q)


def test_plans():
    count = RangeCount.around("place", PLANE, (500.0, 500.0), (200.0, 200.0))
    cheap, dear = (count.plan(1000, rho) for rho in (0.1, 10.0))
    assert dear.sigma < cheap.sigma
    assert dear.half_saved_at < cheap.half_saved_at
    assert cheap.widths == sorted(cheap.widths, reverse=True)
    assert "\n".join(cheap.lines()).count("says little") == 1
    # The width after the last round is that of a real transcript.
    real = count.run(simulation(CROWD[:1000]), "q", np.full(1000, 10**10), "PM1")
    assert math.isclose(dear.widths[-1], count.triple("PM1").half_width(np.array([10**10]), 0.05 / 10_000)[0])
    assert real.bound > 0
    near = Nearest.at("place", PLANE, (1.0, 1.0), 3).plan(1000, 1.0, "PM0")
    found = Nearest.at("place", PLANE, (1.0, 1.0), 3).run(simulation(CROWD[:1000]), "q", np.full(1000, 10**9), "PM0")
    assert math.isclose(near.error, found.bound, rel_tol=1e-9)
    density = KernelDensity.at("place", PLANE, (500.0, 500.0), 90.0).plan(4000, 2.0)
    assert 0 < density.error < 0.1
    assert ShareBelow("t", Records(0, 10), 5, "0.5").plan(0.1).sigma > 1
    assert count.plan(10, 1.0, "BM0").widths == []
    assert count.plan(10, 1.0).as_dict()["sigma"] > 0


def test_degenerate_crowds():
    empty = np.empty((0, 2), np.int64)
    count = RangeCount.around("place", PLANE, (500.0, 500.0), (200.0, 200.0))
    assert count.run(simulation(empty), "q", np.empty(0, np.int64)).value == 0
    assert KernelDensity.at("place", PLANE, (1, 1), 5.0).run(simulation(empty), "q", np.empty(0, np.int64)).value == 0
    few = Nearest.at("place", PLANE, (1, 1), 5)
    assert sorted(few.run(simulation(CROWD[:3]), "q", np.full(3, 10**9), "BM1").value.tolist()) == [0, 1, 2]
    assert few.run(simulation(CROWD[:3]), "r", np.full(3, 10**9), "PM1").saving == 1  # nothing to ask
    poor = count.run(simulation(CROWD[:3]), "q", np.zeros(3, np.int64), "PM1")
    assert (poor.value, poor.saving, poor.transcript.consumed.tolist()) == (0, 0, [0, 0, 0])
    sparse = count.run(simulation(CROWD[:3]), "q", np.array([1, 5, 10**9]), "PM1", Rounds(10))
    assert (sparse.transcript.parts.sum(axis=1) == [1, 5, 10**9]).all()
    assert BudgetSchedule(5, 1).share(1, 5) == 5
    assert shares(BudgetSchedule(5, 1), 1, np.empty(0, np.int64)).tolist() == []


def test_queries_refuse_what_they_cannot_answer():
    for make in (
        lambda: RangeCount("p", PLANE, Box((0,), (1,))),
        lambda: RangeCount("p", PLANE, Box((0, 0), (1, 1)), "wild"),
        lambda: KernelDensity.at("p", PLANE, (1, 1), 0.0),
        lambda: KernelDensity.at("p", PLANE, (1, 1), 1.0, "sharp"),
        lambda: Nearest.at("p", PLANE, (1, 1), 0),
        lambda: ShareBelow("p", PLANE, 1, "0.5"),
        lambda: ShareBelow("p", Records(0, 1), 1, "1.5"),
        lambda: Rounds(0),
        lambda: Rounds(3, beta=1.0),
        lambda: Rounds(3, confidence="hope"),
        lambda: non_interactive(2, 1),
        lambda: Simulation({}, PrivacyLoss()),
    ):
        with pytest.raises(ConfigError):
            make()
    count = RangeCount("place", PLANE, Box((0, 0), (1, 1)))
    with pytest.raises(ConfigError):
        count.run(simulation(), "q", np.full(4000, 10**9), "XM")
    with pytest.raises(ConfigError):
        count.run(simulation(), "q", np.full(3, 10**9))
    crowd = simulation()
    count.run(crowd, "q", np.full(4000, 10**9), "BM1")
    with pytest.raises(ConfigError, match="remember"):
        count.run(crowd, "q", np.full(4000, 10**9), "BM1")
