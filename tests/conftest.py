"""What pytest does before the tests: the marker `fast`, the order of files, fixtures for servers, folders in memory,
drawn cases without a deadline.

Folders of tests lie in memory where there is room: an fsync costs nothing there. Tests kill processes, not machines,
and what a process has written outlives it in either place. FCSTREAM_TEST_DISK=1 keeps them on the disk.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = [  # fixtures for servers
    "support.beside",
    "support.browser",
    "support.kafka",
    "support.queues",  # which the next one imports
    "support.mqtt",
    "support.nats_server",
    "support.postgres",
    "support.rabbitmq",
    "support.redis_server",
    "support.reported_ledgers",
    "support.running",
]

_MEMORY = "/dev/shm"


def _is_roomy() -> bool:
    return os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > 4 * 2**30


if os.environ.get("FCSTREAM_TEST_DISK") != "1" and _is_roomy():
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", _MEMORY)


# How long a drawn case takes says how busy the machine is.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

TESTS = Path(__file__).parent
SERVERS = {"mqtt_client", "nats_server", "postgres_url", "rabbitmq", "redis_client"}
# The order of files: those that take minutes first, so that no worker is left alone with one of them. What computes all
# the time begins beside what waits for others.
FIRST = ("audit/test_planted.py", "recovery", "audit", "unit/spark", "browser", "connectors", "unit", "statistical")
FIRST += ("repository",)

LONG = {  # files of ten processor seconds and more
    "repository/test_real_data.py",
    "unit/arrays/test_estimators.py",
    "unit/counting/test_sampled.py",
    "unit/formats/test_fuzz.py",
    "unit/formats/test_nested_fuzz.py",
    "unit/predicates/test_predicates.py",
    "unit/releases/test_drawable_noise.py",
    "unit/releases/test_searched_means.py",
    "unit/reporting/test_documents.py",
    "unit/reporting/test_looks.py",
    "unit/service/test_released_values.py",
}


def pytest_configure(config):
    config.option.loadscopereorder = False  # pytest-xdist would begin with the files that have the most tests
    if (getattr(config.option, "numprocesses", None) or 0) > 2 and not hasattr(config, "workerinput"):
        # One process compiles while many collect: else each of them would compile the same.
        compiling = subprocess.Popen([sys.executable, "-c", "import fcstream; fcstream.warm_up()"])
        config.add_cleanup(compiling.wait)


def _place(item):
    path = item.path.relative_to(TESTS)
    return next(i for i, first in enumerate(FIRST) if path.is_relative_to(first))


def _is_fast(item):
    """Tests of one part of the package, or of the repository, that need no server and take less than a second."""
    path = item.path.relative_to(TESTS)
    folder = path.parts
    return (
        folder[0] in ("unit", "repository")
        and path.as_posix() not in LONG
        and folder[1] != "spark"
        and not SERVERS & set(item.fixturenames)
        and item.get_closest_marker("slow") is None
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    items.sort(key=_place)
    for item in items:
        if _is_fast(item):
            item.add_marker("fast")


@pytest.fixture(scope="module")
def one_start():
    """Oracles start once: clusters that are far apart need no more, and tests no longer."""
    from fcstream.releases.clusters import oracles

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(oracles, "RESTARTS", 1)
        yield
