"""What a kind says of its numbers suffices for names, intervals, checks, a page, a picture and a truth."""

import math
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import pytest
from support.helpers import sample

from fcstream import Engine, Noise, PrivacyLoss, SeededEntropy, register_release
from fcstream.planning.truths import yardstick_of
from fcstream.releases.averages import gaussian_variance
from fcstream.releases.base import Forecast, Mechanism, Outcome, Release
from fcstream.releases.intervals import count_half_width
from fcstream.releases.long_form import long_form
from fcstream.releases.options import Options
from fcstream.releases.shape import SHAPES, Axis, Numbers, ResultShape
from fcstream.reporting.series import read_series
from fcstream.service.page.views import details_of

HALVES = ["lower", "upper"]
NAMES = ["a/lower", "b/lower", "a/upper", "b/upper"]


class HalvesOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``kind = "halves"``: how many records lie in either half of each feature's range."""

    def build(self, setting):
        middles = (setting.grid.lowest + setting.grid.highest) / 2
        return Halves(self.pure_loss(), tuple(middles.tolist()))


@dataclass(frozen=True)
class Halves(Mechanism):
    """A record lies in one half of each feature, so the squared sensitivity is the number of features."""

    loss: PrivacyLoss
    middles: tuple[float, ...]
    kind: str = "halves"

    shape = ResultShape(
        axes=(Axis(name="half", labels=("halves",)), Axis(name="feature", labels=("features",))),
        numbers=(Numbers(axes=(0, 1), law="count"),),
        form="bars",
        error="difference",
    )

    def counts(self, points):
        upper = (points > self.middles).sum(axis=0)
        return np.array([len(points) - upper, upper])

    def release(self, view, charge, noise):
        charge.use(self.loss)
        variance = gaussian_variance(len(self.middles), self.loss.rho_nano)
        exact = self.counts(view.points())
        value = exact + noise.discrete_gaussian(variance, exact.size).reshape(exact.shape)
        return Outcome(value=value.astype(float), sigma=np.full(exact.shape, math.sqrt(variance)))

    def to_user_units(self, outcome, grid):
        features = [feature.name for feature in grid.features]
        return replace(super().to_user_units(outcome, grid), features=features, parts={"halves": HALVES})

    def truth(self, points, grid):
        return {"value": self.counts(points).tolist()}

    def forecast(self, size):
        return Forecast(1.0, math.sqrt(gaussian_variance(len(self.middles), self.loss.rho_nano)))


@pytest.fixture(scope="module")
def answered():
    """A release of the kind above, its mechanism, its grid and the rows."""
    register_release("halves", HalvesOptions)
    own = dict.fromkeys(("method", "radius", "spread", "delta", "size_hint")) | {"kind": "halves", "rho": 0.02}
    config = sample(release=own, window={"end": "1970-01-01T00:00:10Z"})
    engine = Engine(config, noise=Noise(SeededEntropy(3)))
    rows = np.random.default_rng(1).uniform((-40, 0), (80, 60), (500, 2))
    engine.push(np.full(500, 1000), rows)
    (release,) = engine.close()
    (answer,) = engine.config.job.answers
    return release, answer, rows


def test_a_kind_of_two_axes_has_columns_and_intervals(answered):
    release, _, _ = answered
    assert release.shape == Halves.shape
    read = Release.from_bytes(release.to_bytes())
    assert read == release
    rows = list(long_form([read]))
    assert [row.name for row in rows] == NAMES
    half = count_half_width(rows[0].sigma)
    assert all((row.low, row.high) == (row.value - half, row.value + half) for row in rows)


def test_it_has_a_page(answered):
    (group,) = details_of(answered[0])["groups"]
    assert details_of(answered[0])["form"] == "bars"
    assert [row[0] for row in group["rows"]] == NAMES


def test_it_has_a_picture(answered, tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    from fcstream.plots import plot_releases

    with matplotlib.rc_context({"svg.fonttype": "none"}):
        plot_releases(read_series([answered[0].to_bytes()]), str(tmp_path / "x.svg"))
    text = (tmp_path / "x.svg").read_text()
    assert all(f">{name}<" in text for name in NAMES)


def test_it_has_a_truth(answered):
    release, answer, rows = answered
    stick = yardstick_of(answer.mechanism, answer.grid)
    found = list(stick.compare(release, stick.truth(answer.grid.points(rows))))
    assert [each.name for each in found] == NAMES
    assert 0 < max(abs(each.error) for each in found) < 6 * found[0].sigma


@pytest.mark.parametrize(
    "broken",
    [
        {"numbers": ()},
        {"numbers": (Numbers(axes=(1,)),)},
        {"numbers": (Numbers(axes=()),)},
        {"axes": ()},
    ],
)
def test_a_shape_has_a_value_along_its_own_axes(broken):
    with pytest.raises(ValueError, match="must lie along"):
        ResultShape(**broken)
    body = msgspec.json.encode({name: msgspec.to_builtins(each) for name, each in broken.items()})
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(body, type=ResultShape)


@pytest.mark.parametrize("kind", SHAPES)
def test_shapes_are_read_back(kind):
    body = msgspec.json.encode(SHAPES[kind])
    assert msgspec.json.decode(body, type=ResultShape) == SHAPES[kind]
