"""Ends a process that is told to end while one call of a decoder holds the interpreter's lock.

No thread of the process runs then, and none of its handlers of signals. The system's handler does: it writes the signal
to a pipe, which a small process reads. It ends this one if the messages that are being decoded stay the same for
`PATIENCE_S` from then on. They are noted (`fcstream.connectors.quarantine`), so a restart decodes them one by one.
"""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO

from ..connectors.quarantine import TURNS

PATIENCE_S = 1.5
_PROGRAM = """
import os, select, signal, struct, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
pipe, state, parent, patience = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
is_told, seen, since = False, None, 0.0
while True:
    if select.select([pipe], [], [], 0.1 if is_told else None)[0]:
        numbers = os.read(pipe, 512)
        if not numbers:
            sys.exit()
        is_told = is_told or signal.SIGTERM in numbers
    if is_told:
        found, now = os.pread(state, 16, 0), time.monotonic()
        if found != seen:
            seen, since = found, now
        elif struct.unpack("QQ", found)[1] and now > since + patience:
            os.kill(parent, signal.SIGKILL)
"""


@contextmanager
def guarded() -> Iterator[None]:
    """Have this process ended on SIGTERM, whatever its decoders do; on the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with ExitStack() as stack:
        state = stack.enter_context(_memory()).fileno()
        os.ftruncate(state, mmap.PAGESIZE)
        read, write = os.pipe()
        arguments = [str(each) for each in (read, state, os.getpid(), PATIENCE_S)]
        try:
            command = [sys.executable, "-I", "-S", "-c", _PROGRAM, *arguments]
            none = subprocess.DEVNULL
            guard = subprocess.Popen(command, pass_fds=(read, state), stdin=none, stdout=none, stderr=none)
        finally:
            os.close(read)
        stack.callback(guard.wait)
        stack.callback(os.close, write)
        os.set_blocking(write, False)
        before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        stack.callback(signal.set_wakeup_fd, before)
        TURNS.tell(mmap.mmap(state, mmap.PAGESIZE))
        stack.callback(TURNS.tell, None)
        yield


def _memory() -> IO[bytes]:
    """Return a file that lies in memory where the system has such files."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("fcstream"), "r+b")
    return tempfile.TemporaryFile()
