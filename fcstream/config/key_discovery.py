"""Discovery of keys: the rules of ``[stream.keys]``, and the job of the stream that finds them."""

from __future__ import annotations

from ..accounting.losses import PrivacyLoss
from ..errors import ConfigError
from ..formats.batch import Schema
from ..formats.texts import composed
from ..releases.answers import Answers, WindowAnswer
from ..releases.base import EpochMechanism
from ..releases.options import BuildContext
from ..releases.record_gate import build_gated
from ..releases.statistics.frequent import FrequentOptions
from ..stream.lattice import Grid, Lattice
from ..stream.selection import RecordSelection, Rows, TextUse
from ..stream.windows import Schedule
from .durations import duration_ms
from .sections import KeyDiscoverySection, Sections

LONGEST_KEY = 200
"""Most characters of a key."""
_KEY = "stream.keys"


def discovery_of(config: Sections) -> KeyDiscoverySection | None:
    """Return how keys are found; None if they are declared, or there are none."""
    keys = config.stream.keys
    return keys if isinstance(keys, KeyDiscoverySection) else None


def first_keys(keys: KeyDiscoverySection) -> tuple[str, ...]:
    """Return the keys of the first period in Unicode's normal form C, as those of records are."""
    return tuple(map(composed, keys.first))


def check_key_texts(keys: tuple[str, ...], name: str) -> None:
    """Refuse what cannot be a key."""
    for i, key in enumerate(keys):
        if not is_key(key) or key in keys[:i]:
            raise ConfigError(
                f"must be different texts of 1 to {LONGEST_KEY} printable characters, the one at {i} is not", name
            )


def is_key(text: str) -> bool:
    """Return whether a text can be a key; a function of that text alone."""
    return 0 < len(text) <= LONGEST_KEY and text.isprintable()


def check_discovery(config: Sections, schedule: Schedule, answers: Answers) -> None:
    """Check what belongs together where keys are found.

    Raises
    ------
    ConfigError
    """
    keys, stream = discovery_of(config), config.stream
    assert keys is not None
    is_user = stream.unit == "user"
    for is_wrong, name, rule in (
        (
            stream.unit == "stream",
            "stream.unit",
            "must be 'event' or 'user' where keys are found: with 'stream' nobody knows how many keys a participant "
            "will have",
        ),
        (
            config.budget.total_rho is not None or config.budget.total_delta is not None,
            "budget.total_rho",
            "must be left out where keys are found: it is divided by the number of keys, which nobody knows",
        ),
        (
            is_user and stream.key_budgets != "shared",
            "stream.key_budgets",
            "must be 'shared' where keys are found and the unit is 'user': nobody can promise under how many keys that "
            "are not known yet one user will have records",
        ),
        (
            is_user and stream.keys_per_user is None,
            "stream.keys_per_user",
            "is required where keys are found and the unit is 'user': the most keys under which one user counts in a "
            "window",
        ),
        (
            not is_user and stream.keys_per_user is not None,
            "stream.keys_per_user",
            "must be left out where keys are found, but for unit = 'user': a record has one key",
        ),
        (schedule.slide_ms != schedule.length_ms, "window.slide", "must be left out where keys are found"),
        (
            config.source is not None and config.source.partitioner is not None,
            "source.partitioner",
            "must be left out where keys are found: one process sees all records",
        ),
        (
            is_user and config.ledger is not None and config.ledger.url.startswith("memory:"),
            "ledger.url",
            "must be SQLite or PostgreSQL where keys are found and the unit is 'user': users have one filter for the "
            "search and for all keys, and a ledger in memory holds one stream",
        ),
        (
            is_user and keys.max_values is not None,
            f"{_KEY}.max_values",
            "must be left out with unit = 'user': users are bounded, by `max_users`",
        ),
        (not is_user and keys.max_users is not None, f"{_KEY}.max_users", "belongs to unit = 'user'"),
    ):
        if is_wrong:
            raise ConfigError(rule, name)
    check_key_texts(first_keys(keys), f"{_KEY}.first")
    period = _period_ms(keys, schedule)
    for answer in answers:
        mechanism = answer.mechanism
        if isinstance(mechanism, EpochMechanism) and period % (mechanism.epoch_windows * schedule.length_ms):
            raise ConfigError(
                "must divide `stream.keys.every` where keys are found: a key has releases for a whole period, so only "
                "then for a whole epoch",
                "release.epoch",
            )


def finder_schedule(config: Sections, schedule: Schedule) -> Schedule:
    """Return the schedule of periods; a period after which there is no window is not searched."""
    keys = discovery_of(config)
    assert keys is not None
    period, end_ms = _period_ms(keys, schedule), None
    if schedule.count is not None:
        periods = -(-schedule.count * schedule.length_ms // period) - 1
        if periods < 1:
            raise ConfigError(
                "must be shorter than the schedule: the keys of the first period serve in the second", f"{_KEY}.every"
            )
        end_ms = schedule.start_ms + periods * period
    return Schedule(schedule.start_ms, period, period, schedule.lateness_ms, end_ms)


def finder_schema(config: Sections, user: str | None) -> Schema:
    """Return the schema of the stream that finds keys: each key is a text."""
    field = config.stream.key or ""
    return Schema(config.stream.time, config.stream.time_unit, (), user, texts={field: 4 * LONGEST_KEY}, order=(field,))


def finder_answers(config: Sections, schedule: Schedule, window: PrivacyLoss) -> Answers:
    """Return the one answer of the stream that finds keys; `window` is what a window of a key costs.

    Raises
    ------
    ConfigError
    """
    keys, field, unit = discovery_of(config), config.stream.key or "", config.stream.unit
    assert keys is not None
    grid = Grid(Lattice(1.0), ())
    rho = window.rho / 10 if keys.rho is None else keys.rho
    delta = config.budget.delta / 1000 if keys.delta is None else keys.delta
    options = FrequentOptions(rho=rho, delta=delta, max_values=keys.max_values, values_per_user=keys.values_per_user)
    context = BuildContext(grid, 1, unit, texts=(field,), window_ms=schedule.length_ms)
    try:
        mechanism = build_gated(options, context, keys.max_users)
    except ConfigError as error:
        mine = {"window.max_records": f"{_KEY}.max_users"}
        error.rename(lambda key: mine.get(key, key.replace("release.", f"{_KEY}.")))
        raise
    rows = Rows((), text=TextUse(field, keys.values_per_user or 1))
    return Answers((WindowAnswer(None, mechanism, grid, RecordSelection(rows)),), unit)


def _period_ms(keys: KeyDiscoverySection, schedule: Schedule) -> int:
    period = duration_ms(keys.every, f"{_KEY}.every")
    if period < schedule.length_ms or period % schedule.length_ms:
        raise ConfigError(
            f"must be a whole number of windows of {schedule.length_ms} ms", f"{_KEY}.every", got=keys.every
        )
    return period
