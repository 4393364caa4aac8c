"""Implements ``fcstream doctor``: checks everything that a configuration names, and says what to correct.

No record is read, no position is written, no release is published, no budget is spent, and a service that runs on the
same configuration is not disturbed.
"""

from __future__ import annotations

import ctypes
import fcntl
import glob
import os
import resource
import shutil
import socket
import stat
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

from ..config import Config, Job, ServiceSection
from ..connectors import (
    check_asked,
    check_dead_letter,
    check_file,
    check_registry,
    check_sink,
    is_file,
    is_live,
    is_queue,
    message_decoder,
)
from ..connectors.probes import Checkup, ClockOffset, Finding, probe_dead_letters, probe_file, probe_sink, probe_source
from ..errors import ConfigError, FcstreamError, LedgerInUse, UnusablePlan
from ..ledgers import check_scheme, each_reader, is_foreign, open_reader
from ..ledgers.base import Terms
from ..ledgers.groups import check_group, sum_of
from ..ledgers.rollback_guard import GuardFile, RollbackGuard
from ..ledgers.sqlite.ledger import SQLiteLedger
from ..ledgers.terms_check import check_terms, folded_name
from ..ledgers.user_key import UserKeyPlace, known_key
from ..planning.plan import quick_warnings
from ..reporting.budget import Report
from ..runtime.compile_cache import VARIABLE, check_cache
from ..runtime.words import duration, many, were
from .build import quarantine_prefix
from .checking import check_pipe
from .clock_command import clock_state
from .clock_command import trouble as clock_trouble
from .logs import client_is_missing as logs_are_missing
from .metrics import client_is_missing as metrics_are_missing
from .status import server_is_missing, split_address

_FEW_WINDOWS = 100
_FEW_FILES = 1024
_MANY_KEYS = 4
_SKEW_MS = 1000.0
_UNSYNCHRONIZED = 5  # adjtimex: TIME_ERROR


def examine(load: Callable[[], Config]) -> list[Finding]:
    """Return all findings, in order.

    Parameters
    ----------
    load : callable
        Reads the configuration.
    """
    try:
        config = load()
    except ConfigError as error:
        return [Finding("configuration", "problem", str(error), "correct the file")]
    job = config.job
    found = Checkup(job.schedule.length_ms + job.schedule.lateness_ms)
    checks: list[tuple[str, Callable[[Checkup, Config, Job], None]]] = [
        ("configuration", _configuration),
        ("plan", _plan),
        ("source", _source),
        ("schemas", _schemas),
        ("spool", _spool),
        ("quarantine", _quarantine),
        ("sink", _sink),
        ("dead letters", _dead_letters),
        ("ledger", _ledger),
        ("user key", _user_key),
        ("clock", _clocks),
        ("service", _service),
        ("limits", _limits),
        ("compiled code", _compiled),
    ]
    for name, check in checks:
        try:
            check(found, config, job)
        except FcstreamError as error:
            found.problem(name, error.finding, error.remedy or "correct it")
        except Exception as error:
            # The text of an unexpected error could quote a record.
            found.problem(
                name, f"could not be looked at ({type(error).__name__})", "start the service and read its log"
            )
    return found.findings


def _configuration(checkup: Checkup, config: Config, job: Job) -> None:
    for name in ("source", "sink", "ledger"):
        if getattr(config, name) is None:
            checkup.problem("configuration", f"[{name}] is missing", f"set {name}.url")
    live = config.source is not None and is_live(config.source.url)
    kind = job.clock
    if live and kind == "eof":
        checkup.problem("configuration", "window.clock = 'eof' is for files", "use 'broker', or 'wall' with a spool")
    elif config.source is not None and is_file(config.source.url) and kind != "eof":
        checkup.problem("configuration", f"window.clock = {kind!r} is for brokers", "use 'eof' for files and pipes")
    elif live and config.source is not None and kind == "wall" and not is_queue(config.source.url):
        checkup.problem("configuration", "window.clock = 'wall' needs a source with a spool", "use 'broker'")
    if live and config.source is not None:
        source = config.source
        check_pipe(source)
        message_decoder(source.url, source.format, check_asked(source.url, job.schema), source.format_options())
    schedule = job.schedule
    late = duration(schedule.lateness_ms) if schedule.lateness_ms else "none"
    every = f"one every {duration(schedule.slide_ms)}, lateness {late}"
    checkup.ok("configuration", f"stream {config.stream.name!r}: windows of {duration(schedule.length_ms)}, {every}")
    if schedule.end_ms is not None and live and schedule.end_ms < time.time() * 1000:
        checkup.warn(
            "configuration", "window.end has passed", "set a later one: a run answers what is missing, and ends"
        )


