"""Crowds of simulated devices."""

import numpy as np

from fcstream.accounting.losses import PrivacyLoss
from fcstream.local import Euclidean
from fcstream.local.simulation import Simulation
from fcstream.noise.samplers import Noise, SeededEntropy
from support.devices import PLANE

LINE = Euclidean((-500.0,), (500.0,), step=1.0, unit=10.0)
CROWD = PLANE.encode_all(np.random.default_rng(7).normal(500, 180, (4000, 2)))


def simulation(points=CROWD, space=PLANE, seed=1, rho=10**4):
    return Simulation({"place": (space, points)}, PrivacyLoss.cap(rho), Noise(SeededEntropy(seed)))
