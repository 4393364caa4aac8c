"""Variances with an unknown radius: it is searched for first, and the mean's part of rho pays for that."""

import math
from fractions import Fraction

import numpy as np
import pytest
from support import naive
from support.helpers import rows, sample
from support.windows import charge_for

import fcstream
from fcstream import Engine
from fcstream.config import Config
from fcstream.errors import ConfigError
from fcstream.noise.samplers import Noise, SeededEntropy
from fcstream.planning.plan import plan
from fcstream.releases.averages import gaussian_variance
from fcstream.releases.means import searched
from fcstream.releases.means.searched import SearchedMean
from fcstream.releases.statistics.variance import BITS, Variance

SEARCH = {
    "kind": "variance",
    "method": None,
    "spread": None,
    "radius": "search",
    "radius_min": 0.05,
    "radius_max": 90.0,
}
ONE = {"end": "1970-01-01T00:00:10Z"}


def job_of(release):
    return Config.from_mapping(sample(release={**SEARCH, **release}, window=ONE, budget={"rho": 99.0})).job


def inner(release):
    mechanism = job_of(release).answers[0].mechanism
    return getattr(mechanism, "inner", mechanism)


def window(mechanism, points, seed=0):
    counter = mechanism.counter(2, 1, Noise(SeededEntropy(seed)))
    for batch in np.array_split(points, 3):
        counter.add(0, batch)
    return counter.view([0])