def _plan(checkup: Checkup, config: Config, job: Job) -> None:
    try:
        warnings = quick_warnings(config)
    except UnusablePlan as error:
        checkup.problem("plan", str(error), "`fcstream plan` says what would do")
        return
    for text in warnings:
        checkup.warn("plan", text, "run `fcstream plan` for the whole forecast")
    if not warnings:
        checkup.ok("plan", "windows of the size hint are expected to be released")


def _source(checkup: Checkup, config: Config, job: Job) -> None:
    if config.source is None:
        return
    if is_live(config.source.url):
        probe_source(checkup, config.source.url, config.source.name or f"fcstream-{config.stream.name}")
        return
    _, path = check_file(config.source.url)
    if path == "-":
        checkup.ok("source", "standard input; nothing was read")
    elif os.path.isfile(path) and os.access(path, os.R_OK):
        checkup.ok("source", f"{path} can be read")
    elif os.path.isdir(path) or glob.glob(path):
        checkup.warn("source", f"{path} is a folder or a pattern", "only `fcstream run --runner spark` reads those")
    else:
        checkup.problem("source", f"{path} cannot be read", "make it, or change its mode")


def _schemas(checkup: Checkup, config: Config, job: Job) -> None:
    if config.source is None or config.source.registry is None:
        return
    checkup.ok("schemas", check_registry(config.source.registry))


def _spool(checkup: Checkup, config: Config, job: Job) -> None:
    source = config.source
    if source is None or (source.spool is None and not is_queue(source.url)):
        return
    if source.spool is None:
        checkup.problem("spool", "source.spool is missing: the broker forgets what is acknowledged", "name a folder")
        return
    if not is_queue(source.url):
        checkup.warn("spool", "source.spool is not used: this source replays", "leave it out")
        return
    folder = os.path.abspath(source.spool)
    used = 0
    if os.path.isdir(folder):
        used = _spool_files(checkup, folder)
    else:
        parent = folder
        while not os.path.isdir(parent):
            parent = os.path.dirname(parent)
        if not os.access(parent, os.W_OK | os.X_OK):
            checkup.problem("spool", f"{source.spool} cannot be made: {parent} may not be written", "change its owner")
            return
        folder = parent
        checkup.ok("spool", f"{source.spool} will be made, with mode 0700")
    free, wanted = shutil.disk_usage(folder).free, source.spool_bytes - used
    text = f"{free / 2**30:.3g} GiB are free, it may grow by {max(0, wanted) / 2**30:.3g}"
    if free < wanted:
        checkup.warn("spool", text, "make room, or lower source.spool_bytes: a full disk stops the stream")
    else:
        checkup.ok("spool", text)


def _quarantine(checkup: Checkup, config: Config, job: Job) -> None:
    if config.source is None or config.ledger is None or not is_live(config.source.url):
        return
    prefix = quarantine_prefix(config)
    if prefix is None:
        text = "a message that ends the process ends it for ever: no place is known for a note of it"
        checkup.warn("quarantine", text, "name a folder of this process alone: source.quarantine")
    elif os.path.exists(f"{prefix}quarantine"):
        checkup.ok("quarantine", f"{prefix}quarantine lists the messages at which the process died twice")


