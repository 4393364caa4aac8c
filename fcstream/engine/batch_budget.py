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
from ..ledgers.base import TOTAL_BLOCK, Terms, part_name
from ..runtime.words import many
from .engine import Engine
from .keyed import KeyedEngine

_NOTHING = PrivacyLoss()
FORGETS = "memory:"


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

    @property
    def is_search(self) -> bool:
        """Whether it is the search for keys of a stream that finds them."""
        return self.terms.stream == part_name(self.terms.root, FINDER)


def check_unopened(config: Config) -> None:
    """Refuse to begin a stream that its budget does not last for, before a ledger is bound to its configuration.

    Of a stream that its ledger knows, `check_opened` decides.

    Raises
    ------
    BudgetTooSmall
    """
    job, url = config.job, "" if config.ledger is None else config.ledger.url
    if not url or url.startswith(FORGETS) or is_foreign(url):
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
    _refuse(engine.config, _unreleased(engine), is_bound=ledger is not None and not ledger.url.startswith(FORGETS))


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
    short: list[_Shortage] = []
    for held in pots.values():
        terms = held[0].terms
        names = [] if terms.unit == "event" else [terms.unit]
        for block in names if terms.total is None else [*names, TOTAL_BLOCK]:
            spent = held[0].spent(block)
            left = terms.cap(block).missing(spent).parts
            found = [_Shortage(held, block, spent, part, left[i]) for i, part in enumerate(("rho", "delta"))]
            short += [each for each in found if each.cost(each.most) > each.left]
    return _error(config, short, is_bound) if short else None


class _Shortage(NamedTuple):
    """A block that has less left of one part, rho or delta, than the streams that share it may ask for."""

    held: Sequence[_Demand]
    block: str
    spent: PrivacyLoss
    part: str
    left: int

    @property
    def most(self) -> int:
        """How many windows the longest of the streams has."""
        return max(each.windows for each in self.held)

    @property
    def lasts(self) -> int:
        """For how many windows there is room."""
        fits_not = bisect.bisect_left(range(1, self.most + 1), True, key=lambda windows: self.cost(windows) > self.left)
        return int(fits_not)

    def cost(self, windows: int, *, searches: bool | None = None) -> int:
        """Return what so many windows cost; of streams with fewer, such as searches, in proportion."""
        place = ("rho", "delta").index(self.part)
        return sum(
            each.loss.parts[place] * -(-each.windows * windows // self.most)
            for each in self.held
            if searches in (None, each.is_search)
        )

    def room(self) -> tuple[int, int]:
        """Return what searches for keys leave to the windows, and what these ask for."""
        fixed, asked = (self.cost(self.most, searches=each) for each in (True, False))
        return max(0, self.left - fixed), asked


def _error(config: Config, short: Sequence[_Shortage], is_bound: bool) -> BudgetTooSmall:
    """Say how long a budget lasts, and what helps against all that is short."""
    first = min(short, key=lambda each: each.lasts)
    lasts, block, terms = first.lasts, first.block, first.held[0].terms
    text = f"lasts {lasts} of {many(first.most, 'window')}"
    if first.spent != _NOTHING:
        group = "" if terms.group is None or terms.group.endswith("/") else f" by group {terms.group!r}"
        text += f", since {first.spent} of {terms.cap(block)} is spent{group}"
    helps = [] if is_bound else _smaller_costs(config, short)
    helps += ["let window.end be earlier"] if lasts else []
    helps += [] if helps else ["take a new stream with a budget of its own, which adds up with this one"]
    rest = "have all of them refused"
    if sum(not each.is_search for each in first.held) > 1:  # keys, which are answered one after the other
        rest = "release what there is room for and refuse the rest"
    elif lasts:
        rest = f"release {lasts} and refuse the rest"
    return BudgetTooSmall(
        f'{text}: {", or ".join(helps)}; to {rest}, write budget.exhausted = "refuse"',
        f"budget.{'total_' if block == TOTAL_BLOCK else ''}{first.part}",
    )


def _smaller_costs(config: Config, short: Sequence[_Shortage]) -> list[str]:
    """Say what may cost less, so that all blocks have room; nothing if one has nothing left."""
    if any(each.left == 0 for each in short):
        return []
    lower: dict[str, None] = {}
    asked = round(getattr(config.releases[0], "rho", 0.0) * RHO_UNIT)
    values = [asked * room // cost for room, cost in (each.room() for each in short if each.part == "rho") if cost]
    least = _rounded_down(min(values, default=0)) if len(config.releases) == 1 else 0
    for each in short:
        room, _ = each.room()
        value = f" to {least / RHO_UNIT:g}" if each.part == "rho" and least else ""
        lower[f"release.{each.part}{value}" if room else f"stream.keys.{each.part}"] = None
    return [f"lower {' and '.join(lower)}", "use longer windows"]


def _rounded_down(value: int) -> int:
    """Keep the first four digits."""
    unit: int = 10 ** max(0, len(str(value)) - 4)
    return value // unit * unit
