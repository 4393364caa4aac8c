"""Centers as a kind of release: configured, planned, windowed, paid, published."""

import numpy as np
import pytest
from support.helpers import sample

from fcstream import Engine, Release
from fcstream.accounting.losses import PrivacyLoss
from fcstream.config import Config
from fcstream.errors import ConfigError, UnusablePlan
from fcstream.ledgers import Request, WindowKey, open_ledger
from fcstream.noise.samplers import Noise, SeededEntropy
from fcstream.planning.plan import plan
from fcstream.releases.base import Outcome
from fcstream.releases.clusters.centers import CentersRelease
from fcstream.releases.clusters.pipeline import ClusteringAlgorithm
from fcstream.releases.clusters.shards import ShardCounts

pytestmark = pytest.mark.usefixtures("one_start")

PLAIN = {"method": None, "radius": None, "spread": None}
CENTERS = {"kind": "centers", "k": 3, "rho": 1.0, "delta": 1e-8, "size_hint": 6000, "oracle": "kmeans", **PLAIN}
TRUE = np.array([[0.0, 40.0], [20.0, 60.0], [30.0, 20.0]])


def config(window=None, **changes):
    features = [
        {"name": "a", "min": -40.0, "max": 80.0, "origin": 20.0},
        {"name": "b", "min": 0.0, "max": 100.0, "origin": 50.0, "scale": 2.0},
    ]
    return sample(
        release={**CENTERS, **changes}, window={"end": "1970-01-01T00:00:20Z", **(window or {})}
    ) | {"features": features}  # fmt: skip


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    return TRUE[rng.integers(0, 3, n)] + rng.normal(size=(n, 2)) * [0.5, 1.0]


@pytest.fixture(scope="module")
def released(one_start):
    """A window of clusters, and one of noise."""
    engine = Engine(config(), noise=Noise(SeededEntropy(1)))
    wild = np.random.default_rng(2).uniform([-40, 0], [80, 100], size=(3000, 2))
    times = np.concatenate([np.full(6000, 1000), np.full(3000, 11_000)])
    engine.push(times, np.vstack([rows(6000), wild]))
    return list(engine.close())


@pytest.mark.slow
def test_a_window_of_clusters_is_released_in_the_features_units(released):
    first = released[0]
    assert (first.status, first.kind, first.features) == ("released", "centers", ["a", "b"])
    assert np.abs(np.array(first.value) - TRUE).max() < 1.5
    assert np.shape(first.sigma) == (3, 2)
    assert first.sigma[0][1] == pytest.approx(2 * first.sigma[0][0], rel=0.5)  # scale 2
    assert abs(np.array(first.parts["counts"]) - 2000).max() < 200
    assert first.count == sum(first.parts["counts"])
    assert first.parts["tuples"] > 50
    assert Release.from_bytes(first.to_bytes()) == first
    assert (first.rho, first.delta) == (1.0, 1e-8)


@pytest.mark.slow
def test_a_window_without_clusters_is_refused_and_gives_back_what_was_not_started(released):
    second = released[1]
    assert (second.status, second.value) == ("refused", None)
    assert second.reason in ("no_match", "no_radius")
    assert second.rho <= 0.06


def test_an_empty_window_costs_the_first_stage_only():
    job = Config.from_mapping(config()).job
    mechanism = job.answers[0].mechanism.inner
    ledger = open_ledger("memory:", job.terms)
    charge = ledger.charge([Request(WindowKey(0, 10_000), mechanism.loss, ("0",))])[0].charge
    view = mechanism.counter(2, 1, Noise()).view([0])
    outcome = mechanism.release(view, charge, Noise(SeededEntropy(0)))
    assert outcome.reason == "no_radius"
    assert mechanism.loss - charge.unused == PrivacyLoss(mechanism.inner.average.radius_nano)