def _spool_files(checkup: Checkup, folder: str) -> int:
    """Check the files of a spool, and return their size in bytes."""
    used, wrong = 0, []
    with os.scandir(folder) as entries:
        for entry in entries:
            state = entry.stat(follow_symlinks=False)
            used += state.st_size
            if stat.S_IMODE(state.st_mode) & 0o077 or state.st_uid != os.geteuid():
                wrong.append(entry.name)
    state = os.stat(folder)
    if stat.S_IMODE(state.st_mode) & 0o077 or state.st_uid != os.geteuid() or wrong:
        checkup.problem(
            "spool",
            f"{folder} holds records and may be read by others, or belongs to another user",
            "chmod 700 it and chmod 600 its files, as the user that runs the service",
        )
    elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        checkup.problem("spool", f"{folder} may not be written by this user", "change its mode")
    else:
        checkup.ok("spool", f"{folder} holds {used} bytes{_is_locked(os.path.join(folder, 'lock'))}")
    return used


def _is_locked(lock: str) -> str:
    """Return a text if a process holds a file's lock; asking disturbs no lock."""
    if not os.path.exists(lock):
        return ""
    with open(lock, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return " and is in use"
    return ""


def _sink(checkup: Checkup, config: Config, job: Job) -> None:
    if config.sink is not None:
        check_sink(config.sink.url)
        probe_sink(checkup, config.sink.url)


def _dead_letters(checkup: Checkup, config: Config, job: Job) -> None:
    if config.dead_letter is None:
        checkup.ok("dead letters", "none: rejected records are counted, and no more")
        return
    if check_dead_letter(config.dead_letter.url):
        probe_dead_letters(checkup, config.dead_letter.url)
        return
    path = config.dead_letter.url.partition(":")[2]
    probe_file(checkup, "dead letters", path)
    if os.path.isfile(path) and stat.S_IMODE(os.stat(path).st_mode) & 0o077:
        checkup.warn("dead letters", f"{path}, which counts rejected records, is open to others", "chmod 600")


def _ledger(checkup: Checkup, config: Config, job: Job) -> None:
    if config.ledger is None:
        return
    url = config.ledger.url
    scheme, location = check_scheme(url)
    if scheme == "memory":
        checkup.warn("ledger", "memory: forgets what was spent when the process ends", "use sqlite: or postgresql:")
        return
    if is_foreign(url):
        checkup.ok("ledger", "the ledger of another package; not tried: opening")
        return
    if scheme == "sqlite":
        known = _known_in_file(checkup, url, location)
    else:
        from ..ledgers.postgres.connection import ServerAddress

        location = ServerAddress.of(url).location(None)
        known = _known_on_server(checkup, url, job)
    if known is not None:
        _streams(checkup, job, known, location)


def _known_in_file(checkup: Checkup, url: str, path: str) -> dict[str, tuple[Terms, Report]] | None:
    if not _ledger_file(checkup, path):
        return None
    known: dict[str, tuple[Terms, Report]] = {}
    damage: list[str | None] = []
    try:
        with closing(each_reader(url)) as all_books:
            for reader in all_books:
                if isinstance(reader, SQLiteLedger):
                    damage.append(reader.guard_damage(_guard_of(path)))
                if not reader.is_retired:
                    known[reader.terms.stream] = reader.terms, Report.of(reader)
    except LedgerInUse as error:
        checkup.warn("ledger", str(error), "ask again when it is less busy")
        return None
    _rollback_guard(checkup, path, next(filter(None, damage), None))
    return known


def _known_on_server(checkup: Checkup, url: str, job: Job) -> dict[str, tuple[Terms, Report]] | None:
    names = _ledger_server(checkup, url, job.terms.stream)
    if names is None:
        return None
    known: dict[str, tuple[Terms, Report]] = {}
    is_all = job.terms.group is not None
    for name in sorted(name for name in names if is_all or folded_name(name) == folded_name(job.terms.stream)):
        with closing(open_reader(url, name)) as reader:
            if not reader.is_retired:
                known[name] = reader.terms, Report.of(reader)
    return known


def _user_key(checkup: Checkup, config: Config, job: Job) -> None:
    """Look at the key under which users' names are hashed, as the next run would."""
    if config.ledger is None or job.keys_chosen is None:
        return
    place = UserKeyPlace.of(config.ledger.url, config.ledger.user_key)
    if place is None:
        return
    try:
        reader: Any = open_reader(config.ledger.url, job.terms.stream)
    except FcstreamError:  # no such stream yet, or the check of the ledger says what is wrong
        key = place.read()
    else:
        with closing(reader):
            key = known_key(place, reader)
    if key is None:
        checkup.ok("user key", f"{place.name} will be made by the first run")
    else:
        checkup.ok("user key", f"{place.text} holds it; keep its copy apart from those of the ledger")


def _parts(job: Job) -> list[Terms]:
    """List the streams of all keys, after the one that holds the filter for all of them."""
    own = [job.terms] if job.keys_chosen is not None or not job.has_keys else []
    own += [] if job.finder is None else [job.finder.job.terms]
    return own + [job.part(key).terms for key in job.keys]


def _streams(checkup: Checkup, job: Job, known: Mapping[str, tuple[Terms, Report]], location: str) -> None:
    """Check the budgets of a stream, or of the streams of all keys; of many, report only those that need attention."""
    parts, fine = _parts(job), 0
    for terms, _ in known.values():
        if folded_name(terms.stream) == folded_name(job.terms.stream):
            check_terms(location, terms, parts[0])
        elif job.terms.group is not None and terms.group is not None:
            check_group(location, terms, job.terms)
    for wanted in parts:
        if wanted.stream not in known:
            checkup.ok("ledger", f"stream {wanted.stream!r} will be added by the first run")
            continue
        _, report = known[wanted.stream]
        each = Checkup(checkup.need_ms)
        if job.keys_chosen is None or wanted.stream == job.terms.stream:
            _budget(each, report, job)
        _waiting(each, report)
        if len(parts) > _MANY_KEYS and all(finding.level == "ok" for finding in each.findings):
            fine += 1
        else:
            checkup.findings += each.findings
    if fine:
        checkup.ok("budget", f"{fine} of {len(parts)} keys have room for {_FEW_WINDOWS} windows and more")
    _group(checkup, job, known)


def _group(checkup: Checkup, job: Job, known: Mapping[str, tuple[Terms, Report]]) -> None:
    """Check whether the streams of the group have left room for a window."""
    group, capacity = job.terms.group, job.terms.capacity
    members = [report for terms, report in known.values() if terms.group == group]
    if group is None or not members:
        return
    spent = sum_of(report.unit.spent for report in members)
    text = f"group {group!r}: its {many(len(members), 'stream')} spent {spent} of {capacity} together"
    if (spent + job.window_loss).fits(capacity):
        checkup.ok("budget", text)
    else:
        checkup.warn("budget", f"{text}: no room for another window", "start a new group, or lower `release.rho`")


def _ledger_file(checkup: Checkup, path: str) -> bool:
    """Return whether there is a ledger to read."""
    rollback_guard = _guard_of(path)
    folder = os.path.dirname(os.path.abspath(rollback_guard))
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK | os.X_OK):
        checkup.problem("ledger", f"{folder} is no folder that this user may write to", "make it, or change its owner")
        return False
    if not os.path.exists(path):
        RollbackGuard(rollback_guard).check_absence()
        checkup.ok("ledger", f"{path} will be made by the first run")
        return False
    state = os.stat(path)
    if stat.S_IMODE(state.st_mode) & 0o077:
        checkup.warn("ledger", f"{path} may be read by others", f"chmod 600 {path}*")
    if not os.access(path, os.R_OK | os.W_OK):
        checkup.problem("ledger", f"{path} may not be written by this user", "run as its owner, or change it")
        return False
    if holders := _holders(state):
        checkup.ok("ledger", f"{path} is held by process {', '.join(holders)}")
    return True


