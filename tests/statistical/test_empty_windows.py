"""Windows without records: with which chance they release a value, by every kind, and that `plan` tells the truth."""

import json
from fractions import Fraction

import mpmath
import pytest
from support.helpers import Paid, sample
from support.release_kinds import ALSO, RELEASES

from fcstream import Engine, Noise, SeededEntropy
from fcstream.accounting.losses import PrivacyLoss
from fcstream.config import Config
from fcstream.errors import ConfigError
from fcstream.planning.plan import plan
from fcstream.releases.averages import BallAverage
from fcstream.releases.floors import FALSE_RELEASE, gaussian_tail, laplace_tail, min_gaussian, min_laplace

WITHOUT = {"count", "sum", "total", "histogram", "marginals"}
NEVER = {"mean/recentered", "mean/friendly", "mean/basic", "variance", "covariance/friendly"}
NEVER |= {name for name in ALSO if name.startswith(("mean/recentered, searched", "variance, searched"))}
PURE = {"synthetic, pure": ({**RELEASES["synthetic"][0], "variant": "pure"}, True)}
EVERY = RELEASES | ALSO | PURE


def configured(release, rho=None):
    changes = release if rho is None else {**release, "rho": rho}
    return sample(release=changes, window={"end": "1970-01-01T00:00:10Z"}, budget={"rho": 400.0, "delta": 1e-4})


@pytest.mark.parametrize("variance", [Fraction(1, 100), Fraction(1, 2), 1, 3, Fraction(10**9, 2 * 10**7), 12_345])
def test_tails_are_those_of_the_discrete_gaussian(variance):
    with mpmath.workdps(40):
        scale = mpmath.mpf(2) * Fraction(variance).numerator / Fraction(variance).denominator
        weights = [mpmath.exp(-(mpmath.mpf(k) ** 2) / scale) for k in range(int(45 * variance**0.5) + 2)]
        whole = 2 * mpmath.fsum(weights) - 1
        for least in {1, 2, int(3 * variance**0.5) + 1, min_gaussian(Fraction(variance))}:
            exact = mpmath.fsum(weights[least:]) / whole
            assert exact <= gaussian_tail(Fraction(variance), least) <= exact * (1 + mpmath.mpf("1e-8"))


@pytest.mark.parametrize(
    "variance", [Fraction(1, 1000), Fraction(1, 2), Fraction(50), Fraction(2**24), Fraction(2**70)]
)
@pytest.mark.parametrize("parts", [1, 7])
def test_the_gate_is_the_smallest_that_holds(variance, parts):
    chance = FALSE_RELEASE / parts
    least = min_gaussian(variance, chance)
    assert gaussian_tail(variance, least) <= chance
    assert least == 1 or gaussian_tail(variance, least - 1) > chance


@pytest.mark.parametrize("scale", [Fraction(1, 50), Fraction(1), Fraction(7, 2), Fraction(10**6), Fraction(2**40)])
def test_the_gate_of_laplace_noise_is_the_smallest_that_holds(scale):
    least = min_laplace(scale)
    assert laplace_tail(scale, least) <= FALSE_RELEASE
    assert least == 1 or laplace_tail(scale, least - 1) > FALSE_RELEASE
    with mpmath.workdps(30):
        q = mpmath.exp(-1 / mpmath.mpf(scale.numerator) * scale.denominator)
        assert float(q**least / (1 + q)) == pytest.approx(laplace_tail(scale, least), rel=1e-6)


@pytest.mark.usefixtures("one_start")
@pytest.mark.parametrize("times", [1.0, 0.5, 4.0])
@pytest.mark.parametrize("name", EVERY)
def test_every_kind_hardly_ever_releases_a_window_without_records(name, times):
    release = EVERY[name][0]
    try:
        config = configured(release, release.get("rho", 1.0) * times)
        chance = Config.from_mapping(config).job.answers[0].mechanism.false_release
    except ConfigError:
        assert times != 1  # what cannot be divided is refused before anything is charged
        return
    if name in WITHOUT:
        assert chance is None
    elif name in NEVER:
        assert chance == 0
    else:
        assert 0 < chance <= 1e-4