@pytest.mark.slow
def test_sliding_windows_share_records():
    engine = Engine(config({"slide": "5s", "length": "10s"}, rho=0.8, size_hint=8000), noise=Noise(SeededEntropy(1)))
    engine.push(np.repeat([1000, 6000], 4000), rows(8000))
    found = [release for release in engine.close() if release.status == "released"]
    assert found
    assert all(np.abs(np.array(release.value) - TRUE).max() < 1.5 for release in found)


@pytest.mark.slow
def test_an_oracle_may_learn_while_records_come():
    learned = Engine(config(oracle="minibatch", ball=65.0), noise=Noise(SeededEntropy(1)))
    for part in np.array_split(rows(6000), 5):
        learned.push(np.full(len(part), 1000), part)
    first = next(iter(learned.close()))
    assert isinstance(learned.job.answers[0].mechanism.inner.counter(2, 1, Noise()), ShardCounts)
    assert not isinstance(learned.job.answers[0].mechanism.inner.counter(2, 2, Noise()), ShardCounts)
    assert first.status == "released" or first.reason == "no_match"


def test_a_window_that_may_spend_more_gets_as_many_tuples_as_its_own_plan_has(monkeypatch):
    """Savings raise rho, and with it the number of shards: what learners made for the first plan does not serve."""
    mechanism = Config.from_mapping(config(oracle="minibatch", ball=65.0)).job.answers[0].mechanism.inner
    richer = mechanism.with_loss(PrivacyLoss(2 * mechanism.loss.rho_nano))
    assert richer.inner.shards.tuples != mechanism.inner.shards.tuples
    view, seen = mechanism.counter(2, 1, Noise()).view([0]), []
    monkeypatch.setattr(
        ClusteringAlgorithm, "from_tuples", lambda self, tuples, view, noise, start: seen.append(len(tuples))
    )
    for one in (mechanism, richer):
        one.inner.find(view, Noise(), None)
    assert seen == [mechanism.inner.shards.tuples, richer.inner.shards.tuples]


def test_what_no_plan_can_use_stays_saved():
    mechanism = Config.from_mapping(config(method="ktuples", size_hint=20_000)).job.answers[0].mechanism
    assert mechanism.with_loss(PrivacyLoss(2 * 10**9)).loss.rho == 2
    assert mechanism.with_loss(PrivacyLoss(20 * 10**9)) == mechanism
    with pytest.raises(ConfigError):
        mechanism.with_loss(PrivacyLoss(10**6))


@pytest.mark.slow
def test_plans_say_how_and_why():
    told = plan(Config.from_mapping(config()))
    assert told.probability is None  # only the data tell
    assert told.as_dict()["agreement"][0]["probability"] > 0.99
    assert told.smallest_size is not None
    assert told.smallest_size <= 6000
    text = "\n".join(told.lines())
    assert "shards of about" in text
    assert "a core of tuples" in text
    assert "a refusal, which costs about" in text
    assert told.as_dict()["form"] == "core"
    few = plan(Config.from_mapping(config(k=2, size_hint=1300)))
    assert few.as_dict()["form"] == "balls"
    assert any("deviations of a cluster apart" in warning for warning in few.warnings)
    with_fallback = plan(Config.from_mapping(config(fallback="tree")))
    assert any("'tree' answers" in note for note in with_fallback.notes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": None}, "release.k: is required"),
        ({"k": 0}, r"release\.k"),
        ({"size_hint": None}, r"release\.size_hint"),
        ({"size_hint": 300}, r"^release\.rho: .*keeps none"),
        ({"delta": 0.0}, r"release\.delta"),
        ({"radius": "guess"}, r"release\.radius"),
        ({"center": [1.0]}, r"release\.center: must list 2"),
        ({"center": [1.0, 900.0]}, r"release\.center: must lie in the range of 'b'"),
        ({"ball": -1.0}, r"release\.ball"),
        ({"oracle": "birch"}, r"^release\.oracle: must be one of"),
        ({"fallback": "guess"}, r"^release\.fallback: must be 'tree'"),
        ({"method": "best"}, r"release\.method: must be 'auto'"),
        ({"pairs": "exact"}, r"release\.pairs: belongs to kind"),
    ],
)
def test_configurations_that_cannot_work_are_refused_at_once(changes, message):
    with pytest.raises((ConfigError, UnusablePlan), match=message):
        Config.from_mapping(config(**changes))


