"""Whether a budget lasts to the end of a run over files, by public facts, before a record is read."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from ..accounting.losses import RHO_UNIT, PrivacyLoss
from ..config import Config, Job
from ..config.job import FINDER
from ..errors import BudgetTooSmall, LedgerDamaged, LedgerError
from ..ledgers import Ledger, WindowKey, each_reader, is_foreign, open_reader
from ..ledgers.base import TOTAL_BLOCK, Terms
from ..runtime.words import many
from .engine import Engine
from .keyed import KeyedEngine

_NOTHING = PrivacyLoss()
_FORGETS = "memory:"


class _Demand(NamedTuple):
    """What the windows of a stream that have no release will cost at most.

    Attributes
    ----------
    terms : Terms
    spent : callable
        What a block has spent, in all streams of the group.
    loss : PrivacyLoss
        Of each window.
    windows : int
        How many there are; one that was charged before a crash is paid for.
    """

    terms: Terms
    spent: Callable[[str], PrivacyLoss]
    loss: PrivacyLoss
    windows: int


def check_unopened(config: Config) -> None:
    """Refuse to begin a stream that its budget does not last for, before a ledger is bound to its configuration.

    Of a stream that its ledger knows, `check_opened` decides.

    Raises
    ------
    BudgetTooSmall
    """
    job, url = config.job, "" if config.ledger is None else config.ledger.url
    if not url or url.startswith(_FORGETS) or is_foreign(url):
        return
    group = job.terms.group
    if group is None and _too_small(config, _new(job, {}), is_bound=False) is None:
        return
    first = job if not job.keys or job.keys_chosen is not None else job.part(job.keys[0])
    if not _knows(url, first.terms.stream):
        _refuse(config, _new(job, {} if group is None else _spent_of_group(url, group)), is_bound=False)


def check_opened(engine: Engine | KeyedEngine) -> None:
    """Refuse a run over files whose budget does not last for all windows without a release; no record is read for it.

    Each filter counts for itself, and all windows of a group that share one together. With ``budget.exhausted`` given,
    with savings, and with live clocks nothing is checked. Blocks of the unit ``event`` hold the windows that overlap in
    them, which the configuration sees to.

    Raises
    ------
    BudgetTooSmall
        Nothing was charged.

    Privacy
    -------
    Public: a function of the configuration and of what public blocks have spent.

    Source
    ------
    Specification 8.3; ours.
    """
    ledger = engine.config.ledger
    _refuse(engine.config, _unreleased(engine), is_bound=ledger is not None and not ledger.url.startswith(_FORGETS))


def _refuse(config: Config, demands: Sequence[_Demand], *, is_bound: bool) -> None:
    error = _too_small(config, demands, is_bound)
    if error is not None:
        raise error


def _new(job: Job, spent: Mapping[str, PrivacyLoss]) -> list[_Demand]:
    """Return what all windows of a schedule cost, where a group has spent so much of its blocks."""

    def all_of(one: Job, loss: PrivacyLoss) -> _Demand:
        return _Demand(one.terms, lambda block: spent.get(block, _NOTHING), loss, one.schedule.count or 0)

    if job.keys and job.keys_chosen is None:
        return [all_of(job.part(key), job.answers.loss) for key in job.keys]
    found = [all_of(job, job.window_loss)]
    return found if job.finder is None else [*found, all_of(job.part(FINDER), job.finder.job.answers.loss)]


def _unreleased(engine: Engine | KeyedEngine) -> list[_Demand]:
    """Return what the windows of an engine that have no release cost."""
    job, parts = engine.job, engine.parts
    if job.keys_chosen is None:
        return [_of(part.job, part.ledger, part.job.answers.loss, part.next_index) for part in parts]
    # Users have one filter for all keys: a window of all of them is one charge, and a search for keys another.
    ledger = next((part.ledger for part in parts if part.job.key is not None), parts[0].ledger)
    first = job.schedule.index_after(engine.next_open_ms) - 1
    searches = [part for part in parts if part.job.key is None]
    return [
        _of(job, ledger, job.window_loss, first),
        *(_of(part.job, part.ledger, part.job.answers.loss, part.next_index) for part in searches),
    ]


def _of(job: Job, ledger: Ledger, loss: PrivacyLoss, first: int) -> _Demand:
    """Return the demand of all windows from this one on that were not charged before a crash."""
    count = job.schedule.count or 0
    while first < count:
        window = job.schedule.window(first)
        if not ledger.charged_blocks(WindowKey(window.open_ms, window.close_ms)):
            break
        first += 1
    return _Demand(job.terms, ledger.spent, loss, max(0, count - first))


def _knows(url: str, stream: str) -> bool:
    """Return whether a ledger holds a stream; one that is damaged says so when it is opened."""
    try:
        with closing(open_reader(url, stream)):
            return True
    except LedgerDamaged:
        return True
    except LedgerError:
        return False


def _spent_of_group(url: str, group: str) -> dict[str, PrivacyLoss]:
    """Return what the streams of a group have spent of each block."""
    try:
        for reader in each_reader(url):
            if reader.terms.group == group:
                return {block: reader.spent(block) for block in (reader.terms.unit, TOTAL_BLOCK)}
    except LedgerError:
        pass  # there is none yet, or opening it says what is wrong
    return {}


def _too_small(config: Config, demands: Sequence[_Demand], is_bound: bool) -> BudgetTooSmall | None:
    """Return what to raise if some filter has less room than is asked of it."""
    spending = config.job.spending
    if config.window.clock != "eof" or spending.exhausted is not None or spending.savings is not None:
        return None
    pots: dict[str, list[_Demand]] = {}
    for each in demands:
        if each.windows:
            pots.setdefault(each.terms.group or each.terms.stream, []).append(each)
    for held in pots.values():
        terms = held[0].terms
        names = [] if terms.unit == "event" else [terms.unit]
        for block in names if terms.total is None else [*names, TOTAL_BLOCK]:
            spent = held[0].spent(block)
            if not _cost(held, _longest(held)).fits(terms.cap(block).missing(spent)):
                return _error(config, held, block, spent, is_bound)
    return None


def _longest(held: Sequence[_Demand]) -> int:
    return max(each.windows for each in held)


def _cost(held: Sequence[_Demand], windows: int) -> PrivacyLoss:
    """Return what so many windows cost; of streams with fewer, such as searches, in proportion."""
    longest = _longest(held)
    return sum((each.loss * -(-each.windows * windows // longest) for each in held), _NOTHING)


def _error(config: Config, held: Sequence[_Demand], block: str, spent: PrivacyLoss, is_bound: bool) -> BudgetTooSmall:
    """Say how long a budget lasts, and what helps."""
    terms, count = held[0].terms, _longest(held)
    left = terms.cap(block).missing(spent)
    lasts = bisect.bisect_left(range(1, count + 1), True, key=lambda windows: not _cost(held, windows).fits(left))
    text = f"lasts {lasts} of {many(count, 'window')}"
    if spent != _NOTHING:
        group = "" if terms.group is None or terms.group.endswith("/") else f" by group {terms.group!r}"
        text += f", since {spent} of {terms.cap(block)} is spent{group}"
    cost = _cost(held, count)
    part = "rho" if cost.rho_nano > left.rho_nano else "delta"
    helps = []
    if not is_bound and left.parts[part == "delta"]:
        asked = round(getattr(config.releases[0], "rho", 0.0) * RHO_UNIT)
        least = _rounded_down(asked * left.rho_nano // cost.rho_nano) if part == "rho" else 0
        is_known = least and len(config.releases) == 1
        helps = [f"lower release.{part}" + (f" to {least / RHO_UNIT:g}" if is_known else ""), "use longer windows"]
    helps += ["let window.end be earlier"] if lasts else []
    helps += [] if helps else ["take a new stream with a budget of its own, which adds up with this one"]
    rest = f"release {lasts} and refuse the rest" if lasts else "have all of them refused"
    return BudgetTooSmall(
        f'{text}: {", or ".join(helps)}; to {rest}, write budget.exhausted = "refuse"',
        f"budget.{'total_' if block == TOTAL_BLOCK else ''}{part}",
    )


def _rounded_down(value: int) -> int:
    """Keep the first four digits."""
    unit: int = 10 ** max(0, len(str(value)) - 4)
    return value // unit * unit
