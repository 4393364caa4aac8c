"""Releases on standard output, for a person or for the program that started this process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from ...errors import OutputClosed, SinkError
from ...releases.base import Release
from ..line_protocol import LineProtocol
from ..sinks import Sink


class StandardOutput(Sink):
    """Writes releases to standard output and flushes after each, so that its reader has a release at once.

    What the system accepted counts as published: ``fcstream budget releases`` prints it again if the reader lost it.
    After a crash a reader may see a torn line, and then that line again.

    Parameters
    ----------
    encode : callable
        Makes the bytes of one release, with line ends.

    Raises
    ------
    SinkError
        Standard output is closed. From `write`, `OutputClosed` if its reader went away.
    """

    def __init__(self, encode: Callable[[Release], bytes]) -> None:
        if sys.stdout is None:
            raise SinkError("standard output is closed", remedy="open it, or give a file as `sink.url`")
        self._encode = encode

    @classmethod
    def of(cls, scheme: str) -> StandardOutput:
        """Open it for ``jsonl``, a line of JSON for each release, or ``influx``, line protocol."""
        return cls(LineProtocol().encode if scheme == "influx" else _json_line)

    def write(self, releases: Sequence[Release]) -> None:
        try:
            for release in releases:
                sys.stdout.buffer.write(self._encode(release))
                sys.stdout.buffer.flush()
        except BrokenPipeError:
            raise OutputClosed(
                "standard output was closed by its reader",
                remedy="start both again; what was sealed is in the ledger and is written then",
            ) from None
        except OSError as error:
            raise SinkError(f"standard output cannot be written: {error.strerror}") from None

    def close(self) -> None:
        pass


def _json_line(release: Release) -> bytes:
    return release.to_bytes() + b"\n"