def data(n=3000):
    raw = rows(n, seed=6)
    raw[: n // 50] = [70.0, 5.0]
    return raw


@pytest.mark.slow
@pytest.mark.parametrize("pairs", ["exact", "blocks", "hidden"])
@pytest.mark.parametrize("reach", [None, 2.0])
def test_it_is_the_twins_around_the_searched_mean(pairs, reach, monkeypatch):
    """By hand with the same words: the mean that searches, then squares of the points in a ball, as Python integers."""
    monkeypatch.setattr(searched, "_FEWEST", 400)
    release = {"size_hint": 3000, "rho": 4.0, "pairs": pairs} | ({} if reach is None else {"reach": reach})
    mechanism, points = inner(release), job_of(release).grid.points(data())
    assert isinstance(mechanism, Variance)
    assert isinstance(mechanism.mean, SearchedMean)
    noise, twin, charge = Noise(SeededEntropy(4)), Noise(SeededEntropy(4)), charge_for(mechanism.loss)
    view = window(mechanism, points)
    found = mechanism.release(view, charge, noise)
    mean = mechanism.mean.release(view, charge_for(mechanism.mean.loss), twin)
    ball = 2000**2 if reach else mechanism._ball(mean.spread, float(mean.sigma.max()), mean.count)
    shift = max(0, ball.bit_length() - BITS)
    center = [round(x) for x in mean.value.tolist()]
    count, squares = naive.inside_squares(points.astype(int).tolist(), center, ball, shift)
    outside = len(points) - count
    count += int(twin.discrete_gaussian(mechanism.count_variance, 1)[0])
    outside += int(twin.discrete_gaussian(mechanism.count_variance, 1)[0])
    variance = gaussian_variance(Fraction(ball, 2**shift) ** 2, mechanism._rest[0])
    drawn = twin.discrete_gaussian(variance, 2).tolist()
    expected = [
        (exact + one) * 2**shift / count + (2**shift - 1) / 2 - sigma**2
        for exact, one, sigma in zip(squares, drawn, mean.sigma.tolist(), strict=True)
    ]
    assert found.core_count == count
    assert found.parts["tail_share"] == outside / (count + outside)
    assert found.value.tolist() == pytest.approx(expected, rel=1e-12)
    assert found.parts["mean"].tolist() == mean.value.tolist()
    true = np.array([300.0, 300.0]) ** 2
    assert found.value == pytest.approx(true, rel=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("pairs", ["exact", "hidden"])
def test_it_costs_no_more_than_it_says_and_checks_that_are_not_needed_come_back(pairs):
    mechanism = inner({"size_hint": 3000, "rho": 4.0, "pairs": pairs})
    points = job_of({"size_hint": 3000, "rho": 4.0}).grid.points(data())
    charge = charge_for(mechanism.loss)
    assert mechanism.release(window(mechanism, points), charge, Noise(SeededEntropy(1))).reason is None
    assert charge.unused.rho_nano < 2 * mechanism.mean.search.check.rho_nano
    assert mechanism.mean.loss.rho_nano + sum(mechanism._rest) == mechanism.loss.rho_nano
    empty = charge_for(mechanism.loss)
    outcome = mechanism.release(window(mechanism, np.empty((0, 2))), empty, Noise(SeededEntropy(1)))
    assert outcome.reason == "too_few"
    assert empty.unused.rho_nano > 0.8 * mechanism.loss.rho_nano
    apart = np.random.default_rng(0).integers(-60_000, 60_000, size=(6000, 2)).astype(float)
    narrow = inner({"size_hint": 3000, "rho": 4.0, "pairs": pairs, "radius_max": 0.06})
    assert narrow.release(window(narrow, apart), charge_for(narrow.loss), Noise()).reason == "no_core"


@pytest.mark.slow
@pytest.mark.parametrize("deviation", [0.02, 0.3, 4.0])
def test_whatever_the_scale_the_variance_is_near(deviation):
    """Three powers of ten; told the radius it is hardly nearer."""
    rng, errors = np.random.default_rng(3), []
    raw = np.array([20.0, 50.0]) + rng.normal(size=(4000, 2)) * [deviation, 2 * deviation]
    told = {"radius": 6 * deviation, "radius_min": None, "radius_max": None}
    for release in ({}, told):
        config = sample(
            release={**SEARCH, "size_hint": 4000, "rho": 0.5} | release,
            window=ONE,
            budget={"rho": 9.0},
            lattice={"step": 1e-4},
        )
        found = []
        for seed in range(3):
            engine = Engine(config, noise=Noise(SeededEntropy(seed)))
            engine.push(np.zeros(len(raw), np.int64), raw)
            found.append(engine.close()[0].value)
        errors.append(np.abs(np.array(found) / raw.var(axis=0) - 1).mean())
    assert errors[0] < 0.15
    assert errors[0] < 3 * errors[1] + 0.05


@pytest.mark.slow
def test_plans_hints_and_savings():
    job = job_of({"size_hint": 3000, "rho": 0.5})
    text = str(plan(Config.from_mapping(sample(release={**SEARCH, "size_hint": 3000, "rho": 0.5}))))
    assert "the radius is searched for among 20" in text
    assert "that noise is for data half of that radius across" in text
    assert "`radius_max`" in job.answers[0].mechanism.hint("no_core")
    mechanism = inner({"size_hint": 3000, "rho": 0.5})
    more = mechanism.with_loss(fcstream.PrivacyLoss(2 * mechanism.loss.rho_nano, mechanism.loss.delta_femto))
    assert more.mean.loss.rho_nano == 2 * mechanism.mean.loss.rho_nano
    assert more.mean.radii_squared == mechanism.mean.radii_squared
    assert mechanism.with_size_hint(5000).mean.size_hint == 5000
    assert mechanism.forecast(3000).probability > 0.99
    assert math.isfinite(mechanism.forecast(3000).sigma)


@pytest.mark.parametrize(
    ("release", "message"),
    [
        ({"radius_max": None}, r"release\.radius_max: is required with radius 'search'"),
        ({"radius_min": 100.0}, r"release\.radius_max: must lie above"),
        ({"radius": 3.0}, r"release\.radius_min: belongs to radius 'search'"),
        ({"radius": "guess"}, r"release\.radius"),
        ({"pairs": "blocks", "rho": 0.01}, r"release\.pairs: must be 'exact' here"),
        ({"rho": 1e-9}, r"release"),
    ],
)
def test_rules(release, message):
    with pytest.raises(ConfigError, match=message):
        Config.from_mapping(sample(release={**SEARCH, "size_hint": 300, **release}))
    if "pairs" in release:
        with pytest.raises(ConfigError, match="sliding"):
            Config.from_mapping(
                sample(release={**SEARCH, "size_hint": 3000, "rho": 1.0, "pairs": "blocks"}, window={"slide": "5s"})
            )


@pytest.mark.slow
def test_the_array_function_searches():
    raw = np.random.default_rng(1).normal(20.0, [1.0, 2.0], size=(8000, 2))
    common = {"rho": 1, "delta": 1e-8, "size_hint": 8000, "step": 1e-2, "bounds": (-50, 90)}
    found = fcstream.private_variance(raw, radius="search", radius_min=0.1, radius_max=140, **common)
    assert found.value == pytest.approx([1, 4], rel=0.2)
    for wrong in ({"radius": "search"}, {"radius": "far"}, {"radius": 9, "radius_max": 10}):
        with pytest.raises(ConfigError):
            fcstream.private_variance(raw, **common, **wrong)