def _guard_of(path: str) -> str:
    return f"{os.path.realpath(path) if os.path.islink(path) else path}-witness"


def _rollback_guard(checkup: Checkup, path: str, damage: str | None) -> None:
    """Say whether the guard of a ledger would notice an older copy; `damage` is what its content is found to lack."""
    rollback_guard = _guard_of(path)
    trouble = GuardFile(rollback_guard).trouble() or damage
    if trouble is None and not os.path.lexists(rollback_guard):
        checkup.ok("ledger", f"{rollback_guard} is made by the next charge")
    elif trouble is not None:
        text, _, remedy = trouble.partition("; ")
        checkup.warn("ledger", text, remedy)
    else:
        checkup.ok("ledger", f"{rollback_guard} is there: an older copy would be noticed")


def _holders(state: os.stat_result) -> list[str]:
    """List the processes that have locked a file, where Linux lists them; the file itself is not opened."""
    name = f"{os.major(state.st_dev):02x}:{os.minor(state.st_dev):02x}:{state.st_ino}"
    try:
        with open("/proc/locks", encoding="ascii") as file:
            rows = [line.split() for line in file]
    except OSError:
        return []
    return sorted({row[4] for row in rows if len(row) > 5 and row[5] == name})


def _ledger_server(checkup: Checkup, url: str, stream: str) -> set[str] | None:
    """List the streams that the server has; None if there is no ledger to read."""
    from ..ledgers.postgres.connection import PostgresConnection, ServerAddress

    address = ServerAddress.of(url)
    schema, location = address.schema, address.location(stream)

    def look(db: Any) -> set[str] | None:
        def ask(query: str, *values: str) -> Any:
            return (db.execute(query, values or None).fetchone() or [None])[0]

        clock = "SELECT extract(epoch FROM clock_timestamp())::float8 * 1000"
        checkup.clocks.append(ClockOffset.read("the ledger's PostgreSQL", lambda: float(ask(clock))))
        if ask("SELECT pg_is_in_recovery()"):
            checkup.problem("ledger", f"{location} is a standby, which takes no charges", "name the primary")
            return None
        if ask("SELECT to_regclass(%s)", f'"{schema}".meta') is None:
            may = (
                ask("SELECT has_schema_privilege(oid, 'CREATE') FROM pg_namespace WHERE nspname = %s", schema)
                if ask("SELECT count(*) FROM pg_namespace WHERE nspname = %s", schema)
                else ask("SELECT has_database_privilege(current_database(), 'CREATE')")
            )
            if may:
                checkup.ok("ledger", f"{location} will be made by the first run")
            else:
                checkup.problem(
                    "ledger", f"{location} may not be made by this login", "grant it CREATE on the database"
                )
            return None
        tables = [f'"{schema}".{name}' for name in ("streams", "journal", "windows", "blocks", "leases")]
        rights = "SELECT has_table_privilege(%s, 'SELECT') AND has_table_privilege(%s, 'INSERT')"
        if not all(ask(rights, table, table) for table in tables):
            checkup.problem("ledger", f"{location} may not be used by this login", "grant it the schema and its tables")
            return None
        return {str(name) for (name,) in db.execute(f'SELECT stream FROM "{schema}".streams')}  # the name was checked

    session = PostgresConnection(address, location, is_reader=True)
    with closing(session):
        return session.run(look)