@pytest.mark.slow
def test_another_loss_or_size_is_planned_anew():
    mechanism = Config.from_mapping(config()).job.answers[0].mechanism.inner
    assert isinstance(mechanism, CentersRelease)
    more = mechanism.with_loss(PrivacyLoss.charge(3))
    assert more.loss == PrivacyLoss(3 * 10**9, mechanism.loss.delta_femto)
    assert more.inner.shards.tuples < mechanism.inner.shards.tuples
    assert mechanism.with_size_hint(50_000).inner.lloyd.loss.rho_nano > 0
    with pytest.raises(ConfigError):
        mechanism.with_size_hint(10)
    assert hash(mechanism) == hash(Config.from_mapping(config()).job.answers[0].mechanism.inner)


EARTH = [{"name": "lon", "min": -180.0, "max": 180.0}, {"name": "lat", "min": -90.0, "max": 90.0}]


@pytest.mark.slow
def test_no_center_lies_where_nobody_can_be_and_no_count_is_below_0():
    """A fallback told of longitude -181 and of -7 records."""
    found = sample(
        release={"kind": "centers", "k": 8, "rho": 0.2, "delta": 1e-8, "size_hint": 40_000, "fallback": "tree"}
        | {"method": None, "radius": None, "spread": None},
        window={"end": "1970-01-01T00:00:10Z"},
    ) | {"features": EARTH, "lattice": {"step": 0.001}}
    rng = np.random.default_rng(0)
    edges = np.column_stack([rng.choice([-180.0, 180.0], 600), rng.uniform(-90, 90, 600)])
    answers = []
    for seed in range(12):
        engine = Engine(found, noise=Noise(SeededEntropy(seed)))
        engine.push(np.ones(600, np.int64), edges)
        answers += [release for release in engine.close() if release.value]
    assert len(answers) > 3
    clipped = 0
    for answer in answers:
        values, counts, told = (
            np.array(answer.value),
            np.array(answer.parts["counts"]),
            np.array(answer.parts["clipped"]),
        )
        assert (np.abs(values) <= [180, 90]).all()
        assert (counts >= 0).all()
        on_edge = (np.abs(values) == [180, 90]).any(axis=1)
        assert (told <= (on_edge | (counts == 0))).all()
        assert told.dtype == bool
        assert (told >= on_edge).all()
        clipped += told.sum()
    assert clipped > 3


@pytest.mark.slow
@pytest.mark.parametrize("transform", ["none", "log1p", "asinh"])
def test_what_is_clipped_is_reported_center_by_center(transform):
    features = [{"name": "a", "min": 1.0, "max": 9.0, "transform": transform, "origin": 1.0, "scale": 2.0}]
    job = Config.from_mapping(config() | {"features": features, "lattice": {"step": 0.001}}).job
    bounds = [float({"none": float, "log1p": np.log1p, "asinh": np.arcsinh}[transform](x)) for x in (1.0, 9.0)]
    steps = [(x - 1.0) / 2.0 / 0.001 for x in (bounds[0] - 1, bounds[0], 1.5, bounds[1] + 1, 1.5)]
    outcome = Outcome(
        None, np.array(steps)[:, None], np.ones((5, 1)), 3, 3, parts={"counts": [5, 5, 5, 5, -2], "tuples": None}
    )
    answer = job.answers[0].mechanism.to_user_units(outcome, job.grid)
    assert np.allclose(np.array(answer.value).ravel(), [bounds[0], bounds[0], 1.5, bounds[1], 1.5])
    assert bounds[0] <= min(answer.value)[0] <= max(answer.value)[0] <= bounds[1]
    assert answer.parts["counts"] == [5, 5, 5, 5, 0]
    assert np.delete(answer.parts["clipped"], 1).tolist() == [True, False, True, True]
