"""Collects the numbers of a report: from a configuration, its plan, and the streams of a ledger."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .. import __version__
from ..accounting.losses import PrivacyLoss, epsilon_tight
from ..config import Config, Job
from ..errors import ConfigError
from ..ledgers import hash_chain
from ..ledgers.base import LedgerReader, Terms
from ..ledgers.groups import Standing, Together
from ..ledgers.history import moment
from ..ledgers.keeping import Keeping
from ..planning.plan import keeping_of_config, loss_of_presence, plan
from ..planning.stream_plan import StreamPlan
from ..reporting.budget import Report, standing
from ..runtime.words import many, were

DAYS_OF_A_YEAR = 365


@dataclass(frozen=True, slots=True)
class LossLine:
    """What somebody loses in one situation.

    Attributes
    ----------
    situation : str
    rho, delta : float
    epsilons : tuple of float
        At each of the report's deltas; infinite where the delta is used up.
    cap : tuple of float or None
        The epsilons of the cap that holds besides, if there is one; what is lost is at most the smaller one.
    name : str
        What it is called in pictures.
    """

    situation: str
    rho: float
    delta: float
    epsilons: tuple[float, ...]
    cap: tuple[float, ...] | None = None
    name: str = ""

    @property
    def bounds(self) -> tuple[float, ...]:
        """The epsilons that hold: the smaller of both at each delta."""
        return self.epsilons if self.cap is None else tuple(map(min, self.epsilons, self.cap))


@dataclass(frozen=True, slots=True)
class LedgerStream:
    """What one stream of a ledger tells.

    Attributes
    ----------
    budget : Report
    agrees : bool
        Whether its specification is the configuration's.
    rows : int
        Rows of its journal, all of which were checked.
    head : str
        The newest link of the chain of hashes, in hex.
    sealed : int
        Number of published lines.
    sealed_hash : str
        SHA-256 of the published lines, each with a line feed, in order of sealing.
    first_ms, last_ms : int or None
        Opening of the first window and close of the last window that was charged or sealed.
    """

    terms: Terms[Any]
    budget: Report
    agrees: bool
    rows: int
    head: str
    sealed: int
    sealed_hash: str
    first_ms: int | None
    last_ms: int | None


@dataclass(frozen=True, slots=True)
class LedgerFacts:
    """What a ledger tells about the stream, and about others in it.

    Attributes
    ----------
    location : str
        Where it is, without secrets.
    streams : tuple of LedgerStream
        The configured stream: itself, or that of each key.
    together : Together
        Sums over all streams of the ledger.
    others : tuple of str
        Other streams that it holds, retired ones too.
    """

    location: str
    streams: tuple[LedgerStream, ...]
    together: Together
    others: tuple[str, ...]

    @property
    def used_up(self) -> str | None:
        """What to say first if windows have no value, or will have none, for lack of budget."""
        refused = sum(each.budget.answers.get("budget_exhausted", 0) for each in self.streams)
        readings = [reading for each in self.streams for reading in (each.budget.unit, each.budget.total) if reading]
        is_full = any(reading.outlook.state == "exhausted" for reading in readings)
        text = "The budget is used up: another window has no room and gets no value." if is_full else ""
        if refused:
            text += f" {many(refused, 'answer')} already {were(refused)} refused for lack of budget."
        return text.strip() or None


@dataclass(frozen=True, slots=True)
class DeploymentFacts:
    """Everything that a report is written from; public.

    Attributes
    ----------
    written : mapping
        The configuration as it was written: sections, and the keys in them.
    deltas : tuple of float
        Three; the middle one is that of `plan`.
    guarantee : PrivacyLoss
        What one unit can lose for ever, under all keys together.
    lines : tuple of LossLine
    made_ms : int
        When the report was made.
    """

    config: Config
    written: Mapping[str, Any]
    plan: StreamPlan
    deltas: tuple[float, float, float]
    guarantee: PrivacyLoss
    lines: tuple[LossLine, ...]
    ledger: LedgerFacts | None
    made_ms: int
    versions: tuple[tuple[str, str], ...]

    @property
    def job(self) -> Job:
        return self.config.job

    @property
    def unit(self) -> str:
        return self.job.terms.unit

    @property
    def keeping(self) -> Keeping:
        """How the ledger keeps what was spent."""
        return keeping_of_config(self.config)

    @property
    def is_live(self) -> bool:
        """Whether a service runs the stream, which has alarms."""
        return self.job.clock != "eof"

    @property
    def epsilon(self) -> float:
        """The guarantee's epsilon at the middle delta."""
        return self.guarantee.epsilon(self.deltas[1])

    def line(self, name: str) -> LossLine:
        """Return a line by its name in pictures; raises KeyError."""
        return {each.name: each for each in self.lines}[name]