def _budget(checkup: Checkup, report: Report, job: Job) -> None:
    for reading in filter(None, (report.unit, report.total)):
        outlook = reading.outlook
        whose = f"stream {report.terms.stream!r}, {reading.block}"
        text = f"{whose}: {reading.spent} spent of {reading.capacity}; runs out {outlook}"
        if outlook.state == "exhausted" and job.spending.stops:
            checkup.problem("budget", text, "every further run ends at once: start a new stream with a new budget")
        elif outlook.state == "exhausted":
            checkup.problem("budget", text, "every further window is refused: start a new stream with a new budget")
        elif outlook.state == "lasts" and (outlook.windows or 0) < _FEW_WINDOWS:
            checkup.warn("budget", text, "plan a new stream, longer windows, or less rho for each")
        else:
            checkup.ok("budget", text)


def _waiting(checkup: Checkup, report: Report) -> None:
    """Tell of releases that no sink has acknowledged."""
    waiting = report.windows["sealed"]
    if waiting:
        text = f"{many(waiting, 'release')} {were(waiting)} sealed and not acknowledged"
        checkup.warn("ledger", text, f"the next run publishes {'it' if waiting == 1 else 'them'}")


def _clocks(checkup: Checkup, config: Config, job: Job) -> None:
    lateness, length = job.schedule.lateness_ms, job.schedule.length_ms
    limit = min(_SKEW_MS, lateness / 4) if lateness else _SKEW_MS
    for clock in checkup.clocks:
        skew, doubt = clock.ahead_ms, clock.doubt_ms
        text = (
            f"{clock.whose} is {abs(skew):.0f} ms {'ahead of' if skew > 0 else 'behind'} this machine (± {doubt:.0f})"
        )
        if abs(skew) - doubt >= max(length, _SKEW_MS):
            checkup.problem("clock", text, "set both by NTP: windows close at the wrong time, and records are late")
        elif abs(skew) - doubt > limit:
            checkup.warn("clock", text, "set both by NTP: lateness is measured between these clocks")
        else:
            checkup.ok("clock", text)
    source = config.source
    if source is not None and source.spool is not None and is_queue(source.url):
        wrong = clock_trouble(clock_state(config))
        if wrong is not None:
            checkup.problem(
                "clock",
                f"{wrong}: a service holds its windows open",
                "set the clock right; or, if it is right now, run `fcstream clock accept` with this configuration",
            )
    state = _clock_state()
    if state == _UNSYNCHRONIZED:
        checkup.warn("clock", "the system's clock is not synchronized", "run chrony or systemd-timesyncd")
    elif state >= 0:
        checkup.ok("clock", "the system's clock is synchronized")


