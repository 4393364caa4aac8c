"""No random word serves twice: all sources of a process together give each once, and a release makes no second `Noise`.

Words are counted by the stage that was started last, so that a stage that is paid for and draws nothing shows: it has
somebody else's noise.
"""

import collections

import numpy as np
import pytest
from audit.replay import cases, job_of, mechanism_of, neighbors
from audit.replayed_streams import CASES, base, configured, ledgers_of

from fcstream import Noise, SeededEntropy
from fcstream.noise.samplers import SystemEntropy
from fcstream.releases.contract import OpenCharge


class Words:
    """Every word that any source has given, and how many in each stage."""

    def __init__(self, monkeypatch, own=None):
        self.given, self.stage, self.counts = set(), None, collections.Counter()
        known = self.known = [own]
        plain = SeededEntropy.__init__

        def init(made, seed):
            known.extend([made] if seed else [])
            plain(made, seed)

        monkeypatch.setattr(SeededEntropy, "__init__", init)
        for source in (SystemEntropy, SeededEntropy):
            monkeypatch.setattr(source, "words", self._counted(source.words))

    def _counted(self, plain):
        def words(source, count):
            found = plain(source, count)
            if isinstance(source, SeededEntropy) and not any(source is one for one in self.known):
                return found  # made before, or always from 0: for what follows from public or released numbers
            fresh = set(found.tolist())
            assert len(fresh) == count, "a word comes twice"
            assert not fresh & self.given, "a word is given that was given before"
            self.given |= fresh
            self.counts[self.stage] += count
            return found

        return words


class Stages(OpenCharge):
    """A charge that tells which stage is drawn."""

    def __init__(self, loss, words):
        super().__init__(loss)
        self.words, self.paid = words, []

    def start(self, stage):
        super().start(stage)
        if stage.rho_nano:
            self.words.stage = len(self.paid)
            self.paid.append(stage)


def refused(*_):
    raise AssertionError("a second Noise is made")


@pytest.mark.parametrize("name", cases())
def test_each_stage_of_a_release_has_words_of_its_own(name, monkeypatch):
    job = job_of(cases()[name])
    mechanism = mechanism_of(name, job)
    _, points, _ = next(neighbors(name, 0))
    noise = Noise(SeededEntropy(1))
    counter = mechanism.counter(2, 1, noise)
    counter.add(0, job.grid.points(points))
    mechanism.release(counter.view([0]), OpenCharge(mechanism.loss), noise)  # predictions from public numbers are kept
    words = Words(monkeypatch, noise.entropy)
    monkeypatch.setattr(Noise, "__init__", refused)
    for _ in range(2):
        charge = Stages(mechanism.loss, words)
        mechanism.release(counter.view([0]), charge, noise)
        assert charge.paid
        assert all(words.counts[stage] for stage in range(len(charge.paid)))
        words.counts.clear()


@pytest.mark.parametrize("name", CASES)
def test_answers_keys_and_windows_share_no_word(name, monkeypatch):
    sections, make, _ = CASES[name]
    config, noise = configured(**sections), Noise(SeededEntropy(1))
    engine = make(config, noise=noise, **ledgers_of(config, make))
    words = Words(monkeypatch, noise.entropy)
    monkeypatch.setattr(Noise, "__init__", refused)
    times, points, options = base(engine, 0)
    engine.push(times, points, **options)
    released = engine.close()
    assert len(words.given) >= len(released)


def test_a_source_that_repeats_itself_is_noticed(monkeypatch):
    Words(monkeypatch)
    Noise(SeededEntropy(5)).discrete_gaussian(100, 3)
    with pytest.raises(AssertionError, match="given before"):
        Noise(SeededEntropy(5)).discrete_gaussian(100, 3)
    assert len(np.unique(Noise().discrete_gaussian(2**70, 9))) == 9
