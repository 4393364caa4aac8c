"""Means without radius in whole streams: sliding windows, users and keys go on from their own last release."""

import numpy as np
import pytest
from support import naive
from support.helpers import Paid, rows, sample
from support.windows import view_of

from fcstream import Engine, KeyedEngine, Noise, SeededEntropy
from fcstream.config import Config
from fcstream.ledgers.user_key import fresh_key

ZOOMING = {"method": "tracking", "radius": None, "spread": None, "delta": None, "rho": 0.5, "size_hint": 90}
USERS = {"unit": "user", "user": "id", "per_user": "first"}


def twin(config, windows, seed):
    """Outcomes of windows of lattice points, one after another, by the mechanism alone."""
    answer, noise, found = config.job.answers[0], Noise(SeededEntropy(seed)), []
    if config.job.terms.unit == "user":
        fresh_key(noise)
    mechanism = answer.mechanism
    for points in windows:
        outcome = mechanism.release(view_of(points), Paid(), noise)
        found.append(answer.grid.values(outcome.value) if outcome.value is not None else None)
        mechanism = mechanism.after(outcome.track)
    return found, mechanism.track


@pytest.mark.parametrize("unit", ["event", "user", "stream"])
@pytest.mark.parametrize("slide", ["10s", "5s"])
def test_a_window_goes_on_from_the_window_before_it(unit, slide):
    """Also where both hold the same records; a user's one point in each window is that of the earliest record."""
    stream = {**USERS, "unit": unit} if unit == "user" else {"unit": unit}
    config = Config.from_mapping(
        sample(stream=stream, release=ZOOMING, window={"slide": slide}, budget={"rho": 100.0, "delta": 0.0})
    )
    rng, schedule, grid = np.random.default_rng(3), config.job.schedule, config.job.grid
    times = np.sort(rng.integers(0, 60_000, 720))
    values, names = rows(720), [f"u{k}" for k in rng.integers(0, 110, 720)]
    values[::40] = [-39.0, 99.0]  # wild
    points, wanted = grid.points(values), [[] for _ in range(schedule.count)]
    for time, name, point in zip(times.tolist(), names, points.tolist(), strict=True):
        for index in naive.windows_of(time, 0, schedule.length_ms, schedule.slide_ms, schedule.count):
            wanted[index].append((name, time, point))
    windows = []
    for window in wanted:
        if unit == "user":
            windows.append(np.array([*naive.user_points(*zip(*window, strict=True), "first").values()], np.float64))
        else:
            windows.append(np.array([point for _, _, point in window], np.float64))
    engine = Engine(config, noise=Noise(SeededEntropy(5)))
    for cut in np.array_split(np.arange(720), 7):
        ids = {"ids": [names[i] for i in cut.tolist()]} if unit == "user" else {}
        engine.push(times[cut], values[cut], **ids)
    found = engine.close()
    told, track = twin(config, windows, 5)
    assert [release.value for release in found] == told
    assert all(release.status == "released" for release in found)
    assert {(release.rho, release.delta) for release in found} == {(0.5, 0.0)}
    assert found[-1].track == track
    assert found[-1].track.reach < found[0].track.reach


def test_every_key_zooms_in_by_itself(tmp_path):
    keys, places = ["paris", "rome"], {"paris": (20.0, 50.0), "rome": (70.0, 5.0)}
    config = Config.from_mapping(
        sample(stream={"key": "site", "keys": keys}, release=ZOOMING, ledger={"url": f"sqlite:{tmp_path / 'l.db'}"})
    )
    engine, points = KeyedEngine(config), {}
    for seed, part in enumerate(engine.parts):
        part._closer._noise = Noise(SeededEntropy(seed))
    for window in range(6):
        for seed, key in enumerate(keys):
            values = np.clip(rows(90, 10 * window + seed, places[key]), [-40, 0], [80, 100])
            points.setdefault(key, []).append(config.job.grid.points(values))
            engine.push(np.full(90, 10_000 * window), values, [key] * 90)
    found = engine.close()
    engine.acknowledge()
    for seed, key in enumerate(keys):
        own = [release for release in found if release.key == key]
        told, track = twin(config, points[key], seed)
        assert [release.value for release in own] == told
        assert own[-1].track == track
        assert own[-1].value == pytest.approx(places[key], abs=1)