def _clock_state() -> int:
    """Return the kernel's state of the clock; -1 if there is none."""
    try:
        return int(ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512)))  # zeros, so that nothing is changed
    except (OSError, AttributeError):
        return -1


def _service(checkup: Checkup, config: Config, job: Job) -> None:
    if config.source is None or not is_live(config.source.url):
        return
    section = config.service or ServiceSection()
    missing = logs_are_missing() if section.log == "json" else None
    if missing:
        checkup.problem("service", missing.finding, missing.remedy)
    if section.counters:
        checkup.warn("service", "service.counters exports exact numbers of records", "keep /metrics from the public")
    if section.listen is None:
        checkup.ok("service", "no /live, /ready, /metrics: service.listen is not set")
        return
    missing = server_is_missing()
    if missing:
        checkup.problem("service", missing.finding, missing.remedy)
    missing = metrics_are_missing()
    if missing:
        checkup.warn("service", f"no /metrics: {missing.finding}", missing.remedy)
    _port(checkup, section.listen)


def _port(checkup: Checkup, address: str) -> None:
    host, port = split_address(address)
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if _is_ours(host, port):
                checkup.ok("service", f"{address} is served by a running fcstream")
            else:
                why = error.strerror or type(error).__name__
                checkup.problem("service", f"{address} cannot be used: {why}", "free it, or change service.listen")
            return
    checkup.ok("service", f"{address} is free")


def _is_ours(host: str, port: int) -> bool:
    where = f"[{host}]" if ":" in host else host
    try:
        with urllib.request.urlopen(f"http://{where}:{port}/live", timeout=2) as answer:
            return str(answer.headers.get("Server", "")).startswith("fcstream")
    except OSError:
        return False


def _limits(checkup: Checkup, config: Config, job: Job) -> None:
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files != resource.RLIM_INFINITY and files < _FEW_FILES:
        checkup.warn(
            "limits", f"at most {files} files may be open", f"raise it to {_FEW_FILES} (LimitNOFILE, ulimit -n)"
        )
    else:
        checkup.ok("limits", f"{files} files may be open")


def _compiled(checkup: Checkup, config: Config, job: Job) -> None:
    folder = os.environ.get(VARIABLE, "")
    check_cache(folder)
    where = "beside the package or in this user's cache folder" if not folder else f"in {folder}, which is this user's"
    checkup.ok("compiled code", f"is kept {where}")
