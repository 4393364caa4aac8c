"""What pytest does before the tests: the marker `fast`, the order of files, fixtures for servers, folders in memory,
drawn cases without a deadline.

Folders of tests lie in memory where there is room: an fsync costs nothing there. Tests kill processes, not machines,
and what a process has written outlives it in either place. FCSTREAM_TEST_DISK=1 keeps them on the disk.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
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
_COMPILED = "FCSTREAM_TESTS_COMPILED"
_COMPILE = """
import pathlib, sys
try:
    import fcstream
    fcstream.warm_up()
finally:
    pathlib.Path(sys.argv[1]).touch()
"""


def _is_roomy() -> bool:
    return os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > 4 * 2**30


if os.environ.get("FCSTREAM_TEST_DISK") != "1" and _is_roomy():
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", _MEMORY)


# How long a drawn case takes says how busy the machine is.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

TESTS = Path(__file__).parent
SERVERS = {"mqtt_client", "nats_server", "postgres_url", "rabbitmq", "redis_client"}
# The order of files. What waits for others (servers, processes, clocks) lies evenly among what computes all the time,
# so that no core is idle while some worker waits; of both, what takes minutes comes first.
COMPUTE = ("audit/test_planted.py", "unit/ledgers/test_postgres_faults.py", "repository/test_benches.py", "audit")
COMPUTE += ("unit/releases", "repository/test_real_data.py", "unit", "statistical", "repository")
WAIT = ("recovery", "browser", "connectors", "unit/spark", "unit/service", "unit/runtime", "unit/cli")

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
}


def pytest_configure(config):
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # by a shell that runs pytest in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)  # tests interrupt processes that they start
    config.option.loadscopereorder = False  # pytest-xdist would begin with the files that have the most tests
    if (getattr(config.option, "numprocesses", None) or 0) > 2 and not hasattr(config, "workerinput"):
        # One process compiles while many collect: else each of them would compile the same.
        folder = tempfile.TemporaryDirectory()
        os.environ[_COMPILED] = f"{folder.name}/compiled"
        compiling = subprocess.Popen([sys.executable, "-c", _COMPILE, os.environ[_COMPILED]])
        config.add_cleanup(folder.cleanup)
        config.add_cleanup(compiling.wait)


def pytest_collection_finish(session):
    """Let no test begin before that process has ended."""
    if hasattr(session.config, "workerinput") and _COMPILED in os.environ:
        while not Path(os.environ[_COMPILED]).exists():
            time.sleep(0.1)


def _places(items):
    """Return for each file its place in the order, from 0 to 1."""
    files = dict.fromkeys(item.path.relative_to(TESTS) for item in items)
    places = {}
    waiting = {path for path in files if any(path.is_relative_to(folder) for folder in WAIT)}
    for some, folders in ((waiting, WAIT), (files.keys() - waiting, COMPUTE)):
        order = {path: next(i for i, folder in enumerate(folders) if path.is_relative_to(folder)) for path in some}
        ordered = sorted(some, key=lambda path: (order[path], path))
        places |= {path: (i + 0.5) / len(ordered) for i, path in enumerate(ordered)}
    return places


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
    places = _places(items)
    items.sort(key=lambda item: places[item.path.relative_to(TESTS)])
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
