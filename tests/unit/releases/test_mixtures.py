"""Mixtures as a kind of release: configured, planned, windowed, paid, drawn."""

import numpy as np
import pytest
from support.helpers import sample

from fcstream import Engine, Noise, Release, SeededEntropy
from fcstream.accounting.losses import PrivacyLoss
from fcstream.config import Config
from fcstream.errors import ConfigError, UnusablePlan
from fcstream.planning.plan import plan
from fcstream.releases.clusters.mixtures import MixturesRelease

pytestmark = pytest.mark.usefixtures("one_start")

MIXTURES = {
    "kind": "mixtures", "k": 3, "rho": 1.0, "delta": 1e-8, "size_hint": 8000, "oracle": "kmeans", "method": None,
    "radius": None, "spread": 3.0, "ball": 65.0,
}  # fmt: skip
TRUE = np.array([[0.0, 40.0], [20.0, 60.0], [30.0, 20.0]])
DEVIATIONS = np.array([[0.5, 1.0], [0.3, 1.6], [0.8, 0.6]])
WEIGHTS = np.array([0.5, 0.3, 0.2])


def config(window=None, **changes):
    return sample(release={**MIXTURES, **changes}, window={"end": "1970-01-01T00:00:20Z", **(window or {})})


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.choice(3, n, p=WEIGHTS)
    return TRUE[labels] + rng.normal(size=(n, 2)) * DEVIATIONS[labels]


@pytest.fixture(scope="module")
def released(one_start):
    """A window of clusters, and one of noise."""
    engine = Engine(config(), noise=Noise(SeededEntropy(1)))
    wild = np.random.default_rng(2).uniform([-40, 0], [80, 100], size=(3000, 2))
    engine.push(np.concatenate([np.full(8000, 1000), np.full(3000, 11_000)]), np.vstack([rows(8000), wild]))
    return list(engine.close())


@pytest.mark.slow
def test_a_window_is_released_in_the_features_units(released):
    first = released[0]
    assert (first.status, first.kind, first.features) == ("released", "mixtures", ["a", "b"])
    assert np.abs(np.array(first.value) - TRUE).max() < 0.5
    assert np.shape(first.sigma) == (3, 2)
    parts = {name: np.array(part) for name, part in first.parts.items()}
    assert np.abs(parts["weights"] - WEIGHTS).max() < 0.05
    assert parts["weights"].sum() == pytest.approx(1)
    assert abs(parts["counts"].sum() - 4000) < 300  # half of them are learned from
    for found, sigma, deviation in zip(parts["covariances"], parts["covariance_sigma"], DEVIATIONS, strict=True):
        assert (np.abs(found - np.diag(deviation**2)) < 5 * sigma + 0.1 * deviation.max() ** 2).all()
        assert sigma[1, 1] == pytest.approx(4 * sigma[0, 0])  # scale 2
    assert first.core_count == parts["counts"].sum()
    assert Release.from_bytes(first.to_bytes()) == first
    assert (first.rho, first.delta) == (1.0, 1e-8)


def test_a_window_without_clusters_is_refused_and_gives_back_what_was_not_started(released):
    second = released[1]
    assert (second.status, second.value, second.parts) == ("refused", None, None)
    assert second.reason in ("no_match", "no_radius")
    assert second.rho < 0.995
    assert second.spent["rho"] == second.rho


@pytest.mark.slow
def test_sliding_windows_share_records():
    engine = Engine(config({"slide": "5s"}, size_hint=10_000), noise=Noise(SeededEntropy(1)))
    engine.push(np.repeat([1000, 6000], 5000), rows(10_000))
    found = [release for release in engine.close() if release.status == "released"]
    assert found
    assert all(np.abs(np.array(release.value) - TRUE).max() < 0.6 for release in found)


@pytest.mark.slow
def test_plans_say_how_and_why():
    told = plan(Config.from_mapping(config()))
    assert told.probability is None  # only the data tell
    assert told.as_dict()["agreement"][0]["probability"] > 0.99
    assert told.smallest_size is not None
    assert 100 < told.smallest_size <= 8000
    text = "\n".join(told.lines())
    assert "mixtures (auto) per window" in text
    assert "a core of tuples" in text
    assert "a refusal, which costs about" in text
    assert told.as_dict()["form"] == "core"
    assert 0 < told.sigma["a"] < 0.5
    tuples = told.as_dict()["tuples"]
    assert f"{tuples} shards of about {4000 // tuples} records" in text
    few = plan(Config.from_mapping(config(k=2, size_hint=1700)))
    assert few.as_dict()["form"] == "balls"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": None}, "release.k: is required"),
        ({"spread": None}, "release.spread: is required"),
        ({"spread": 0.0}, r"^release\.spread: must be a positive number"),
        ({"size_hint": None}, r"release\.size_hint"),
        ({"size_hint": 600}, r"^release\.rho: .*keeps none"),
        ({"delta": 0.0}, r"release\.delta"),
        ({"oracle": "birch"}, r"^release\.oracle: must be one of"),
        ({"method": "best"}, r"release\.method: must be 'auto'"),
        ({"fallback": "tree"}, r"release\.fallback: belongs to kind 'centers', not to 'mixtures'"),
    ],
)
def test_configurations_that_cannot_work_are_refused_at_once(changes, message):
    with pytest.raises((ConfigError, UnusablePlan), match=message):
        Config.from_mapping(config(**changes))


@pytest.mark.slow
def test_another_loss_or_size_is_planned_anew():
    mechanism = Config.from_mapping(config()).job.answers[0].mechanism.inner
    assert isinstance(mechanism, MixturesRelease)
    more = mechanism.with_loss(PrivacyLoss.charge(3))
    assert more.inner.loss == more.loss == PrivacyLoss(3 * 10**9, mechanism.loss.delta_femto)
    assert more.inner.shards.tuples < mechanism.inner.shards.tuples
    assert mechanism.with_size_hint(50_000).job.size_hint == 25_000
    with pytest.raises(ConfigError):
        mechanism.with_size_hint(10)
    assert hash(mechanism) == hash(Config.from_mapping(config()).job.answers[0].mechanism.inner)


def test_a_tree_learns_a_mixture_of_all_records_without_a_delta():
    """A window of few records is refused for little."""
    keys = dict.fromkeys(("radius", "spread", "delta", "size_hint"))
    found = sample(
        release={**keys, "kind": "mixtures", "method": "tree", "k": "auto", "rho": 0.5},
        window={"end": "1970-01-01T00:00:20Z"},
    )
    engine = Engine(found, noise=Noise(SeededEntropy(3)))
    engine.push(np.concatenate([np.full(8000, 1000), np.full(5, 11_000)]), np.vstack([rows(8000), rows(5)]))
    first, second = engine.close()
    parts = {name: np.array(part) for name, part in first.parts.items()}
    assert np.abs(np.array(first.value) - TRUE).max() < 0.3
    assert np.abs(parts["weights"] - WEIGHTS).max() < 0.03
    assert abs(parts["counts"].sum() - 8000) < 100
    for own, sigma, deviation in zip(parts["covariances"], parts["covariance_sigma"], DEVIATIONS, strict=True):
        assert (np.abs(own - np.diag(deviation**2)) < 5 * sigma + 0.15 * deviation.max() ** 2).all()
    assert (first.rho, first.delta) == (0.5, 0.0)
    assert (second.reason, second.rho < 0.02) == ("too_few", True)
