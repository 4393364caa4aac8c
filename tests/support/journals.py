"""A device with a journal, and an operating system that fails it."""

import json
import os

from fcstream.local import Ask, Component, Euclidean, FileJournal, LocalBudget, LocalFilter, Point
from fcstream.noise.samplers import Noise, SeededEntropy

LINE = Euclidean((-500.0,), (500.0,), step=1.0)


def ask(query="q", round=1, nano=10**8, function=None, pure=False):
    return Ask(query, round, "place", LINE.as_dict(), (function or Point()).as_dict(), nano, pure)


def make(journal=None, seed=1, name="", budget=None, value=(30.0,), **more):
    budget = budget or LocalBudget.concentrated(1)
    return LocalFilter(
        budget, {"place": Component(LINE, value)}, journal, name=name, noise=Noise(SeededEntropy(seed)), **more
    )


def reply(data):
    return json.loads(data)


class Crash(Exception):
    pass


class Fragile(FileJournal):
    """Dies at one write: before it, in the middle of it, or after it is durable."""

    die_in = None

    def _write(self, change):
        if self.die_in == 0:
            raise Crash
        if self.die_in == 1:
            os.write(self._file, b"0123456789 torn")
            raise Crash
        super()._write(change)
        if self.die_in == 2:
            raise Crash
        if self.die_in is not None:
            self.die_in -= 3
