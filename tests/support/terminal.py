"""A real terminal of this machine, on which a command of this process writes."""

import fcntl
import os
import pty
import re
import struct
import sys
import termios
import threading
from contextlib import contextmanager
from unittest import mock

from fcstream.cli import main

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def plain(text):
    """What a terminal wrote, without colors."""
    return _ESCAPES.sub("", text)


@contextmanager
def _terminal(columns, encoding):
    """A stream whose other side is read by a thread, and the bytes that it read."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    attributes = termios.tcgetattr(theirs)
    attributes[1] &= ~termios.ONLCR  # the ends of lines stay as they are written
    termios.tcsetattr(theirs, termios.TCSANOW, attributes)
    parts = []

    def read():
        try:
            while part := os.read(ours, 65536):
                parts.append(part)
        except OSError:  # the other side is closed
            pass

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(theirs, "w", encoding=encoding) as stream:
        yield stream, parts
        stream.flush()
        termios.tcdrain(theirs)
    reader.join()
    os.close(ours)


def on_terminal(*arguments, columns=100, encoding="utf-8", **environment):
    """Run a command with standard output and error on a terminal, and return what it wrote there and its exit code."""
    changes = {"TERM": "xterm-256color", "NO_COLOR": "", "COLUMNS": str(columns), **environment}
    code = 0
    with (
        mock.patch.dict(os.environ, changes),
        _terminal(columns, encoding) as (stream, parts),
        mock.patch.multiple(sys, stdout=stream, stderr=stream),
    ):
        try:
            main([str(one) for one in arguments], standalone_mode=False)
        except SystemExit as ended:
            code = ended.code
    return b"".join(parts).decode(encoding), code
