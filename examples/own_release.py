"""A kind of release of one's own: in how many rooms' readings it is hotter than a public limit.

A kind is a class with its keys of [release], a mechanism that spends its charge on noise, and a name. Everything around
it (windows, ledger, budgets, plan) stays as it is. A package names it in an entry point of the group
"fcstream.releases", and `fcstream run` finds it too.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

import fcstream
from fcstream.errors import ConfigError
from fcstream.releases.base import Forecast, MechanismBase, Outcome
from fcstream.releases.options import Options
from fcstream.zcdp import RHO_UNIT, PrivacyLoss


class HotOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``kind = "hot"``: keys, their types and defaults."""

    above: float

    def build(self, setting):
        feature = setting.grid.features[0]
        if not feature.minimum <= self.above <= feature.maximum:
            raise ConfigError(f"must lie in the range of {feature.name!r}, got {self.above:g}", "release.above")
        limit = setting.grid.lattice.coordinates(feature.scaled(self.above))
        return HotCount(self.pure_loss(), int(limit))


class Tally:
    """Keeps two numbers per open pane instead of its records: what `release` gets to see."""

    def __init__(self, limit):
        self._limit = limit
        self._held = {}

    @property
    def panes(self):
        return sorted(self._held)

    def add(self, pane, points):
        hot, size = self._held.get(pane, (0, 0))
        self._held[pane] = hot + int(np.sum(points[:, 0] > self._limit)), size + len(points)

    def drop(self, pane):
        self._held.pop(pane, None)

    def view(self, panes):
        held = [self._held.get(pane, (0, 0)) for pane in panes]
        return sum(hot for hot, _ in held), sum(size for _, size in held)


@dataclass(frozen=True)
class HotCount(MechanismBase):
    """One record moves each of the two counts by at most 1: half of rho each."""

    loss: PrivacyLoss
    limit: int
    kind: str = "hot"

    @property
    def variance(self):
        return Fraction(RHO_UNIT, 2 * (self.loss.rho_nano // 2))

    def counter(self, dimension, reach, noise):
        return Tally(self.limit)

    def release(self, view, charge, noise):
        charge.use(self.loss)  # first: no noise without it
        hot, size = (np.array(view) + noise.discrete_gaussian(self.variance, 2)).tolist()
        sigma = np.array([math.sqrt(self.variance)])
        return Outcome(value=np.array([float(hot)]), sigma=sigma, count=size, core_count=hot)

    def forecast(self, size):
        return Forecast(probability=1.0, sigma=math.sqrt(self.variance))


fcstream.register_release("hot", HotOptions)

CONFIG = {
    "stream": {"name": "rooms"},
    "lattice": {"step": 0.001},
    "features": [{"name": "temp_c", "min": -40.0, "max": 85.0}],
    "window": {"length": "10m", "start": "2026-01-01T00:00:00Z", "end": "2026-01-01T01:00:00Z"},
    "release": {"kind": "hot", "above": 25.0, "rho": 0.5},
    "budget": {"rho": 0.5, "delta": 0.0},
    "ledger": {"url": "memory:"},
}


def main():
    rng = np.random.default_rng(1)
    times = 1767225600000 + np.sort(rng.integers(0, 3_600_000, 6000))
    temperatures = rng.normal(20 + (times - times[0]) / 600_000, 2.0)  # it gets hotter
    with fcstream.Engine(CONFIG) as engine:
        engine.push(times, temperatures[:, None])
        for release in engine.close():
            print(f"{release.value[0]:5.0f} of about {release.count} readings above 25 °C (+- {release.sigma[0]:.1f})")


if __name__ == "__main__":
    main()
