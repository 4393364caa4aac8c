"""Every bench runs at tiny sizes, or is listed with the reason why it is only imported."""

import json
import os
import subprocess
import sys

import pytest
from support import REPOSITORY, benches

FOLDER = REPOSITORY / "bench"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))


def tried(folder, names, scratch):
    """What is wrong with each bench, all tried in one process."""
    command = [sys.executable, benches.__file__, str(folder), *names]
    environment = os.environ | {"FCSTREAM_THREADS": "1"}
    done = subprocess.run(command, cwd=scratch, env=environment, stdout=subprocess.PIPE, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["name"]: line["wrong"] for line in lines}


@pytest.fixture(scope="module")
def all_tried(tmp_path_factory):
    return tried(FOLDER, NAMES, tmp_path_factory.mktemp("benches"))


def test_each_bench_is_run_or_left_out_for_a_reason():
    assert sorted([*benches.RUNS, *benches.LEFT_OUT]) == NAMES


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_bench_runs_at_tiny_sizes(all_tried, name):
    assert name in all_tried, "the process ended before it"
    assert all_tried[name] is None, all_tried[name]


def test_a_bench_that_fails_or_says_something_else_is_told(tmp_path):
    (tmp_path / "small_means.py").write_text("def main():\n    print('half a row')\n")
    (tmp_path / "sums.py").write_text("def main():\n    print('a row')\n    raise OSError('broken')\n")
    (tmp_path / "live.py").write_text("from fcstream import a_name_that_is_gone\n")
    found = tried(tmp_path, ["small_means", "sums", "live", "coinpress"], tmp_path)
    assert "nothing like" in found["small_means"]
    assert "half a row" in found["small_means"]
    assert "OSError: broken" in found["sums"]
    assert "a row" in found["sums"]
    assert "ImportError" in found["live"]
    assert "ModuleNotFoundError" in found["coinpress"]
