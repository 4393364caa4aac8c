"""Documents that anybody may have written: drawn, or refused in our own words."""

import copy
import gzip
import json
import os
import random
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from fcstream import Release
from fcstream.cli import main
from fcstream.errors import FcstreamError
from fcstream.releases import shape as shapes
from fcstream.releases.intervals import interval_of
from fcstream.reporting.series import read_series

pytest.importorskip("matplotlib")
SECONDS = float(os.environ.get("FCSTREAM_FUZZ_SECONDS", "4"))
HOUR = 3_600_000
PLANE = {"features": ["x", "y"], "transform": ["none", "log1p"]}
COLUMNS = [{"name": "on", "levels": ["no", "yes"]}, {"name": "load", "levels": [0.5, 1.5], "edges": [0, 1, 2]}]
OWN = shapes.ResultShape(
    axes=(shapes.Axis(name="time", labels=("times",)), shapes.Axis(name="feature", labels=("features",))),
    numbers=(shapes.Numbers(axes=(0, 1)),),
    form="bars",
)
SHAPES = {
    "mean": ([1.0, 2.0], [0.1, 0.2], PLANE),
    "variance": ([1.0, 2.0], [0.1, 0.2], PLANE),
    "count": ([7], [0.7], {}),
    "sum": ([100.0, 20.0], [3.0, 4.0], PLANE),
    "total": (
        [5.0],
        [0.5],
        {
            "parts": {"of": "count", "epoch_open_ms": 0, "windows": 1, "window": {"value": [5.0], "sigma": [0.5]}},
        },
    ),
    "frequent": ([9.0, 7.0], [0.5, 0.5], {"parts": {"feature": "app", "levels": ["x", "y"], "threshold": 5}}),
    "synthetic": (
        [[5000, 4000], [7000, 1000]],
        None,
        {"parts": {"columns": COLUMNS, "unit": 10_000, "weights": [0.5, 0.5], "counts": [3, 4], "rows": 7, "seed": 1}},
    ),
    "histogram": ([5.0, 1.0], [0.5, 0.5], {"parts": {"feature": "a", "edges": [0.0, 1.0, 2.0]}}),
    "quantiles": ([1.0, 2.0, 3.0], None, {"features": ["x"], "parts": {"quantiles": [0.1, 0.5, 0.9]}}),
    "centers": ([[1.0, 2.0], [3.0, 4.0]], [[0.1, 0.1]] * 2, PLANE | {"parts": {"counts": [3, 50]}}),
    "mixtures": (
        [[1.0, 2.0], [3.0, 4.0]],
        [[0.1, 0.1]] * 2,
        PLANE | {"parts": {"weights": [0.5, 0.5], "covariances": [[[1.0, 0.5], [0.5, 2.0]]] * 2}},
    ),
    "points": ([[1.0, 2.0], [3.0, 4.0]], None, PLANE | {"parts": {"weights": [0.5, 0.5]}}),
    "covariance": ([[4.0, 1.0], [1.0, 2.0]], [[0.4, 0.3], [0.3, 0.2]], PLANE | {"parts": {"eta": 0.05}}),
    "tree": ([5.0, 1.0], [0.5, 0.5], PLANE | {"parts": {"low": [[0.0, 0.0], [1.0, 0.0]], "high": [[1.0, 2.0]] * 2}}),
    "marginals": (
        [[1.0, 2.0, 3.0, 4.0], [6.0, 8.0]],
        None,
        {"parts": {"columns": COLUMNS, "tables": [["on", "load"], ["on"]], "cell_sigma": 1.5}},
    ),
    "own": ([[1.0, 2.0], [3.0, 4.0]], [[0.1, 0.1]] * 2, PLANE | {"parts": {"times": ["am", "pm"]}, "shape": OWN}),
}
ODD = [None, True, 0, -1, 2**63, -(2**63), 1e308, -1e308, 5e-324, "", "S3NTINEL", [], {}, [[]], [None], [1, [2]], 1.5]


def documents(kind):
    """Two windows released and one refused."""
    value, sigma, more = SHAPES[kind]
    facts = {"stream": "s", "kind": kind, "rho": 0.5, "delta": 1e-9, "private": True, "core_count": None}
    facts |= {"guarantee": {"rho": 2.0, "delta": 1e-6}, "spent": {"rho": 0.5, "delta": 1e-9}} | more
    made = []
    for k, (status, reason) in enumerate([("released", None), ("released", None), ("refused", "too_few")]):
        is_value = reason is None
        window = {"window_open_ms": k * HOUR, "window_close_ms": (k + 1) * HOUR, "status": status, "reason": reason}
        noisy = {"value": value if is_value else None, "sigma": sigma if is_value else None, "count": 5}
        noisy["interval"] = interval_of(shapes.SHAPES.get(kind, OWN).value.law, noisy["value"], noisy["sigma"])
        made.append(json.loads(Release(**facts | window | noisy).to_bytes()))
    return made


