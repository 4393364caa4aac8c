"""A neighbor's release is the same, byte for byte, with noise that costs no more than was started before it was drawn.

What is summed is the exact loss of the shifts that hide one record (see `fcstream.noise.replay`): noise of half its
scale, a variance, a rate or a branch that depends on anything but what is released, and a number of noise that is used
twice show in one run, where draws would need ten thousand.
"""

import os

import pytest
from audit.replay import cases, job_of, mechanism_of, neighbors, next_total, tape_of

from fcstream.noise.replay import ReplayError
from fcstream.releases.contract import replay_release
from fcstream.releases.registry import KINDS
from fcstream.releases.totals.memory import EpochMemory

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
