"""Streams that find their keys: neighbors that differ in one record of one period, or in one user of it.

Every other period has the record more, and a crowd makes the same keys known in all of them; so one run holds many
pairs of independent trials.
"""

import numpy as np
import pytest
from support.audits import rho_lower_bound

from fcstream import DiscoveringEngine, Noise, SeededEntropy
from fcstream.config import Config

PERIOD_MS, CROWD = 1000, 60
EVENT, USER = {}, {"unit": "user", "user": "who", "key_budgets": "shared", "keys_per_user": 2}


def configured(unit, periods, url, delta=1e-3):
    keys = {"discover": "frequent", "every": "1s", "rho": 0.5, "delta": delta, "first": ["a", "b"]}
    keys |= {"values_per_user": 2} if unit else {}
    end = np.datetime64(PERIOD_MS * periods, "ms")
    return Config.from_mapping(
        {
            "stream": {"name": "t", "key": "site", "keys": keys} | unit,
            "window": {"length": "1s", "start": "1970-01-01T00:00:00Z", "end": f"{end}Z"},
            "release": {"kind": "count", "rho": 0.5},
            "budget": {"rho": 1e6 if unit else 1.0, "delta": 0.9 if unit else delta},
            "ledger": {"url": url},
        }
    )


def run(config, periods, extra, noise):
    """Release every period, of which the odd ones hold the keys `extra` of one more record each, of one user."""
    times, keys, users = [], [], []
    for period in range(periods):
        mine = [("a", f"a{i}") for i in range(CROWD)] + [("b", f"b{i}") for i in range(CROWD)]
        mine += [(key.format(period), "one") for key in extra] if period % 2 else []
        times += [PERIOD_MS * period + i for i in range(len(mine))]
        keys += [key for key, _ in mine]
        users += [user for _, user in mine]
    with DiscoveringEngine(config, noise=noise) as engine:
        engine.push(np.array(times), None, keys, **({"ids": users} if engine.job.terms.unit == "user" else {}))
        return engine.close()


def trials(releases, periods, *keys):
    """Numbers of each period (n, 2k + 1): of every key in its window and in the search, and the sum that tells most."""
    found = np.zeros((periods - 1, 2 * len(keys)))
    for one in releases:
        period = one.window_open_ms // PERIOD_MS
        if period < periods - 1 and one.key is None:
            told = dict(zip(one.parts["levels"], one.value, strict=True))
            found[period, len(keys) :] = [told[key] / one.sigma[0] for key in keys]
        elif period < periods - 1 and one.key in keys:
            found[period, keys.index(one.key)] = one.value[0] / one.sigma[0]
    return np.column_stack([found, found.sum(axis=1)])


def test_a_record_loses_what_window_and_search_cost_and_no_more():
    periods = 2001
    config = configured(EVENT, periods, "memory:")
    releases = run(config, periods, ["a"], Noise(SeededEntropy(1)))
    numbers = trials(releases, periods, "a")
    claim = config.job.terms.capacity.rho
    assert 0.5 * claim < rho_lower_bound(numbers[::2], numbers[1::2]) <= claim


def test_a_key_of_one_record_is_told_as_often_as_delta_allows():
    periods = 2001
    config = configured(EVENT, periods, "memory:", delta=0.02)
    releases = run(config, periods, ["z{}"], Noise(SeededEntropy(2)))
    told = {key for one in releases if one.key is None for key in one.parts["levels"]} - {"a", "b"}
    assert told == {one.key for one in releases if one.key is not None} - {"a", "b"}  # and then it is answered
    share = len(told) / (periods // 2)
    assert 0.001 < share <= config.job.finder.job.answers.loss.delta


def test_a_user_under_two_keys_loses_what_window_and_search_cost_and_no_more(tmp_path):
    periods = 801
    config = configured(USER, periods, f"sqlite:{tmp_path / 'l.db'}")
    releases = run(config, periods, ["a", "b"], Noise(SeededEntropy(3)))
    numbers = trials(releases, periods, "a", "b")
    claim = (config.job.window_loss + config.job.finder.job.answers.loss).rho
    assert claim == pytest.approx(1.5)
    bound = rho_lower_bound(numbers[::2], numbers[1::2])
    assert 0.2 * claim < bound <= claim
