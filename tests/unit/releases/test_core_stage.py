"""What windows are forecast from public numbers."""

import math

import numpy as np

from fcstream.releases.core_stage import _normal_nodes, normal_above, release_probability


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
