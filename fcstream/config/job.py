"""Job: what a configuration means, as checked objects."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..accounting.filters import BudgetSchedule
from ..accounting.losses import PrivacyLoss
from ..errors import ConfigError
from ..formats.batch import Schema
from ..formats.texts import composed
from ..ledgers.base import Terms, part_name
from ..ledgers.user_key import UserKeyPlace
from ..releases.answers import Answers
from ..releases.options import check_rho
from ..releases.record_gate import GatedMechanism, RecordGate
from ..releases.spending import Spending
from ..stream.lattice import Grid
from ..stream.selection import TextCodes
from ..stream.windows import Schedule
from .answers import answers_of, text_codes
from .durations import NOW, duration_ms, instant_ms
from .fields import grid_of, schema_of
from .key_discovery import (
    LONGEST_KEY,
    check_discovery,
    check_key_texts,
    discovery_of,
    finder_answers,
    finder_schedule,
    finder_schema,
    first_keys,
)
from .sections import BudgetSection, KeyDiscoverySection, Sections, WindowSection
from .specification import promise, specification

_DAY_MS = 86_400_000
_MAX_WINDOWS = 100_000_000
"""Of a job about files: about three hours of empty windows."""
FINDER = ""
"""Instead of a key: the part of a stream that finds its keys. No key is empty."""
_NOTHING = PrivacyLoss()


@dataclass(frozen=True, slots=True)
class Job:
    """The checked objects of a configuration: everything the engine needs, nothing it must parse.

    Attributes
    ----------
    schema, grid, schedule, answers, terms
        See their classes.
    clock : str
    ahead_ms : int
        How far a live record's timestamp may be ahead of its own arrival.
    spending : Spending
        How each window's answers and charge are decided.
    keys : tuple of str
        Declared keys; `terms` are then those of each key's stream except for its name, see `part`.
    key : str or None
        The key whose stream this job is about.
    keys_chosen : int or None
        With one filter for each user across all keys: under how many keys of a window a user counts.
    backlog_ms : int
        How long before its first run a live stream's windows are still released.
    texts : tuple of str
        Features of texts that answers read.
    text_codes : tuple of TextCodes
        Further coordinates that stand for texts in conditions.
    finder : KeyFinder or None
        How keys are found, if they are not declared.
    iso_times : bool
        Whether releases hold times as texts too.
    paid_beside : PrivacyLoss
        What a record pays at most in the other parts of the stream: for the search of its period, and there for its
        window.
    """

    schema: Schema
    grid: Grid
    schedule: Schedule
    answers: Answers
    terms: Terms
    clock: str
    ahead_ms: int
    spending: Spending
    keys: tuple[str, ...] = ()
    key: str | None = None
    backlog_ms: int = 0
    keys_chosen: int | None = None
    texts: tuple[str, ...] = ()
    text_codes: tuple[TextCodes, ...] = ()
    finder: KeyFinder | None = None
    paid_beside: PrivacyLoss = _NOTHING
    iso_times: bool = False

    @property
    def has_keys(self) -> bool:
        """Whether the stream is divided by keys, declared or found."""
        return bool(self.keys) or self.finder is not None

    @property
    def width(self) -> int:
        """Number of coordinates of a record: those of the lattice, and the codes of texts."""
        return self.grid.dimension + len(self.text_codes)

    def part(self, key: str) -> Job:
        """Return the job of one key's stream, which is a stream of its own in the ledger and at the sink.

        `FINDER` is the one that finds keys.
        """
        if key == FINDER and self.finder is not None:
            return self.finder.job
        terms = replace(self.terms, stream=part_name(self.terms.stream, key))
        if self.keys_chosen is not None:
            terms = replace(terms, group=None)  # the filter is in the stream without a key
        return replace(self, key=key, terms=terms)

    @property
    def window_loss(self) -> PrivacyLoss:
        """What a window, of all keys that one participant may count under, costs at full cost."""
        return self.answers.loss * (self.keys_chosen or 1)

    @property
    def gate(self) -> RecordGate | None:
        """The record gate of a stream with one answer about all records, if these are bounded."""
        mechanism = self.answers[0].mechanism
        return mechanism.gate if self.answers.is_simple and isinstance(mechanism, GatedMechanism) else None

    def for_key(self, key: str | None) -> Job:
        """Return the job of a stream without keys (None), or of one of the keys."""
        if key is None and not self.has_keys:
            return self
        key = None if key is None else composed(key)
        if key is None or (self.finder is None and key not in self.keys):
            raise ConfigError("must be one of `stream.keys`; `KeyedEngine` answers all of them", "key")
        return self.part(key)

    @classmethod
    def of(cls, config: Sections) -> Job:
        """Build a configuration's job, and check the rules that its sections share. `Config.job` is the one to use."""
        stream, window = config.stream, config.window
        _check_name(stream.name)
        _check_group(config)
        if config.source is not None:
            config.source.csv_dialect()
        schema = schema_of(config)
        keys, shares = _keys(config)
        grid = grid_of(config)
        schema = replace(schema, converts=grid.doubles)
        schedule = _schedule(window)
        schema = replace(schema, dates=schedule.length_ms % _DAY_MS == 0)
        answers = answers_of(config, grid, schedule)
        finding: PrivacyLoss | None = None
        if discovery_of(config) is not None:
            check_discovery(config, schedule, answers)
            finding = finder_answers(config, finder_schedule(config, schedule), answers.loss).loss
        terms = _terms(config, answers, schedule, keys, shares, finding)
        plain = cls(
            schema=schema,
            grid=grid,
            schedule=schedule,
            answers=answers,
            terms=terms,
            clock=window.clock,
            spending=_spending(config, answers, schedule, terms.capacity),
            ahead_ms=schedule.length_ms if window.ahead is None else duration_ms(window.ahead, "window.ahead"),
            backlog_ms=0 if window.backlog is None else duration_ms(window.backlog, "window.backlog"),
            keys=keys,
            keys_chosen=_keys_chosen(config, keys),
            texts=_texts_read(answers),
            text_codes=text_codes(config),
            iso_times=config.stream.iso_times,
        )
        return plain if finding is None else _with_finder(config, plain, finding)


