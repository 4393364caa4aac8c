"""Locks of files."""

import os
import threading

import pytest

from fcstream.runtime import disk


def test_a_lock_that_a_process_being_started_still_holds_is_waited_for(tmp_path, monkeypatch):
    """Until it runs its own program, such a process has a copy of each descriptor."""
    monkeypatch.setattr(disk, "_LOCK_S", 60.0)
    first, second = (os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(2))
    disk.lock_file(first)
    copy = os.dup(first)
    os.close(first)
    threading.Timer(0.1, os.close, (copy,)).start()
    disk.lock_file(second)
    os.close(second)


def test_a_lock_that_somebody_holds_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "_LOCK_S", 0.05)
    first, second = (os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(2))
    disk.lock_file(first)
    with pytest.raises(BlockingIOError):
        disk.lock_file(second)
    os.close(first)
    disk.lock_file(second)
    os.close(second)
