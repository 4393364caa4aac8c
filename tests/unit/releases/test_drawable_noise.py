"""Noise that cannot be drawn is refused when a stream is configured: no draw decides about an exception."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from support.helpers import Paid, sample
from support.release_kinds import ALSO, RELEASES

from fcstream import Noise, SeededEntropy
from fcstream.accounting.losses import PrivacyLoss
from fcstream.config import Config
from fcstream.errors import ConfigError
from fcstream.noise.samplers import MAX_VARIANCE, sampleable
from fcstream.releases.averages import (
    _MAX_COORDINATES,
    MIN_NANO,
    BallAverage,
    FriendlyAverage,
    _noisy_average,
    gaussian_variance,
)
from fcstream.releases.clusters.ktuples import own_centers
from fcstream.releases.clusters.mixtures import ComponentLearner
from fcstream.releases.clusters.tree_centers import TreeClustering
from fcstream.releases.statistics.variance import BITS
from fcstream.releases.trees.growing import PublicBox
from fcstream.stream.lattice import MAX_COORDINATE, MAX_RADIUS_SQUARED, Grid

pytestmark = pytest.mark.usefixtures("one_start")
CHEAP = {**RELEASES, **ALSO}


class Extreme(Noise):
    """Draws that are allowed, and all but never come: many deviations out, to one side or to both in turn.

    The samplers run first, so that what cannot be drawn raises as it always does.
    """

    def __init__(self, signs):
        super().__init__(SeededEntropy(0))
        self._signs = itertools.cycle(signs)

    def _far(self, drawn, deviation):
        return np.array([next(self._signs) * math.ceil(13 * deviation) for _ in drawn], np.int64)

    def discrete_gaussian(self, variance, size):
        return self._far(super().discrete_gaussian(variance, size), math.sqrt(variance))

    def discrete_laplace(self, scale, size):
        return self._far(super().discrete_laplace(scale, size), 3 * float(scale))


def test_every_ball_can_be_had_with_the_smallest_rho():
    assert gaussian_variance(MAX_RADIUS_SQUARED, MIN_NANO) <= MAX_VARIANCE
    assert gaussian_variance(MAX_RADIUS_SQUARED, MIN_NANO - 1) > MAX_VARIANCE
    assert gaussian_variance((2**BITS) ** 2, 1) <= MAX_VARIANCE  # squares of a variance, coarser where they are large
    with pytest.raises(ConfigError, match="4e-9"):
        BallAverage(MIN_NANO - 1, 1)


@pytest.mark.parametrize("rho_nano", [1, 10, 10**5, 10**9])
@pytest.mark.parametrize("radius", [1, 2**13, 2**26])
def test_an_accepted_average_can_be_drawn_for_every_size(radius, rho_nano):
    """The size is drawn, so no size may ask for noise that there is not."""
    try:
        average = FriendlyAverage(PrivacyLoss(10 * rho_nano, 1000), radius**2)
    except ConfigError:
        assert rho_nano < 100
        return
    rho = average._rho2_nano
    for n_hat in (1, 2, 3, 7, 2**10, 2**20, 2**31, 2**40):
        for d in (1, 2**8, 2**14):
            width = average._diameter / n_hat
            found = _noisy_average(
                [MAX_COORDINATE] * d, 1, width, rho, n_hat, Noise(SeededEntropy(1)), _MAX_COORDINATES
            )
            assert np.isfinite(found.value).all()


@pytest.mark.slow
@pytest.mark.parametrize("rho", [None, 1e-8, 1e-4])
@pytest.mark.parametrize("name", CHEAP)
def test_no_draw_raises(name, rho):
    release = CHEAP[name][0] if rho is None else {**CHEAP[name][0], "rho": rho}
    config = sample(
        release=release, window={"end": "1970-01-01T00:00:10Z"}, budget={"rho": 400.0, "delta": 1e-4},
        lattice={"step": 1e-6},
    )  # fmt: skip
    try:
        mechanism = Config.from_mapping(config).job.answers[0].mechanism
    except ConfigError:
        return
    rng = np.random.default_rng(0)
    for points in (np.empty((0, 2)), np.rint(rng.normal(size=(400, 2)) * 1e5)):
        counter = mechanism.counter(2, 1, Noise(SeededEntropy(0)))
        if len(points):
            counter.add(0, points)
        for signs in ([1], [-1], [-1, -1, 1]):
            outcome = mechanism.release(counter.view([0]), Paid(), Extreme(signs))
            later = mechanism.after(outcome.track)
            if later is not mechanism:
                later.release(counter.view([0]), Paid(), Extreme(signs))


BALL = {"kind": "mean", "method": "ball", "center": [20.0, 50.0], "delta": None, "size_hint": None, "spread": None}


@pytest.mark.parametrize(
    ("release", "step"),
    [
        ({**BALL, "radius": 90.0, "rho": 4e-9}, 1e-6),
        (
            {
                "kind": "mixtures",
                "method": "friendly",
                "radius": None,
                "spread": 60.0,
                "k": 2,
                "rho": 9e-6,
                "delta": 1e-8,
            },
            1e-6,
        ),
    ],
    ids=["ball", "mixtures"],
)
def test_a_rho_without_noise_is_refused_at_configuration(release, step):
    config = sample(release=release, lattice={"step": step})
    with pytest.raises(ConfigError):
        Config.from_mapping(config)


def test_second_moments_ask_for_their_noise_at_once():
    assert ComponentLearner(10**5, 2, MAX_RADIUS_SQUARED)._ball < 2**33
    with pytest.raises(ConfigError, match="2\\*\\*80"):
        ComponentLearner(1000, 2, MAX_RADIUS_SQUARED)


def test_a_fallback_that_could_not_be_divided_is_refused_at_configuration():
    with pytest.raises(ConfigError):
        TreeClustering(20, 2, PublicBox((0, 0), (100, 100)))
    assert TreeClustering(100, 2, PublicBox((0, 0), (100, 100))).loss.rho_nano == 100


def test_a_distance_that_asks_for_too_much_noise_is_a_refusal():
    from fcstream.releases.clusters.agreement import Balls

    centers = np.array([[0.0, 0.0], [2.0**39, 0.0]])
    balls = Balls(centers, np.array([1.0, 1.0]), np.ones(3, bool))
    loss = PrivacyLoss.charge(1e-4, 1e-6)
    assert own_centers(balls, 300, loss, Extreme([1])) is None
    assert own_centers(balls, 300, PrivacyLoss.charge(1, 1e-6), Extreme([-1])) is not None


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(2**60, 2**31 + 1), Fraction(2**40), Fraction(3**30, 7**12)])
def test_scales_of_laplace_noise_are_rounded_up_to_what_is_drawn(scale):
    found = sampleable(scale)
    assert scale <= found <= scale * (1 + Fraction(1, 2**12)) or found - scale < Fraction(1, 2**12)
    Noise(SeededEntropy(0)).discrete_laplace(found, 3)
    with pytest.raises(ConfigError):
        sampleable(Fraction(2**40) + 1)


def test_a_grid_has_a_bounded_number_of_features():
    from fcstream.stream.lattice import Feature, Lattice

    one = Feature("a", 0.0, 1.0)
    with pytest.raises(ConfigError, match="at most 65536"):
        Grid(Lattice(0.1), tuple(Feature(f"f{i}", 0.0, 1.0) for i in range(2**16 + 1)))
    assert Grid(Lattice(0.1), (one,)).dimension == 1
