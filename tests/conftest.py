"""Folders of tests lie in memory where there is room: an fsync costs nothing there. Tests kill processes, not machines,
and what a process has written outlives it in either place. FCSTREAM_TEST_DISK=1 keeps them on the disk."""

import os
import shutil

import pytest

pytest_plugins = [  # fixtures for servers
    "support.mqtt",
    "support.nats_server",
    "support.postgres",
    "support.rabbitmq",
    "support.redis_server",
    "support.running",
]

_MEMORY = "/dev/shm"


def _is_roomy() -> bool:
    return os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > 4 * 2**30


if os.environ.get("FCSTREAM_TEST_DISK") != "1" and _is_roomy():
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", _MEMORY)


@pytest.fixture(scope="module")
def one_start():
    """Oracles start once: clusters that are far apart need no more, and tests no longer."""
    from fcstream.releases.clusters import oracles

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(oracles, "RESTARTS", 1)
        yield