class Draws(Noise):
    """The first number drawn is given; it is the noise of a number of records."""

    def __init__(self, first):
        super().__init__(SeededEntropy(0))
        self._first = first

    def _given(self, drawn):
        if self._first is not None:
            drawn[0], self._first = self._first, None
        return drawn

    def discrete_gaussian(self, variance, size):
        return self._given(super().discrete_gaussian(variance, size))

    def discrete_laplace(self, scale, size):
        return self._given(super().discrete_laplace(scale, size))


@pytest.mark.parametrize("name", ["mean/ball", "quantiles", "synthetic", "synthetic, pure", "points/cells"])
def test_what_is_stated_is_where_the_gate_opens(name):
    """The least noise with which an empty window is released, and one less."""
    job = Config.from_mapping(configured(EVERY[name][0])).job
    mechanism = job.answers[0].mechanism
    view = mechanism.counter(2, 1, Noise()).view([0])
    if name == "mean/ball":
        least, tail = (
            mechanism.average.smallest,
            gaussian_tail(mechanism.average.count_variance, mechanism.average.smallest),
        )
    elif name == "points/cells":
        least = 2**14 * mechanism.min_count - 2**13
        least += mechanism.min_count % 2  # a half is rounded to an even number
        tail = gaussian_tail(mechanism.variances[0], 2**14 * mechanism.min_count - 2**13)
    elif name == "quantiles":
        least, tail = mechanism.min_count, gaussian_tail(mechanism.variance, mechanism.min_count)
    else:
        law = laplace_tail if mechanism.is_pure else gaussian_tail
        least, tail = mechanism.min_count, law(mechanism.scales(0).records, mechanism.min_count)
    assert mechanism.false_release == tail
    for drawn, reason in ((least, None), (least - 1, "too_few")):
        assert mechanism.release(view, Paid(), Draws(drawn)).reason == reason


@pytest.mark.parametrize(
    "release",
    [{**EVERY["mean/ball"][0], "rho": 0.05}, {**EVERY["quantiles"][0], "quantiles": [0.5]}],
    ids=["ball", "median"],
)
def test_a_room_that_is_empty_for_months_is_answered_with_refusals(release):
    """Medians and means of a ball of 20,000 windows without records: once some 27 of them were "released"."""
    job = Config.from_mapping(configured(release)).job
    view = job.answers[0].mechanism.counter(2, 1, Noise()).view([0])
    found = [job.answers[0].mechanism.release(view, Paid(), Noise(SeededEntropy(s))).reason for s in range(20_000)]
    assert found.count(None) <= 8


@pytest.mark.parametrize("k", [1, 3, 40])
def test_empty_parts_hardly_ever_make_an_answer_together(k):
    average = BallAverage.split(10**8, 2, k)
    assert 0 < average.false_release <= 1e-4
    assert k == 1 or average.smallest > BallAverage.split(10**8, 2).smallest


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("mean/ball", r"a window without records releases a value with probability "),
        ("mean/recentered", "a window without records never releases a value"),
        ("histogram", "a window without records is released like any other"),
    ],
)
def test_plan_says_what_becomes_of_a_window_without_records(name, line):
    found = plan(Config.from_mapping(configured(EVERY[name][0])))
    assert [text for text in found.lines() if text.startswith(line)]
    told = json.loads(json.dumps(found.as_dict()))["false_release"]
    assert told == found.false_release == Engine(configured(EVERY[name][0])).job.answers[0].mechanism.false_release


def test_a_gate_holds_for_what_savings_add():
    """Later windows may be offered more: their gate is their own."""
    job = Config.from_mapping(configured(RELEASES["quantiles"][0])).job
    for rho in (1.0, 3.7, 90.0):
        assert job.answers[0].mechanism.with_loss(PrivacyLoss.charge(rho)).false_release <= 1e-4
