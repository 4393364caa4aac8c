"""Frequent texts of neighbors that differ in one record with a text that others have, or that nobody else has."""

import numpy as np
import pytest
from support.audits import epsilon_lower_bound, rho_lower_bound
from support.helpers import Paid

from fcstream import Noise, SeededEntropy
from fcstream.accounting.losses import epsilon_tight
from fcstream.formats.plain_columns import as_objects
from fcstream.releases.options import BuildContext
from fcstream.releases.reasons import REASONS
from fcstream.releases.statistics.frequent import FrequentOptions
from fcstream.stream.lattice import Grid, Lattice

RUNS = 5_000
KNOWN = ["a"] * 9 + ["b"] * 4
CASES = {  # unit, keys, texts of both, and of the one that only the second has
    "event": ("event", {}, KNOWN, "a"),
    "event, a new text": ("event", {}, KNOWN, "z"),
    "event, at the gate": ("event", {"max_values": 2}, KNOWN, "z"),
    "user": ("user", {"values_per_user": 2}, [("a", "b")] * 4 + [("a", "c")] * 5, ("a", "b")),
    "user, new texts": ("user", {"values_per_user": 2}, [("a", "b")] * 6, ("y", "z")),
}


def outcomes(name, more, seed):
    """What is told of each text, how many are told, and the reason, for each release of one window (runs, 7)."""
    unit, keys, texts, extra = CASES[name]
    options = FrequentOptions(kind="frequent", rho=0.5, delta=0.01, **keys)
    mechanism = options.build(BuildContext(Grid(Lattice(1.0), ()), unit=unit, texts=("app",)))
    counter, noise, rows = mechanism.counter(0, 1, Noise(SeededEntropy(0))), Noise(SeededEntropy(seed)), []
    counter.add(0, as_objects([*texts, extra] if more else texts))
    view = counter.view([0])
    for _ in range(RUNS):
        found = mechanism.release(view, Paid(), noise)
        told = {} if found.parts is None else dict(zip(found.parts["levels"], found.value, strict=True))
        reason = -1 if found.reason is None else REASONS.index(found.reason)
        rows.append([*(told.get(text, np.nan) for text in "abcyz"), len(told), reason])
    return np.array(rows, float), mechanism.loss


@pytest.mark.parametrize("name", CASES)
def test_neighbors_stay_below_the_claim(name):
    (one, loss), (two, _) = outcomes(name, False, 1), outcomes(name, True, 2)
    for delta in (0.012, 0.02, 0.1, 0.2):
        assert epsilon_lower_bound(one, two, delta) <= epsilon_tight(loss.rho, delta - loss.delta)
    seldom = ("a new text", "new texts")  # what delta pays for has no divergence
    assert name.endswith(seldom) or rho_lower_bound(one, two) <= loss.rho


def test_a_text_of_one_record_is_told_as_often_as_delta_allows():
    """So a threshold that is lower by one shows."""
    two, loss = outcomes("event, a new text", True, 3)
    share = np.mean(np.isfinite(two[:, 4]))
    assert 0.0005 < share <= loss.delta
