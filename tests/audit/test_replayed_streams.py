"""Whole streams and their neighbors: the same releases, byte for byte, with noise that costs what was paid.

Each draw is held against the charge under which it was made, and all of them against what the releases say was paid.
"""

import os

import numpy as np
import pytest
from audit.replay import next_total
from audit.replayed_streams import CASES, base, configured, ledgers_of

from fcstream import DiscoveringEngine, SeededEntropy
from fcstream.engine.shared_users import UserAccount
from fcstream.ledgers.base import USER_BLOCK, Charge
from fcstream.noise.replay import ReplayNoise, Tape
from fcstream.releases.statistics.count import NoisyCount
from fcstream.releases.totals.memory import EpochMemory

SEEDS = int(os.environ.get("FCSTREAM_REPLAYS", "1"))


class Followed:
    """Takes down on a tape which charge is open, and what was started on it."""

    def __init__(self, monkeypatch):
        self.charge, self.number, self.nano, self.published = None, 0, 0, {}
        plain_use, plain_start = Charge.use, Charge.start

        def begin(charge):
            if charge is not self.charge:
                self.charge, self.number, self.nano = charge, self.number + 1, 0
                self.tape.window = self.number

        def use(charge, needed):
            begin(charge)
            self.nano = charge.loss.rho_nano
            plain_use(charge, needed)

        def start(charge, stage):
            begin(charge)
            self.nano += stage.rho_nano
            plain_start(charge, stage)

        monkeypatch.setattr(Charge, "use", use)
        monkeypatch.setattr(Charge, "start", start)

    def follow(self, tape):
        self.tape, self.charge, self.number, self.nano = tape, None, 0, 0
        tape.started = lambda: self.nano


def replayed(name, seed, monkeypatch, advance=None):
    """Both runs of a stream: their releases, and the tape."""
    sections, make, (times, points, options) = CASES[name]
    config, followed, runs = configured(**sections), Followed(monkeypatch), []
    tape = Tape(grows=make is DiscoveringEngine)
    for more in (False, True):
        followed.follow(tape)
        noise = ReplayNoise(tape, SeededEntropy(2 * seed + more))
        engine = make(config, noise=noise, **ledgers_of(config, make))
        engine.push(*(base(engine, seed)[:2]), **base(engine, seed)[2])
        if more:
            with noise.apart():
                engine.push(np.array(times), np.array(points), **options)
        if advance is not None:
            advance(engine, noise)
        runs.append(engine.close())
        if not more:
            tape.again()
    return runs, tape


@pytest.mark.parametrize("name", CASES)
def test_a_stream_and_its_neighbor_release_the_same(name, monkeypatch):
    monkeypatch.setattr(EpochMemory, "next", next_total)
    monkeypatch.setattr(UserAccount, "seal", _followed_seal(spent := []))
    for seed in range(SEEDS):
        runs, tape = replayed(name, seed, monkeypatch)
        assert [r.to_bytes() for r in runs[0]] == [r.to_bytes() for r in runs[1]]
        assert runs[0]
        loss = tape.check()
        paid = spent[-1].rho if spent else sum(release.rho for release in runs[0])
        assert 0 < loss <= paid * (1 + 1e-9)


def _followed_seal(spent, plain=UserAccount.seal):
    """Seal, and take down what the account has spent."""

    def seal(account, *args):
        plain(account, *args)
        spent.append(account.ledger.spent(USER_BLOCK))

    return seal


def test_a_second_draw_is_one_of_its_own(monkeypatch):
    """The first one fails after its draws, which nobody learns; the second has other noise, and is as private."""
    failing, plain, noises = [], NoisyCount.release, []

    def release(mechanism, view, charge, noise):
        if not failing:
            failing.append(True)
            with noise.apart():
                plain(mechanism, view, charge, noise)
            raise ZeroDivisionError
        noises.append(noise)
        return plain(mechanism, view, charge, noise)

    def advance(engine, noise):
        failing.clear()
        with pytest.raises(ZeroDivisionError):
            engine.close()

    monkeypatch.setattr(NoisyCount, "release", release)
    runs, tape = replayed("users", 0, monkeypatch, advance)
    assert [r.to_bytes() for r in runs[0]] == [r.to_bytes() for r in runs[1]]
    assert 0 < tape.check() <= sum(release.rho for release in runs[0])
