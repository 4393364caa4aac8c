"""Devices that hold a point each, and a transport to them within one process."""

import numpy as np

from fcstream.local import Component, Euclidean, LocalBudget, LocalFilter
from fcstream.local.device.journal import MemoryJournal
from fcstream.noise.samplers import Noise, SeededEntropy

PLANE = Euclidean((0.0, 0.0), (1000.0, 1000.0), step=1.0, unit=100.0)
CROWD = np.random.default_rng(7).normal(500, 180, (60, 2))


def devices(seed=1, rho=10, journal=None, count=60):
    noise, journal = Noise(SeededEntropy(seed)), journal or MemoryJournal()
    budget = LocalBudget.concentrated(rho)
    return [
        LocalFilter(budget, {"place": Component(PLANE, row)}, journal, name=f"d{i}", noise=noise)
        for i, row in enumerate(CROWD[:count].tolist())
    ]


class Direct:
    """A transport within one process, for gateways by name."""

    def __init__(self, gateways):
        self._gateways = gateways

    def exchange(self, messages, timeout_s):
        return {
            batch: self._gateways[name].answer(body)
            for batch, (name, body) in messages.items()
            if name in self._gateways
        }

    def close(self):
        pass
