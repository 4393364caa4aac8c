"""Two-neighbor audits: an empirical lower bound on epsilon must stay below the claim, and must catch planted faults.

The audited thing is the whole release of a window: core, averages, counts, everything it prints. The neighbors differ
in one record that is as bad as the mechanism allows.
"""

import numpy as np
import pytest
from support.audits import Weak, epsilon_lower_bound
from support.helpers import sample

from fcstream import Engine, Noise, SeededEntropy
from fcstream.accounting.losses import epsilon_tight
from fcstream.releases.averages import BallAverage
from fcstream.releases.means.mean import RecentredMean

RUNS = 1000


def releases(raw, runs, make_noise, **sections):
    """Numbers that one window's release prints, many times; nan where it refuses."""
    out = np.full((runs, 4), np.nan)
    base = Engine(sample(window={"end": "1970-01-01T00:00:10Z"}, **sections))
    times = np.zeros(len(raw), np.int64)
    base.push(times, raw)
    view = base._records.counter.view([0])
    from fcstream.ledgers import Request, WindowKey, open_ledger

    for run in range(runs):
        ledger = open_ledger("memory:", base.job.terms)
        charge = ledger.charge([Request(WindowKey(0, 10_000), base.job.answers[0].mechanism.loss, ("0",))])[0].charge
        outcome = base.job.answers[0].mechanism.release(view, charge, make_noise(run))
        out[run, 0] = outcome.count if outcome.count is not None else np.nan
        if outcome.value is not None:
            out[run, 1:3] = outcome.value
            out[run, 3] = outcome.core_count
    return out


def neighbors(n=400, far=False):
    """A tight window, and the same with one record more: at the edge of friendship, or far away."""
    rng = np.random.default_rng(0)
    raw = np.column_stack([rng.normal(20, 0.05, n), rng.normal(50, 0.1, n)])
    extra = [79.0, 99.0] if far else [20 + 2.9, 50.0]
    return raw, np.vstack([raw, extra])


FRIENDLY = {"release": {"rho": 0.5, "method": "friendly", "size_hint": 1900}}
CASES = {  # configuration, whether the extra record lies far away, number of records
    "recentered, edge": ({"release": {"rho": 0.5}}, False, 400),
    "recentered, far": ({"release": {"rho": 0.5}}, True, 400),
    "clip, edge": ({"release": {"rho": 0.5, "outliers": "clip"}}, False, 400),
    "clip, far": ({"release": {"rho": 0.5, "outliers": "clip"}}, True, 400),
    "friendly, edge": (FRIENDLY, False, 1900),
    "ball, edge": (
        {"release": {"rho": 0.5, "method": "ball", "center": [20.0, 50.0], "radius": 3.0, "size_hint": None}},
        False,
        400,
    ),
    "count": ({"release": {"rho": 0.5, "kind": "count"}}, False, 400),
}


@pytest.mark.parametrize("name", CASES)
def test_the_whole_release_stays_below_its_claim(name):
    sections, far, n = CASES[name]
    one, two = neighbors(n, far)
    delta = 1e-3  # the mechanism's own 1e-9 is far below what runs can show
    claim = epsilon_tight(0.5, delta - 1e-9)
    a = releases(one, RUNS, lambda s: Noise(SeededEntropy(s)), **sections)
    b = releases(two, RUNS, lambda s: Noise(SeededEntropy(10**6 + s)), **sections)
    assert np.isnan(a[:, 1]).mean() < 0.05, "it hardly releases: nothing is audited"
    assert epsilon_lower_bound(a, b, delta) < claim


@pytest.mark.parametrize("name", ["recentered, edge", "clip, edge", "friendly, edge", "ball, edge", "count"])
def test_noise_that_is_far_too_small_is_caught(name):
    sections, far, n = CASES[name]
    one, two = neighbors(n, far)
    delta = 1e-3
    claim = epsilon_tight(0.5, delta - 1e-9)
    a = releases(one, RUNS, lambda s: Weak(SeededEntropy(s), 0.05), **sections)
    b = releases(two, RUNS, lambda s: Weak(SeededEntropy(10**6 + s), 0.05), **sections)
    assert epsilon_lower_bound(a, b, delta) > claim


def test_a_forgotten_clip_is_caught(monkeypatch):
    """Planted fault: offsets are summed without clipping, so a far record moves the sum at will."""
    sections = {"release": {"rho": 0.5, "method": "ball", "center": [20.0, 50.0], "radius": 1.0, "size_hint": None}}
    one, two = neighbors(far=True)
    real = BallAverage.release

    def unclipped(self, points, center, radius_squared, noise, *rest):
        from fcstream._kernels import sums

        original = sums.clipped_sum
        monkeypatch.setattr(sums, "clipped_sum", lambda t, u, m, c, r2, out: original(t, u, m, c, float(2**52), out))
        try:
            return real(self, points, center, radius_squared, noise, *rest)
        finally:
            monkeypatch.setattr(sums, "clipped_sum", original)

    claim = epsilon_tight(0.5, 1e-3)
    monkeypatch.setattr(BallAverage, "release", unclipped)
    a = releases(one, RUNS, lambda s: Noise(SeededEntropy(s)), **sections)
    b = releases(two, RUNS, lambda s: Noise(SeededEntropy(10**6 + s)), **sections)
    assert epsilon_lower_bound(a, b, 1e-3) > claim


def test_a_core_that_keeps_everyone_is_caught(monkeypatch):
    """Planted fault: no filter. The stranger's presence then shows in the friendly average."""
    import dataclasses

    from fcstream.cores.filters import ZCDPFilter

    sections = FRIENDLY
    one, two = neighbors(1900, far=True)
    real = ZCDPFilter.keep

    def everyone(self, counts, n_hat, noise):
        core = real(self, counts, n_hat, noise)
        return dataclasses.replace(core, mask=np.ones(len(counts), bool))

    monkeypatch.setattr(ZCDPFilter, "keep", everyone)
    a = releases(one, RUNS, lambda s: Noise(SeededEntropy(s)), **sections)
    b = releases(two, RUNS, lambda s: Noise(SeededEntropy(10**6 + s)), **sections)
    assert epsilon_lower_bound(a, b, 1e-3) > epsilon_tight(0.5, 1e-3)


def test_the_bound_itself_is_right():
    """Two Gaussians of known distance: the bound is below the truth and not far."""
    rng = np.random.default_rng(0)
    one = rng.normal(0, 1, size=(20_000, 1))
    two = rng.normal(2, 1, size=(20_000, 1))
    bound = epsilon_lower_bound(one, two, 1e-3)
    assert 2.0 < bound < epsilon_tight(2.0, 1e-3)


def test_mechanism_under_audit_is_the_default():
    assert isinstance(Engine(sample()).job.answers[0].mechanism.inner, RecentredMean)
