"""Stream: a configuration written in Python, and the releases of data frames as a data frame."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, TypeVar, overload

from ..config import Config
from ..config.job import FINDER
from ..config.sections import (
    BudgetSection,
    FeatureSection,
    LatticeSection,
    LedgerSection,
    StreamSection,
    WindowSection,
)
from ..errors import BudgetExhausted, BudgetWarning, ConfigError, Shown
from ..formats.written_frames import library_of, table_like
from ..ledgers import Ledger, is_foreign, open_ledger, open_reader
from ..noise.samplers import Noise
from ..releases.base import Release
from ..releases.long_form import long_columns
from ..releases.options import Options
from ..releases.tables.documents import row_columns
from .batch_budget import FORGETS, check_opened, check_unopened
from .discovering import DiscoveringEngine
from .engine import Engine
from .intake import OnRejection
from .keyed import KeyedEngine

LOG = logging.getLogger("fcstream.engine")
_NOTHING = object()


class DataFrame(Protocol):
    """A data frame of pandas or polars, or a table or record batch of Arrow."""

    @property
    def columns(self) -> Any: ...

    def __getitem__(self, name: Any, /) -> Any: ...


Frame = TypeVar("Frame", bound=DataFrame)


class Stream:
    """Private releases of data frames: what a configuration file says, in typed Python.

    Its arguments are the sections of the file, as the classes of `fcstream.sections`, and are checked by the same rules
    with the same messages.

    Parameters
    ----------
    stream : str or fcstream.sections.Records
        ``[stream]``, or only its name.
    release : options or sequence of options
        ``[release]``: the options of a kind, such as `fcstream.sections.Mean`, or those of several answers
        (``[[release]]``), each with a ``name``.
    window : fcstream.sections.Window
    budget : fcstream.sections.Budget
    features : sequence of fcstream.sections.Feature
        Left out for kinds that need none.
    lattice : fcstream.sections.Lattice, optional
        Required with features.
    ledger : str, path or None
        Where it is kept for ever what was spent: the path of a file of SQLite, or a URL as in ``[ledger]``. None says
        that nothing is kept: the budget then begins anew with every `Stream`, which the log warns of, so that is for
        experiments with data that nobody must protect.
    noise : Noise, optional
        Exact noise from the operating system by default. A seeded one is for tests; only `releases` then say that they
        are not ``private``.
    on_rejection : callable, optional
        See `Engine`.

    Attributes
    ----------
    config : Config
        The checked configuration.
    releases : list of Release
        Of the last `run`, as documents: with reasons of refusals, counts, costs and further parts.
    rejected : dict
        Numbers of records of the last `run` that were rejected, by reason. For the owner of the data only.

    Raises
    ------
    ConfigError, LedgerError

    Privacy
    -------
    As of `Engine`, which does the work. The ledger bounds what all runs reveal together, also of other processes and
    later days, as long as the same ledger is named.

    Source
    ------
    Specification 8.3, 8.4, 12.1.

    Examples
    --------
    >>> import pandas as pd
    >>> from fcstream import Stream
    >>> from fcstream.sections import Budget, Count, Window
    >>> visits = Stream(
    ...     "visits",
    ...     window=Window(length="1h", start="2026-01-01T00:00:00Z", end="2026-01-01T02:00:00Z"),
    ...     release=Count(rho=0.5),
    ...     budget=Budget(rho=0.5, delta=0.0),
    ...     ledger=None,
    ... )
    >>> frame = visits.run(pd.DataFrame({"ts_ms": pd.date_range("2026-01-01", periods=5000, freq="s")}))
    >>> frame.value.round(-2).tolist()
    [3600.0, 1400.0]
    """

    def __init__(
        self,
        stream: str | StreamSection,
        *,
        release: Options | Sequence[Options],
        window: WindowSection,
        budget: BudgetSection,
        features: Sequence[FeatureSection] = (),
        lattice: LatticeSection | None = None,
        ledger: str | os.PathLike[str] | None,
        noise: Noise | None = None,
        on_rejection: OnRejection | None = None,
    ) -> None:
        config = Config.of(
            stream=StreamSection(name=stream) if isinstance(stream, str) else stream,
            lattice=lattice,
            features=list(features),
            window=window,
            release=release,
            budget=budget,
            ledger=LedgerSection(url=_url(ledger)),
        )
        self._begin(config, noise, on_rejection)
        if ledger is None:
            LOG.warning(
                "stream %r has no ledger, so what it spends is forgotten with it: name one (`ledger=`) for real data",
                config.stream.name,
            )

    @classmethod
    def from_config(
        cls,
        config: Config | Mapping[str, Any] | str | Path,
        *,
        noise: Noise | None = None,
        on_rejection: OnRejection | None = None,
    ) -> Stream:
        """Make a stream of a configuration file, or of the same keys as a mapping; it must name a ledger.

        Sections that say where records come from and go to are checked and not used: `run` is given its records.
        """
        if isinstance(config, (str, Path)):
            config = Config.load(config)
        made = cls.__new__(cls)
        made._begin(config if isinstance(config, Config) else Config.from_mapping(config), noise, on_rejection)
        return made

    def _begin(self, config: Config, noise: Noise | None, on_rejection: OnRejection | None) -> None:
        self.config = config
        self.releases: list[Release] = []
        self.rejected: dict[str, int] = {}
        self._noise, self._on_rejection = noise, on_rejection
        self._in_memory: dict[str, Ledger] = {}
        self._kept: dict[tuple[str, int, str | None], Release] = {}

    def engine(self) -> Engine | KeyedEngine:
        """Open the engine, to push records that arrive one by one; `frame` makes a data frame of what it returns."""
        job, noise, hand = self.config.job, self._noise, self._on_rejection
        if job.finder is not None:
            ledgers = self._in_memory if self._ledger_url == FORGETS else None
            return DiscoveringEngine(self.config, ledgers=ledgers, noise=noise, on_rejection=hand)
        if self._ledger_url == FORGETS and job.keys_chosen is not None:
            raise ConfigError(
                "must be SQLite or PostgreSQL with `stream.key_budgets` = 'shared': a `Stream` keeps no budget of all "
                "keys in memory",
                "ledger.url",
            )
        if self._ledger_url == FORGETS and not self._in_memory:
            self._in_memory = {key: open_ledger(FORGETS, job.part(key).terms) for key in job.keys} or {
                "": open_ledger(FORGETS, job.terms)
            }
        if job.keys:
            return KeyedEngine(self.config, ledgers=self._in_memory or None, noise=noise, on_rejection=hand)
        return Engine(self.config, ledger=self._in_memory.get(""), noise=noise, on_rejection=hand)

    @property
    def _ledger_url(self) -> str:
        return "" if self.config.ledger is None else self.config.ledger.url

    @overload
    def run(self, frames: Frame, *, unchecked: bool = False) -> Frame: ...

    @overload
    def run(self, frames: Iterable[Frame], *, unchecked: bool = False) -> Frame: ...

    def run(self, frames: Any, *, unchecked: bool = False) -> Any:
        """Release every window of the schedule from all of its records.

        Parameters
        ----------
        frames : data frame, or iterable of data frames
            All records, at once or in batches that need not fit into memory together: data frames of pandas or polars,
            or tables of Arrow, with columns named as in the configuration. Other columns are not read.
        unchecked : bool
            Do not look first whether any of the first 1,000 records can be used.

        Returns
        -------
        data frame
            Of the library that the records came in, one row for each published number, with the columns
            ``window_open`` and ``window_close`` (in UTC), ``stream``, ``key``, ``answer``, ``kind``, ``name`` (which
            number it is), ``value``, ``sigma``, ``low`` and ``high`` (an interval that holds the number without its
            noise with a probability of 95%), ``status`` and ``reason``. A refused window has one row with the status
            ``refused``, its reason, and without a value; a `BudgetWarning` tells of the first one that the budget has
            no room for.

            If the one answer is of kind ``synthetic``, there is a row for each made-up row instead, with the columns of
            the table in place of ``name``, ``value`` and those beside it; one that is called as another column has a
            ``_`` behind its name. Among several answers such a release has one row without a value, and
            `fcstream.synthetic_rows` draws its rows.

            A window that an earlier run has released has the release of that run, unchanged: nothing is charged or
            drawn a second time. (In a ledger of another package such windows are not found again, so they have no
            rows.)

        Raises
        ------
        ConfigError
            The clock is not ``eof``, or a column is missing. Single bad rows are rejected instead, see `rejected`.
        UnusableRecords
            None of the first 1,000 records can be used; nothing was charged.
        BudgetTooSmall
            The budget does not last for all windows that have no release. Nothing was read or charged.
            ``budget.exhausted`` says what to do instead.
        BudgetExhausted
            With ``budget.exhausted = "stop"``; its `releases`, and those of this `Stream`, are the windows before.
        EngineClosed, LedgerError
        """
        clock = self.config.window.clock
        if clock != "eof":
            raise ConfigError(
                "must be 'eof' to run data frames", "window.clock", got=clock, remedy="see `Stream.engine`"
            )
        check_unopened(self.config)
        first, batches = _batches(frames)
        with self.engine() as engine:
            check_opened(engine)
            if unchecked:
                engine.first_records.ignore()
            self._keep(engine.unpublished())
            former = engine.known_keys if isinstance(engine, DiscoveringEngine) else ()
            try:
                for batch in batches:
                    engine.push(batch)
                for group in engine.closing():
                    self._keep(group)
                    engine.acknowledge()
            except BudgetExhausted as stopped:
                stopped.releases = self._ordered()
                raise
            finally:
                self.rejected = engine.rejected
                self.releases = self._ordered()
        if engine.exhaustion.text is not None:
            warnings.warn(f"stream {self.config.stream.name!r}: {engine.exhaustion.text}", BudgetWarning, stacklevel=2)
        if engine.answered:
            self._keep(self._sealed_before(former))
            self.releases = self._ordered()
        return self.frame(self.releases, like=first)

    def frame(self, releases: Iterable[Release], like: Frame) -> Frame:
        """Make the data frame that `run` returns, of other releases: in the library of the data frame `like`."""
        answers = self.config.job.answers.answers
        is_table = len(answers) == 1 and answers[0].mechanism.shape.value.hidden
        made: Frame = table_like(like, row_columns(releases) if is_table else long_columns(releases))
        return made

    def _keep(self, releases: Iterable[Release]) -> None:
        for release in releases:
            self._kept[release.stream, release.window_open_ms, release.name] = release

    def _sealed_before(self, found: Sequence[str]) -> Iterator[Release]:
        """Read all releases from the ledger, if that can be read; of one in memory all are kept.

        `found` are the keys that were found before.
        """
        url, job = self._ledger_url, self.config.job
        if url == FORGETS or is_foreign(url):
            return
        keys = job.keys if job.finder is None else (FINDER, *found)
        for part in [job.part(key) for key in keys] or [job]:
            with closing(open_reader(url, part.terms.stream)) as ledger:
                yield from map(Release.from_bytes, ledger.releases())

    def _ordered(self) -> list[Release]:
        """Return what is known of all windows, key by key, in the order of time."""
        keys = {key: i for i, key in enumerate(self.config.job.keys)}
        return sorted(
            self._kept.values(),
            key=lambda release: (keys.get(release.key or "", -1), release.key or "", release.window_open_ms),
        )


def _url(ledger: str | os.PathLike[str] | None) -> str:
    if ledger is None:
        return FORGETS
    text = os.fspath(ledger)
    return text if isinstance(ledger, str) and ":" in text else f"sqlite:{text}"


def _batches(frames: Any) -> tuple[Any, Iterator[Any]]:
    """Return the first data frame and all of them, each checked before it is used."""
    single = hasattr(frames, "collect") or library_of(frames) is not None
    batches = iter([frames] if single or not isinstance(frames, Iterable) else frames)
    first = next(batches, _NOTHING)
    if first is _NOTHING:
        raise ConfigError("must hold at least one data frame: its library is that of the result", "frames")
    return first, map(_checked, chain([_checked(first)], batches))


def _checked(batch: Any) -> Any:
    if hasattr(batch, "collect"):
        raise ConfigError("must be collected first", "frames", remedy="`frame.collect()`")
    if library_of(batch) is None:
        raise ConfigError(
            "must be data frames of pandas or polars, or tables of Arrow", "frames", got=Shown(type(batch).__name__)
        )
    return batch
