"""Jobs in processes of their own that are killed at the n-th call that writes."""

import io
import os
import signal
import sys

from fcstream.connectors import open_sink, open_source
from fcstream.engine.opening import open_engine
from fcstream.errors import FcstreamError
from fcstream.ledgers import files as ledger_files
from fcstream.service.batch import run


def run_job(config, stdout=None):
    engine = open_engine(config)
    source = open_source(config.source.url, config.job.schema)
    real, sys.stdout = sys.stdout, stdout or sys.stdout
    sink = open_sink(config.sink.url)
    try:
        return run(engine, source, sink)
    finally:
        source.close()
        sink.close()
        sys.stdout = real


class Fuse:
    """Kills this process at the n-th dangerous call; with n = None only counts."""

    def __init__(self, burn_at):
        self.burn_at = burn_at
        self.calls = 0

    def __call__(self):
        self.calls += 1
        if self.calls == self.burn_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def done(self, call, *args):
        """What comes after some calls."""


class Pipe(io.RawIOBase):
    """Standard output, written in two halves."""

    def __init__(self, path, fuse):
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._fuse = fuse

    def writable(self):
        return True

    def write(self, data):
        data = bytes(data)
        for part in (data[: len(data) // 2], data[len(data) // 2 :]):
            self._fuse()
            os.write(self._fd, part)
        return len(data)


def rig(fuse, torn):
    """Put the fuse before every SQL statement, before and in the middle of every write, before every fsync."""
    import sqlite3

    class Connection(sqlite3.Connection):
        def execute(self, *args):
            fuse()
            found = super().execute(*args)
            fuse.done("execute", self, args[0])
            return found

        def executemany(self, *args):
            fuse()
            return super().executemany(*args)

        def executescript(self, *args):
            fuse()
            return super().executescript(*args)

    real_connect, real_pwrite, real_fsync = sqlite3.connect, os.pwrite, os.fsync
    ledger_files.sqlite3.connect = lambda *a, **k: real_connect(*a, factory=Connection, **k)

    def pwrite(fd, data, offset):
        fuse()
        if torn:
            real_pwrite(fd, data[: len(data) // 2], offset)
            fuse()
        return real_pwrite(fd, data, offset)

    def fsync(fd):
        fuse()
        real_fsync(fd)
        fuse.done("fsync")

    os.pwrite, os.fsync = pwrite, fsync


def in_child(config, burn_at, terminal=None, torn=True, fuse=None):
    """Run the job in a forked process that kills itself; returns (exit status, calls counted)."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            fuse = fuse or Fuse(burn_at)
            rig(fuse, torn)
            stdout = None
            if terminal is not None:  # every process has a terminal of its own
                place = terminal / f"out.{len(list(terminal.glob('out.*')))}"
                stdout = io.TextIOWrapper(io.BufferedWriter(Pipe(place, fuse)))
            run_job(config, stdout)
            os.write(writer, str(fuse.calls).encode())
            code = 0
        except FcstreamError:
            code = 2
        finally:
            os._exit(code)
    os.close(writer)
    status = os.waitpid(pid, 0)[1]
    with os.fdopen(reader, "rb") as file:
        return status, file.read()
