"""Configurations that several threads of a process read at once."""

import subprocess
import sys

import pytest

FIRST_USE = """
import sys, threading
sys.setswitchinterval(1e-6)
from fcstream import Config
from fcstream.releases.statistics import count
SECTIONS = {
    "stream": {"name": "t"},
    "window": {"length": "10s", "start": "1970-01-01T00:00:00Z", "end": "1970-01-01T00:00:10Z"},
    "release": {"kind": "count", "rho": 1.0},
    "budget": {"rho": 4.0, "delta": 0.0},
}
together = threading.Barrier(8)

def read():
    together.wait()
    Config.from_mapping(SECTIONS)

threads = [threading.Thread(target=read) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.slow
def test_the_first_configurations_of_a_process_may_be_read_by_several_threads():
    """msgspec looked at the sections' fields in all of them at once: about every third process crashed."""
    for _ in range(8):
        assert subprocess.run([sys.executable, "-c", FIRST_USE], timeout=250).returncode == 0
