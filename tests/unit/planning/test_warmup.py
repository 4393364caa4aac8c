"""What is compiled beforehand, and by which process."""

import os
import subprocess
import sys
from contextlib import contextmanager

import pytest
from click.testing import CliRunner

from fcstream.cli import main
from fcstream.planning import warmup
from fcstream.sections import Count, Mean

LARGE = Mean(rho=1, delta=1e-6, radius=1, size_hint=5000)
COUNTS = """
[stream]
name = "visits"
time = "t"
[window]
length = "1h"
start = "2026-01-01T00:00:00Z"
end = "2026-01-02T00:00:00Z"
[release]
kind = "count"
rho = 0.1
[budget]
rho = 1
delta = 1e-6
[ledger]
url = "memory:"
"""


@pytest.fixture
def processes(monkeypatch):
    """Processes that a warm-up starts."""
    started, popen = [], subprocess.Popen

    def noted(*arguments, **options):
        started.append(popen(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", noted)
    monkeypatch.setenv("FCSTREAM_THREADS", "2")
    return started


SMALL = Mean(rho=1, delta=1e-6, radius=1, size_hint=600)


@pytest.fixture
def fresh(monkeypatch):
    """The noise is compiled while it is watched, as in a fresh environment."""

    @contextmanager
    def compiles(callback):
        callback()
        yield

    monkeypatch.setattr(warmup, "watching_compilation", compiles)


@pytest.mark.slow
@pytest.mark.parametrize(("release", "function"), [(LARGE, "compile_exact_counts"), (SMALL, "compile_sums")])
def test_in_a_fresh_environment_a_second_process_compiles_a_part(release, function, processes, fresh):
    warmup.warm_first_window([release])
    assert [process.returncode for process in processes] == [0]
    assert processes[0].args[-1].endswith(f"{function}()")


@pytest.mark.parametrize(
    "sizes", [[], [Count(rho=1)], [Mean(rho=1, method="ball", radius=1, center=[0])], [SMALL], [LARGE]]
)
def test_no_process_is_started_for_what_has_no_core_or_is_compiled(sizes, processes):
    warmup.warm_up("count")
    warmup.warm_first_window(sizes)
    assert processes == []


def test_one_processor_is_left_to_one_process(processes, monkeypatch, fresh):
    monkeypatch.setenv("FCSTREAM_THREADS", "1")
    warmup.warm_first_window([LARGE])
    assert processes == []


@pytest.mark.slow
def test_the_command_fills_the_cache_that_is_named(tmp_path):
    (tmp_path / "visits.toml").write_text(COUNTS)
    cache = tmp_path / "cache"
    command = [sys.executable, "-m", "fcstream", "warm", "visits.toml"]
    subprocess.run(command, cwd=tmp_path, env=os.environ | {"NUMBA_CACHE_DIR": str(cache)}, check=True)
    kept = {path.name.split("-")[0] for path in cache.rglob("*.nbi")}
    assert "noise.discrete_gaussian" in kept
    assert not {name for name in kept if name.startswith("pairs.")}  # nobody asks who is near


def test_a_configuration_that_cannot_be_read_is_refused(tmp_path):
    told = CliRunner().invoke(main, ["warm", str(tmp_path / "absent.toml")])
    assert told.exit_code == 2
    assert "absent.toml" in told.stderr
