"""A kind of release of one's own: how many readings of a window lie above a public limit."""

import math
from dataclasses import dataclass

import numpy as np

import fcstream
from fcstream.releases.averages import gaussian_variance
from fcstream.releases.base import Forecast, Mechanism, Outcome
from fcstream.releases.options import Options
from fcstream.releases.statistics.count import SizeCounter


class HotOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``kind = "hot"``: its keys of [release] besides `rho` and `size_hint`."""

    above: float

    @property
    def holds_records(self):
        return False  # so windows need no bound on their records

    def build(self, setting):
        grid = setting.grid
        return HotCount(self.pure_loss(), int(grid.lattice.coordinates(grid.features[0].scaled(self.above))))


class HotCounter(SizeCounter):
    """Keeps one number per open pane, not the pane's records."""

    def __init__(self, limit):
        super().__init__()
        self._limit = limit

    def add(self, pane, points):
        super().add(pane, points[points[:, 0] > self._limit])


@dataclass(frozen=True)
class HotCount(Mechanism):
    """One record more or less changes the count by at most 1: its sensitivity."""

    loss: fcstream.PrivacyLoss
    limit: int
    kind: str = "hot"

    def counter(self, dimension, reach, noise):
        return HotCounter(self.limit)

    def release(self, view, charge, noise):
        charge.use(self.loss)  # first: without a charge there is no noise
        variance = gaussian_variance(1, self.loss.rho_nano)
        value = view.size + noise.discrete_gaussian(variance, 1).astype(float)
        return Outcome(value=value, sigma=np.array([math.sqrt(variance)]), count=int(value[0]))

    def forecast(self, size):
        return Forecast(probability=1.0, sigma=math.sqrt(gaussian_variance(1, self.loss.rho_nano)))
