"""Probes for ``fcstream doctor``: what can be found out about a source or sink without consuming, committing or
writing.

What can be found out without leaving a trace differs from system to system; a probe reports what it did not try.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..runtime.words import duration
from .posting import Poster, error_text
from .registry import FILE_SINKS, FOLDER_SINKS, STANDARD_OUTPUT, find
from .urls import Address, parse

PATIENCE_S = 4.0


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check.

    Attributes
    ----------
    check : str
        What was checked, for instance ``source``.
    level : str
        ``ok``, ``warning`` or ``problem``.
    what, remedy : str
        Neither holds a secret. The remedy is empty if the level is ``ok``.
    """

    check: str
    level: str
    what: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.level}: {self.check}: {self.what}" + (f"; {self.remedy}" if self.remedy else "")


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """How far another machine's clock is ahead of this one, and the largest error of that figure."""

    whose: str
    ahead_ms: float
    doubt_ms: float

    @classmethod
    def read(cls, whose: str, ask: Callable[[], float]) -> ClockOffset:
        """Measure the offset; `ask` returns Unix milliseconds, and the less time it takes, the smaller is the error."""
        before = time.time_ns() / 1e6
        theirs = ask()
        after = time.time_ns() / 1e6
        return cls(whose, theirs - (before + after) / 2, (after - before) / 2)


@dataclass(slots=True)
class Checkup:
    """Findings of one run of ``fcstream doctor``, in order.

    Attributes
    ----------
    need_ms : int
        How long a source must keep a message: a window and its lateness.
    """

    need_ms: int
    findings: list[Finding] = field(default_factory=list)
    clocks: list[ClockOffset] = field(default_factory=list)

    def ok(self, check: str, what: str) -> None:
        self.findings.append(Finding(check, "ok", what))

    def warn(self, check: str, what: str, remedy: str) -> None:
        self.findings.append(Finding(check, "warning", what, remedy))

    def problem(self, check: str, what: str, remedy: str) -> None:
        self.findings.append(Finding(check, "problem", what, remedy))

    def retention(self, keeps_ms: float) -> None:
        """Report whether a source that drops messages by age keeps them long enough."""
        keeps = f"the broker keeps messages for {duration(int(keeps_ms))}"
        wants = f"a window and its lateness take {duration(self.need_ms)}"
        if keeps_ms < self.need_ms:
            self.problem("source", f"{keeps}, {wants}", "let it keep them longer: a restart could not read them again")
        elif keeps_ms < 2 * self.need_ms:
            self.warn("source", f"{keeps}, {wants}", "let it keep them for the longest pause you want to survive too")
        else:
            self.ok("source", keeps)


class Probe:
    """Checks the systems of one URL scheme for ``fcstream doctor``; this base class checks whether something listens
    there.

    A probe of another package is a subclass, made without arguments, which the entry point group ``fcstream.probes``
    names under the scheme (in this package the registry does). It consumes, commits and publishes nothing, and reports
    what it did not try. An `FcstreamError` that it raises is reported as a problem, after what it found before.

    Attributes
    ----------
    patience_option : str
        The option of a URL that says how long its connector tries to connect; `doctor` sets it to 4 seconds.
    """

    patience_option = "patience"

    def source(self, checkup: Checkup, address: Address, name: str) -> None:
        """Check a source as the consumer `name` would use it."""
        self._listens(checkup, "source", address)

    def sink(self, checkup: Checkup, address: Address) -> None:
        """Check a sink of releases or of dead letters."""
        self._listens(checkup, "sink", address)

    def _listens(self, checkup: Checkup, check: str, address: Address) -> None:
        host, port = address.host(0)
        if port == 0:
            checkup.warn(
                check,
                f"{address.masked} was not looked at: its URL names no port, and its connector no probe for it",
                "let its package have one (entry points `fcstream.probes`), or start the service and read its log",
            )
            return
        try:
            socket.create_connection((host, port), PATIENCE_S).close()
        except OSError as error:
            why = error.strerror or type(error).__name__
            checkup.problem(
                check, f"{address.masked} cannot be reached: {why}", "start the server, or correct the address"
            )
            return
        checkup.ok(check, f"something listens at {host}:{port}; not tried: login, permission, existence")


def probe_source(checkup: Checkup, url: str, name: str) -> None:
    """Check a live source.

    Raises
    ------
    FcstreamError
        The source cannot be used; `checkup` holds what was found before.
    """
    probe, address = _probe_of(url, "source.url")
    probe.source(checkup, address, name)


def probe_sink(checkup: Checkup, url: str) -> None:
    """Check a sink; see `probe_source`."""
    scheme, _, path = url.partition(":")
    if path == "-" and scheme in STANDARD_OUTPUT:
        checkup.ok("sink", "standard output; nothing was written")
    elif scheme in FOLDER_SINKS:
        probe_folder(checkup, "sink", path)
    elif scheme not in FILE_SINKS:
        probe, address = _probe_of(url, "sink.url")
        probe.sink(checkup, address)
    else:
        probe_file(checkup, "sink", path)


def probe_dead_letters(checkup: Checkup, url: str) -> None:
    """Check a broker that gets dead letters; see `probe_source`."""
    probe, address = _probe_of(url, "dead_letter.url")
    inner = Checkup(checkup.need_ms)
    probe.sink(inner, address)
    checkup.findings += [replace(finding, check="dead letters") for finding in inner.findings]


def probe_file(checkup: Checkup, check: str, target: str) -> None:
    """Check a file to which lines are appended."""
    path = Path(target)
    folder = path.absolute().parent
    if not folder.is_dir():
        checkup.problem(check, f"the folder of {target} does not exist", f"make {folder}")
    elif not os.access(folder, os.W_OK | os.X_OK):
        checkup.problem(check, f"{folder} may not be written by this user", "change its owner or mode")
    elif path.exists() and not (path.is_file() and os.access(path, os.R_OK | os.W_OK)):
        checkup.problem(check, f"{target} cannot be read and written", "change its owner or mode, or name another file")
    else:
        checkup.ok(check, f"{target} can be {'appended to' if path.exists() else 'made'}; no line was written")


def probe_server(checkup: Checkup, poster: Poster) -> None:
    """Check whether a connection to a web server can be made."""
    try:
        poster.connect()
    except OSError as error:
        checkup.problem(
            "sink", f"{poster.location} cannot be reached: {error_text(error)}", "start the server, or correct it"
        )
        return
    checkup.ok("sink", f"{poster.location} answers; not tried: a request, because any POST would be a release")


def probe_folder(checkup: Checkup, check: str, target: str) -> None:
    """Check a folder into which files are put."""
    folder = Path(target)
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        checkup.problem(check, f"{folder} may not be written by this user", "change its owner or mode")
    else:
        checkup.ok(check, f"files can be put into {target}; none was written")


def _probe_of(url: str, key: str) -> tuple[Probe, Address]:
    address = parse(url, key)
    probe: Probe = (find(address.scheme, "probe") or Probe)()
    address.options[probe.patience_option] = str(PATIENCE_S)
    return probe, address