def spots(found, path=()):
    """Every place in a document."""
    if path:
        yield path
    items = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    for key, item in items:
        yield from spots(item, (*path, key))


def mutated(rng, kind):
    found = documents(kind)
    for _ in range(rng.randint(1, 3)):
        *outer, last = rng.choice([path for path in spots(found) if len(path) > 1])
        place = found
        for key in outer:
            place = place[key]
        how = rng.random()
        if how < 0.15:
            del place[last]
        elif how < 0.25 and isinstance(place, list):
            place.append(copy.deepcopy(place[last]))
        elif how < 0.35 and isinstance(place[last], (int, float)):
            place[last] *= rng.choice([-1, 1e6, 1e60, 1e300, 0])
        else:
            place[last] = copy.deepcopy(rng.choice(ODD))
    return [json.dumps(one).encode() + b"\n" for one in found]


@pytest.mark.slow
def test_ten_thousand_documents_are_read_or_refused_in_our_words():
    rng, taken, told = random.Random(11), 0, set()
    for k in range(10_000):
        lines = mutated(rng, list(SHAPES)[k % len(SHAPES)])
        try:
            read_series(lines)
            taken += 1
        except FcstreamError as error:
            told.add(str(error))
    assert not [text for text in told if "S3NTINEL" in text and "--stream" not in text and "kind" not in text]
    assert 500 < taken < 9500  # a fuzz whose documents are all refused, or all read, finds nothing


@pytest.mark.slow
def test_what_is_read_is_drawn(tmp_path):
    """What passes the reader has a picture, whatever its numbers."""
    from fcstream.plots import plot_releases

    rng, end, drawn = random.Random(12), time.monotonic() + SECONDS, 0
    while time.monotonic() < end or drawn < 20:
        lines = mutated(rng, rng.choice(list(SHAPES)))
        try:
            series = read_series(lines)
            plot_releases(series, str(tmp_path / "x.svg"))
        except FcstreamError:
            continue
        except Exception:
            print(b"".join(lines).decode())
            raise
        drawn += 1


def test_noise_of_a_refusal_is_refused():
    lines = documents("count")
    lines[2]["sigma"] = []
    with pytest.raises(FcstreamError, match="must hold no sigma without a value"):
        read_series([json.dumps(one).encode() for one in lines])


@pytest.mark.parametrize("broken", [[], [[1.0]], [1.0], [[1.0, "x"]], {}])
def test_an_interval_has_two_ends_for_each_number(broken):
    lines = documents("count")
    lines[1]["interval"] = broken
    with pytest.raises(FcstreamError):
        read_series([json.dumps(one).encode() for one in lines])


@pytest.mark.parametrize("kind", SHAPES)
def test_every_kind_is_drawn_as_it_was_written(kind, tmp_path):
    from fcstream.plots import plot_releases

    plot_releases(read_series([json.dumps(one).encode() for one in documents(kind)]), str(tmp_path / "x.svg"))


BOMB = 700 * 2**20


@pytest.fixture(scope="module")
def bomb(tmp_path_factory):
    """A small file of one line that would be 700 MiB."""
    path = tmp_path_factory.mktemp("bomb") / "x.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(BOMB // 2**20):
            file.write(b" " * 2**20)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("command", [["plot", "{}"], ["plot", "{}", "--truth", "{}"], ["score", "{}", "{}"]])
def test_a_small_file_that_unpacks_without_end_takes_no_memory(bomb, command, tmp_path):
    program = (
        "import re, sys; from fcstream.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "finally: print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1], file=sys.stderr)"
    )
    arguments = [part.format(bomb) for part in command]
    said = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, cwd=tmp_path, timeout=600
    )
    *_, message, peak = said.stderr.strip().splitlines()
    assert said.returncode == 1
    assert "is longer than" in message
    assert int(peak) < 400 * 1024  # KiB


def test_files_cut_short_are_reported(tmp_path):
    whole = gzip.compress(b"".join(json.dumps(one).encode() + b"\n" for one in documents("mean")))
    for cut in (1, len(whole) // 2, len(whole) - 1):
        (tmp_path / "x.jsonl.gz").write_bytes(whole[:cut])
        said = CliRunner().invoke(main, ["plot", str(tmp_path / "x.jsonl.gz"), "--out", str(tmp_path / "x.svg")])
        assert said.exit_code == 1
        assert "cannot be read" in said.output
