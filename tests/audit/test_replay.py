"""A neighbor's release is the same, byte for byte, with noise that costs no more than was started before it was drawn.

What is summed is the exact loss of the shifts that hide one record (see `fcstream.noise.replay`): noise of half its
scale, a variance, a rate or a branch that depends on anything but what is released, and a number of noise that is used
twice show in one run, where draws would need ten thousand.
"""

import itertools
import os

import numpy as np
import pytest
from audit.replay import cases, job_of, mechanism_of, neighbors, next_total, tape_of
from support.helpers import sample
from support.release_kinds import OF_TEXTS

from fcstream.accounting.losses import PrivacyLoss
from fcstream.config import Config
from fcstream.noise.replay import ReplayError, Tape
from fcstream.releases.base import Mechanism, Outcome
from fcstream.releases.contract import replay_release
from fcstream.releases.registry import KINDS
from fcstream.releases.totals.memory import EpochMemory
from fcstream.testing import MechanismContract

SEEDS = int(os.environ.get("FCSTREAM_REPLAYS", "1"))
"""Each case is replayed with as many seeds; a night can have a hundred."""


@pytest.mark.parametrize("name", cases())
def test_one_record_costs_what_was_started(name, monkeypatch):
    monkeypatch.setattr(EpochMemory, "next", next_total)
    job = job_of(cases()[name])
    mechanism = mechanism_of(name, job)
    for seed in range(SEEDS):
        for which, points, extra in neighbors(name, seed):
            try:
                loss = replay_release(mechanism, job.grid.points(points), job.grid.points(extra), seed, tape_of(name))
            except (ReplayError, AssertionError) as error:
                raise AssertionError(f"{name}: {which}, seed {seed}") from error
            assert loss * 10**9 <= mechanism.loss.rho_nano


def test_every_registered_kind_has_a_case():
    assert {name for name in KINDS if name != "frequent"} <= set(cases())


def test_a_text_costs_what_was_started():
    """Of a text that others have, and of one that nobody has: its number stays below the threshold, as delta says."""
    config = sample(release=OF_TEXTS["frequent"], window={"end": "1970-01-01T00:00:10Z"})
    config["features"] = [{"name": "city", "type": "text"}]
    mechanism = Config.from_mapping(config).job.answers[0].mechanism
    texts = np.array(["bergen"] * 90 + ["oslo"] * 3 + ["rome"])
    for seed, (points, extra) in enumerate(itertools.product((texts, texts[:0]), ("bergen", "oslo", "rome", "zagreb"))):
        loss = replay_release(mechanism, points, np.array([extra]), seed, Tape(grows=True))
        assert loss * 10**9 <= mechanism.loss.rho_nano


class TestCount(MechanismContract):
    """The contract, as somebody with a kind of their own has it."""

    def mechanism(self):
        return job_of(cases()["count"]).answers[0].mechanism

    def neighbors(self):
        yield np.zeros((30, 2)), np.ones((1, 2))
        yield np.zeros((0, 2)), np.ones((1, 2))


class TwiceUsed(Mechanism):
    """A fault: one number of noise for two counts."""

    kind, loss = "twice", PrivacyLoss.charge(0.5)
    forecast = None

    def release(self, view, charge, noise):
        charge.use(self.loss)
        drawn = noise.one_gaussian(1)
        return Outcome(value=np.array([view.size + drawn, 2 * view.size + drawn], float))


def test_one_number_of_noise_for_two_is_noticed():
    with pytest.raises(ReplayError, match="added to two numbers"):
        replay_release(TwiceUsed(), np.zeros((3, 2)), np.ones((1, 2)), 0)