def collect(
    config: Config, written: Mapping[str, Any], made_ms: int, ledger: LedgerFacts | None = None
) -> DeploymentFacts:
    """Compute the facts of a configuration.

    Parameters
    ----------
    config : Config
    written : mapping
        What `fcstream.config.conversion.read_toml` returns for its file.
    made_ms : int
    ledger : LedgerFacts, optional

    Raises
    ------
    UnusablePlan
        As `fcstream.planning.plan.plan`.

    Privacy
    -------
    Reads the configuration, and public integers and published bytes of a ledger. It costs nothing.
    """
    job = config.job
    guarantee = job.terms.guarantee
    deltas = _deltas(guarantee.delta)
    found = plan(config, deltas[1])
    return DeploymentFacts(
        config=config,
        written=written,
        plan=found,
        deltas=deltas,
        guarantee=guarantee,
        lines=tuple(_lines(job, config, found, guarantee, deltas)),
        ledger=ledger,
        made_ms=made_ms,
        versions=(("fcstream", __version__), ("Python", platform.python_version())),
    )


def read_ledger(config: Config, location: str, readers: Iterable[LedgerReader]) -> LedgerFacts:
    """Read what the streams of a ledger tell; each reader is used before the next one is asked for.

    Raises
    ------
    ConfigError
        The ledger is of devices, or does not hold the configured stream.
    LedgerDamaged
        Its rows do not agree with each other.
    """
    terms = config.job.terms
    delta = _deltas(config.job.terms.guarantee.delta)[1]
    streams: list[LedgerStream] = []
    held: list[Standing] = []
    others: list[str] = []
    for reader in readers:
        if reader.terms.unit == "device":
            raise ConfigError(
                "must be an engine's ledger: devices' budgets are shown by `fcstream budget show`", "LEDGER"
            )
        held.append(standing(reader))
        if reader.terms.root == terms.root and not reader.is_retired:
            streams.append(_stream(reader, terms, delta))
        else:
            others.append(f"{reader.terms.stream} (retired)" if reader.is_retired else reader.terms.stream)
    if not streams:
        names = ", ".join(map(repr, others)) or "none"
        raise ConfigError(
            f"must hold the stream {terms.root!r} of the configuration, and holds {names}",
            "LEDGER",
            remedy="name the ledger that `[ledger]` names, or leave it out before the first run",
        )
    return LedgerFacts(location, tuple(streams), Together.of(held), tuple(others))


def _stream(reader: Any, terms: Terms[Any], delta: float) -> LedgerStream:
    own, rows = reader.terms, reader.rows()
    chain = hash_chain.origin(reader.salt)
    for row in rows:
        chain = hash_chain.link(chain, row)
    lines = reader.releases()
    sealed = hashlib.sha256(b"".join(line + b"\n" for line in lines)).hexdigest()
    times = [(row.open_ms, row.close_ms) for row in rows if row.kind in ("charge", "seal")]
    return LedgerStream(
        own,
        Report.of(reader, max(delta, _min_delta(own))),
        own.specification == terms.specification,
        reader.verify(),
        chain.hex(),
        len(lines),
        sealed,
        min((opened for opened, _ in times), default=None),
        max((closed for _, closed in times), default=None),
    )


