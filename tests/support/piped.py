"""The command with pipes, as a program runs it that starts others."""

import contextlib
import json
import subprocess
import sys
import time
from collections import Counter

from fcstream import Release
from support.helpers import counting_job
from support.sources import until

LENGTH_MS = 1000
AHEAD_MS = 20_000
"""How far records are stamped ahead: for so long they are not late, however slowly a pipe is read."""


class Piped:
    """The command with pipes, as a program that starts others runs it."""

    def __init__(self, folder, sink, **sections):
        self.folder, self.process, self.sent = folder, None, Counter()
        self.start_ms = time.time_ns() // 10**6 // LENGTH_MS * LENGTH_MS
        usual = {
            "source": {"url": "stdin:", "spool": "spool"},
            "window": {"clock": "wall", "lateness": "0s", "ahead": "1m"},
            "sink": {"url": sink},
        }
        (folder / "c.toml").write_text(counting_job(self.start_ms // 1000, usual, **sections))

    def start(self):
        lock = self.folder / "spool" / "lock"
        lock.unlink(missing_ok=True)
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "fcstream", "run", "c.toml"],
                cwd=self.folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        until(lock.exists)
        return self.process

    def send(self, count):
        now = time.time_ns() // 10**6 + AHEAD_MS
        for _ in range(count):
            self.process.stdin.write(json.dumps({"ts_ms": now, "a": 20.0}).encode() + b"\n")
        self.process.stdin.flush()
        self.sent[now // LENGTH_MS * LENGTH_MS] += count

    def releases(self, last_ms):
        """Read releases up to that of a window."""
        found = []
        while not found or found[-1].window_close_ms <= last_ms:
            found.append(Release.from_bytes(self.process.stdout.readline()))
        return found

    def end(self):
        self.process.stdin.close()
        with self.process.stdout as stdout:
            out = stdout.read()
        return self.process.wait(60), [Release.from_bytes(line) for line in out.splitlines()]

    def kill(self):
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.kill()
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                stream.close()
        self.process.wait()


@contextlib.contextmanager
def piped(folder, sink="jsonl:-", **sections):
    it = Piped(folder, sink, **sections)
    try:
        yield it
    finally:
        it.kill()
