"""What windows are forecast from public numbers."""

import math

import numpy as np
import pytest

from fcstream.accounting.losses import PrivacyLoss
from fcstream.releases.core_stage import STOP_CHANCE, StopSearch, _normal_nodes, normal_above, release_probability
from fcstream.releases.means.mean import FriendlyMean, RecentredMean


def naive_probability(law, needs):
    total = 0.0
    for weight, mean, variance in law:
        for node, node_weight in _normal_nodes():
            size = mean + node * math.sqrt(variance)
            chance = weight * node_weight * (size >= 0.5)
            for threshold, noise_variance in needs:
                chance *= normal_above((threshold - size) / math.sqrt(noise_variance))
            total += chance
    return min(1.0, total)


def test_the_chance_of_a_release_leaves_out_only_what_is_certain():
    """Far from a threshold the chance is 1 or 0 in float64, and is not computed."""
    assert normal_above(-8.5) == 1.0
    assert normal_above(39.0) == 0.0
    rng = np.random.default_rng(1)
    for _ in range(200):
        size = 10 ** rng.uniform(0, 5)
        law = [(w, max(0.0, size + x * rng.uniform(0, 30)), size * rng.uniform(0, 0.25)) for x, w in _normal_nodes()]
        needs = [(size * rng.uniform(0.1, 1.5), 10 ** rng.uniform(-1, 5)) for _ in range(2)]
        assert math.isclose(release_probability(law, needs), naive_probability(law, needs), abs_tol=1e-12)


def naive_least(mechanism):
    """The least noisy size that is not stopped, by the whole bisection."""
    low, high = 0, mechanism.size_hint
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        if mechanism.forecast(middle).probability >= STOP_CHANCE:
            high = middle
        else:
            low = middle
    return math.floor(low - 3 * math.sqrt(mechanism.core.size_variance))


@pytest.mark.parametrize("make", [FriendlyMean, RecentredMean])
@pytest.mark.parametrize("size_hint", [1, 2, 30, 1000, 50_000])
def test_a_size_is_stopped_as_the_whole_search_would_stop_it(make, size_hint):
    """However many sizes were asked for before, and in which order."""
    mechanism = make(PrivacyLoss.charge(0.5, 1e-6), 300**2, 2, size_hint)
    least = naive_least(mechanism)
    near = [*range(least - 3, least + 4), -50, 0, 1, size_hint // 3, size_hint, 3 * size_hint]
    for order in (near, near[::-1], [size_hint, *near]):
        search = StopSearch(mechanism, mechanism.core, size_hint)
        assert [search.stops(size) for size in order] == [size < least for size in order]
        assert search.least == least == mechanism.min_count
    for size in near:
        assert StopSearch(mechanism, mechanism.core, size_hint).stops(size) == (size < least)


def test_one_forecast_tells_that_a_window_of_the_usual_size_is_not_stopped():
    mechanism, asked = RecentredMean(PrivacyLoss.charge(0.5, 1e-6), 300**2, 2, 5000), []

    class Counted:
        def forecast(self, size):
            asked.append(size)
            return mechanism.forecast(size)

    assert not StopSearch(Counted(), mechanism.core, 5000).stops(4990)
    assert len(asked) <= 1