def _min_delta(terms: Terms[Any]) -> float:
    """Return a delta at which all caps of a ledger have an epsilon."""
    return 1.25 * float(max(terms.capacity.delta, terms.total.delta if terms.total is not None else 0.0))


def _deltas(cap: float) -> tuple[float, float, float]:
    """Choose three deltas at which the cap has an epsilon; the middle one is that of a plan by default."""
    middle = max(1e-6, 2 * cap)
    low = (2 * cap if 2 * cap < middle else 1.25 * cap) or 1e-9
    most = (1 + cap) / 2
    return min(10 * middle, most), min(middle, most), min(low, most)


def _lines(
    job: Job, config: Config, found: StreamPlan, guarantee: PrivacyLoss, deltas: tuple[float, ...]
) -> Iterable[LossLine]:
    """List what one record and one person lose."""

    def epsilons(rho: float, delta: float) -> tuple[float, ...]:
        return tuple(epsilon_tight(rho, at - delta) for at in deltas)

    def of(situation: str, loss: PrivacyLoss, name: str = "") -> LossLine:
        return LossLine(situation, loss.rho, loss.delta, epsilons(loss.rho, loss.delta), None, name)

    whole = "all answers of one window together" if found.answers else "the release of one window"
    is_event, under = job.terms.unit == "event", found.keys_of_a_person
    of_person = found.loss if is_event else job.window_loss * under
    if of_person == found.loss:
        yield of(whole, found.loss, "one window")
    else:
        yield of(f"{whole}, under one key", found.loss)
        yield of(f"{whole}, under each of {job.keys_chosen or under} keys", of_person, "one window")
    if found.search is not None:
        yield of(f"one search for the keys of {many(found.search.windows, 'window')}", found.search.loss)
    if is_event and found.per_record != found.loss:
        yield of(_record(job), found.per_record, "one record")
    cap = None
    if not is_event:
        cap = epsilons(guarantee.rho, guarantee.delta)
    elif found.total is not None and job.finder is None and under <= (config.stream.keys_per_user or under):
        cap = epsilons(found.total.rho, found.total.delta)
    who = "a person with one record in every window" if is_event else _present(job.terms.unit)
    for name, days in (("a day", 1), ("a year", DAYS_OF_A_YEAR)):
        rho, delta = (part * under for part in loss_of_presence(job, found.windows_per_day * days))
        where = f", under each of {under} keys" if under > 1 else ""
        yield LossLine(f"{who}{where}, in {name}", rho, delta, epsilons(rho, delta), cap, name)
    if found.windows is not None and found.windows < found.windows_per_day * DAYS_OF_A_YEAR:
        rho, delta = (part * under for part in loss_of_presence(job, found.windows))
        situation = f"{who}{where}, in all {found.windows:,} windows of the schedule, which ends before a year is over"
        yield LossLine(situation, rho, delta, epsilons(rho, delta), cap, "all windows")
    if found.total is not None:
        yield of(f"all windows together, {found.lasts}: the cap on their sum", found.total, "the total")
    if found.key_share is not None:
        yield of(f"what one key may spend of the guarantee, {found.lasts}", found.key_share)
    yield of(f"the guarantee, {found.lasts}: the cap of {_of_whom(job.terms.unit)}", guarantee, "the guarantee")


def _record(job: Job) -> str:
    text = "one record"
    if job.schedule.overlap > 1:
        text += f", in all {job.schedule.overlap} windows that it can lie in"
    return text if job.finder is None else f"{text}, and in the search for keys"


def _present(unit: str) -> str:
    return "a user present in every window" if unit == "user" else "a person with one record in every window"


def _of_whom(unit: str) -> str:
    return {"event": "each record", "user": "each user"}.get(unit, "the whole stream")


def day(time_ms: int | None) -> str:
    """Format a time for a report."""
    when = None if time_ms is None else moment(time_ms)
    return "never" if when is None else f"{when:%Y-%m-%d %H:%M} UTC"