@dataclass(frozen=True, slots=True)
class KeyFinder:
    """How the keys of a stream are found.

    Attributes
    ----------
    job : Job
        Of the stream that finds them, whose windows are the periods.
    period_windows : int
        Number of windows in a period.
    first : tuple of str
        Keys of the first period.

    Privacy
    -------
    Public: nothing here reads data.

    Source
    ------
    Specification 8.9; proof 2.14; ours.
    """

    job: Job
    period_windows: int
    first: tuple[str, ...]


def _with_finder(config: Sections, job: Job, loss: PrivacyLoss) -> Job:
    """Add the job that finds the keys of a stream."""
    schedule, keys = finder_schedule(config, job.schedule), discovery_of(config)
    assert keys is not None
    answers, is_event = finder_answers(config, schedule, job.answers.loss), job.terms.unit == "event"
    found = replace(
        job,
        schema=replace(finder_schema(config, job.schema.user), dates=job.schema.dates),
        grid=answers[0].grid,
        schedule=schedule,
        answers=answers,
        terms=replace(job.terms, stream=part_name(job.terms.stream, FINDER)),
        spending=_spending(config, answers, schedule, job.terms.capacity),
        keys_chosen=None,
        texts=(config.stream.key or "",),
        text_codes=(),
        paid_beside=job.answers.loss if is_event else _NOTHING,
    )
    finder = KeyFinder(found, schedule.length_ms // job.schedule.length_ms, first_keys(keys))
    return replace(job, finder=finder, paid_beside=loss if is_event else _NOTHING)


def _texts_read(answers: Answers) -> tuple[str, ...]:
    uses = (answer.selection.rows.text for answer in answers)
    return tuple(dict.fromkeys(use.feature for use in uses if use is not None))


def _check_name(name: str) -> None:
    if not name:
        raise ConfigError("must not be empty", "stream.name")
    if "/" in name:
        raise ConfigError("must not contain '/', which stands between a stream's name and a key", "stream.name")


def _check_group(config: Sections) -> None:
    """Check what belongs together where streams share filters."""
    group = config.budget.group
    if group is None:
        return
    if not 0 < len(group) <= LONGEST_KEY or not group.isprintable():
        raise ConfigError(f"must be a text of 1 to {LONGEST_KEY} printable characters", "budget.group")
    if group.endswith("/"):
        raise ConfigError("must not end with '/', as groups of streams that find their keys do", "budget.group")
    if config.stream.unit == "event":
        raise ConfigError(
            "must be left out with unit = 'event', since no ledger knows which records of two streams are the same",
            "budget.group",
            remedy="ask several questions of one stream by several `[[release]]`",
        )
    if config.stream.keys_per_user is not None and config.stream.key_budgets == "divided":
        raise ConfigError(
            "must be left out with `budget.group`: all keys share one filter, so nothing is divided or promised",
            "stream.keys_per_user",
        )
    if config.budget.savings != "none":
        raise ConfigError(
            "must be 'none' with `budget.group`: what one stream saves, the others may spend", "budget.savings"
        )


def _terms(
    config: Sections,
    answers: Answers,
    schedule: Schedule,
    keys: tuple[str, ...],
    shares: int,
    finding: PrivacyLoss | None,
) -> Terms:
    """Make the terms to which the ledger is bound; for a stream with keys, of each key."""
    stream, is_event = config.stream, config.stream.unit == "event"
    capacity = _capacity(config.budget, 1 if is_event else shares)
    times = schedule.overlap if is_event else _keys_chosen(config, keys) or 1
    if finding is not None and not (answers.loss * times + finding).fits(capacity):
        what = "a window" if is_event or times == 1 else f"a user under {times} keys of a window"
        raise ConfigError(
            f"must hold {what} at {answers.loss} each and finding the keys of its period at "
            f"{finding}, got {capacity}, {(answers.loss * times + finding).missing(capacity)} too "
            "little",
            "budget",
            remedy="raise it, or lower `release` or `stream.keys`",
        )
    if not (answers.loss * times).fits(capacity):
        what = f"a record lies in up to {times} windows" if times > 1 else "one window"
        if times > 1 and not is_event:
            what = f"a user counts under up to {times} keys of a window"
        what += f" (each of {shares} keys has its share of the budget)" if shares > 1 and not is_event else ""
        raise ConfigError(
            f"must hold {what} at {answers.loss} each, got {capacity}, "
            f"{(answers.loss * times).missing(capacity)} too little",
            "budget",
            remedy="raise it, or lower `release`",
        )
    total = _total(config.budget, answers, shares)
    is_divided = (not is_event or total is not None) and config.budget.group is None
    is_divided = is_divided and stream.key_budgets == "divided"
    among = keys if keys and is_divided and stream.keys_per_user is None else None
    group = config.budget.group
    if finding is not None and not is_event and group is None:
        group = part_name(stream.name, FINDER)  # users have one filter for the search and for all keys
    return Terms(stream.name, stream.unit, capacity, specification(config), total, promise(config), group, among)


def _keys(config: Sections) -> tuple[tuple[str, ...], int]:
    """Return the declared keys, and the number of them that may hold one user's records, by which the budget is
    divided.
    """
    stream = config.stream
    if stream.key is None:
        for name in ("keys", "keys_per_user", "key_budgets"):
            if getattr(stream, name) not in (None, "divided"):
                raise ConfigError("belongs to `stream.key`: the field that divides the stream by key", f"stream.{name}")
        if config.source is not None and config.source.partitioner is not None:
            raise ConfigError("belongs to `stream.key`: keys are what partitions hold", "source.partitioner")
        return (), 1
    if stream.key == stream.user:
        raise ConfigError("must be another field than the user's", "stream.key", got=stream.key)
    if isinstance(stream.keys, KeyDiscoverySection):
        if stream.key_budgets == "shared":
            _check_shared(config)
        return (), 1
    keys = tuple(map(composed, stream.keys or ()))  # as those of records are
    if not keys:
        raise ConfigError(
            "is required with `stream.key`: every part has a release for every window, so all of them are public",
            "stream.keys",
        )
    check_key_texts(keys, "stream.keys")
    if config.budget.group is not None and stream.key_budgets == "divided":
        return keys, 1  # all keys share one filter
    shares = len(keys) if stream.keys_per_user is None else stream.keys_per_user
    if stream.key_budgets == "shared":
        _check_shared(config)
    if not 1 <= shares <= len(keys):
        raise ConfigError(f"must be in [1, {len(keys)}] (there are as many keys)", "stream.keys_per_user", got=shares)
    return keys, 1 if stream.key_budgets == "shared" else shares


def _keys_chosen(config: Sections, keys: tuple[str, ...]) -> int | None:
    """Return under how many keys of a window a user counts, with one filter for each user across all keys."""
    stream = config.stream
    if stream.key_budgets == "divided":
        return None
    return len(keys) if stream.keys_per_user is None else stream.keys_per_user


def _check_shared(config: Sections) -> None:
    """Check what belongs together where each user has one filter for all keys."""
    for is_wrong, key, rule in (
        (config.stream.unit != "user", "stream.key_budgets", "must be 'divided' but for unit = 'user'"),
        (config.budget.total_rho is not None, "budget.total_rho", "must be left out with `key_budgets` = 'shared'"),
        (config.budget.savings != "none", "budget.savings", "must be 'none' with `key_budgets` = 'shared'"),
        (
            config.source is not None and config.source.partitioner is not None,
            "source.partitioner",
            "must be left out with `key_budgets` = 'shared', where one process sees all keys of a user",
        ),
    ):
        if is_wrong:
            raise ConfigError(rule, key)
    if config.ledger is not None:
        UserKeyPlace.of(config.ledger.url, config.ledger.user_key)


def _total(budget: BudgetSection, answers: Answers, shares: int) -> PrivacyLoss | None:
    """Return the capacity for the plain sum over all windows of one stream."""
    if answers.has_epochs and (budget.total_rho is not None or budget.total_delta is not None):
        raise ConfigError(
            "must be left out with running totals: it bounds the plain sum over all windows, and a "
            "record is in all later totals of its epoch, so that somebody with a record in every "
            "window pays more than that sum",
            "budget.total_delta" if budget.total_rho is None else "budget.total_rho",
            remedy="`fcstream plan` shows how much",
        )
    if budget.total_rho is None:
        if budget.total_delta is not None:
            raise ConfigError("is required beside `total_delta`", "budget.total_rho")
        return None
    check_rho(budget.total_rho, "budget.total_rho")
    delta = 0.0 if budget.total_delta is None else budget.total_delta
    if not 0 <= delta < 1:
        raise ConfigError("must be in [0, 1)", "budget.total_delta", got=delta)
    total = _share(PrivacyLoss.cap(budget.total_rho, delta), shares)
    if not answers.loss.fits(total):
        key = "budget.total_rho" if answers.loss.rho_nano > total.rho_nano else "budget.total_delta"
        less = answers.loss.missing(total)
        raise ConfigError(f"must hold one window at {answers.loss}, got {total}, {less} too little", key)
    return total


def _spending(config: Sections, answers: Answers, schedule: Schedule, capacity: PrivacyLoss) -> Spending:
    """Decide how each window is charged."""
    budget, unit = config.budget, config.stream.unit
    spending = Spending(answers, unit, None, budget.total_rho is not None, budget.exhausted)
    if budget.savings == "none":
        return spending
    if unit == "event":
        raise ConfigError(
            "must be 'none' with unit = 'event': every pane has a budget of its own, a later window cannot use it",
            "budget.savings",
        )
    if schedule.count is None:
        raise ConfigError("must be given with `budget.savings`: they are divided among the windows left", "window.end")
    if config.window.start == NOW:
        raise ConfigError("must be a time with `budget.savings`: they are divided among all windows", "window.start")
    base = answers.loss * schedule.count
    if not base.fits(capacity):
        raise ConfigError(
            f"must hold {schedule.count} windows at `release` to save from, {base} together, got {capacity}, "
            f"{base.missing(capacity)} too little",
            "budget",
        )
    return replace(spending, savings=BudgetSchedule(base.rho_nano, schedule.count, budget.savings))


def _schedule(window: WindowSection) -> Schedule:
    if window.clock == "eof" and window.end is None:
        raise ConfigError(
            "is required with clock = 'eof': the end of input must not set the schedule, or one stray record would",
            "window.end",
        )
    if window.clock == "eof":
        for name, value in (("start", window.start == NOW), ("backlog", window.backlog is not None)):
            if value:
                raise ConfigError(
                    "belongs to the clocks 'wall' and 'broker': files have no first run", f"window.{name}"
                )
    length = duration_ms(window.length, "window.length")
    schedule = Schedule(
        0 if window.start == NOW else instant_ms(window.start, "window.start"),
        length,
        length if window.slide is None else duration_ms(window.slide, "window.slide"),
        duration_ms(window.lateness, "window.lateness"),
        None if window.end is None else instant_ms(window.end, "window.end"),
    )
    if window.clock == "eof" and (schedule.count or 0) > _MAX_WINDOWS:
        raise ConfigError(
            f"must leave {_MAX_WINDOWS:,} windows at most, got {schedule.count:,}, each of which "
            "gets a release, empty or not",
            "window.end",
            remedy="choose longer windows, or split the input",
        )
    return schedule


def _share(capacity: PrivacyLoss, shares: int) -> PrivacyLoss:
    return PrivacyLoss(capacity.rho_nano // shares, capacity.delta_femto // shares)


def _capacity(budget: BudgetSection, shares: int) -> PrivacyLoss:
    check_rho(budget.rho, "budget.rho")
    if not 0 <= budget.delta < 1:
        raise ConfigError("must be in [0, 1)", "budget.delta", got=budget.delta)
    return _share(PrivacyLoss.cap(budget.rho, budget.delta), shares)
