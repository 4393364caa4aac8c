"""Rehearsals: seeded runs of a configuration on public or made-up records, compared with the truth.

Each run is that of the engine, with a ledger in memory. What the configuration names (source, sink, ledger, dead
letters) is never opened.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..config import Config, Job, LedgerSection
from ..config.durations import NOW
from ..engine.engine import Engine
from ..engine.exhaustion import windows_until
from ..engine.keyed import KeyedEngine
from ..engine.records import CounterFactory, default_counters
from ..errors import BudgetExhausted, ConfigError
from ..formats.batch import Batch
from ..ledgers.memory import MemoryLedger
from ..noise.samplers import Noise, SeededEntropy
from ..releases.answers import NO_TEXTS, Answers, groups_of
from ..releases.base import Counter, Release
from ..releases.options import MAX_RHO
from ..reporting.rehearsal import AnswerErrors, Curve, CurvePoint, NumberErrors, Rehearsal
from ..runtime.garbage import without_garbage_collection
from ..stream.user_groups import UserGroups
from ..stream.windows import Schedule
from .records import synthetic_records
from .truths import WindowTruth, Yardstick, yardstick_of

FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""What a setting is multiplied with along a curve."""
AXES = ("rho", "length", "radius")
RUNS, WINDOWS = 10, 24
"""Number of seeds, and largest number of windows, by default."""
_SYNTHETIC_START_MS = 1_458_000_000_000  # 2016-03-15T00:00:00Z, where the configuration names no moment
Progress = Callable[[str, float], object]
Place = tuple["str | None", int]
"""A window: its key, and its opening in Unix milliseconds."""


@dataclass(frozen=True, slots=True)
class RehearsalPlan:
    """How much is rehearsed.

    Parameters
    ----------
    runs : int
        Number of seeds, at least 2.
    first_seed : int
        The seeds are this one and those that follow it. Made-up records have the first one, too.
    windows : int
        Largest number of windows, from the first one of the data on.
    curves : bool
        Whether ``rho``, the windows' length and ``radius`` are varied.
    """

    runs: int = RUNS
    first_seed: int = 1
    windows: int = WINDOWS
    curves: bool = True

    def __post_init__(self) -> None:
        for name, least, option in (("runs", 2, "--runs"), ("windows", 1, "--windows"), ("first_seed", 0, "--seed")):
            if getattr(self, name) < least:
                raise ConfigError(f"must be at least {least}", option, got=getattr(self, name))

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(range(self.first_seed, self.first_seed + self.runs))


def rehearse(
    config: Config,
    records: Sequence[Batch] | None = None,
    data: str = "",
    plan: RehearsalPlan | None = None,
    progress: Progress = lambda text, part: None,
) -> Rehearsal:
    """Run a configuration with several seeds, and compare what is released with the truth.

    Parameters
    ----------
    config : Config
    records : sequence of Batch, optional
        Public records, as the configuration's schema reads them; by default records are made up.
    data : str
        What the result calls the records.
    plan : RehearsalPlan, optional
    progress : callable, optional
        Is told what is being done, and the share that is done.

    Raises
    ------
    ConfigError
        The records hold none that can be used, or the stream finds its keys, or shares users' budgets among keys.

    Privacy
    -------
    None: the result holds exact errors and is for nobody who may not see the records. The configuration's own ledger
    is not touched, so nothing is spent.
    """
    plan = plan or RehearsalPlan()
    _check_can_be_rehearsed(config.job)
    made_up = records is None
    base = _in_memory(config)
    if records is None:
        start_ms = _first_open(base.job.schedule, None)
        records = [synthetic_records(base, start_ms, plan.windows, plan.first_seed)]
        data = "made-up records"
    times = _usable_times(base.job, records)
    span = _span(base.job.schedule, times, plan.windows)
    variations = _variations(base, plan)
    total, done = plan.runs * (1 + len(variations)), 0

    def seeded(text: str) -> Callable[[], object]:
        def step() -> None:
            nonlocal done
            done += 1
            progress(text, done / total)

        return step

    main = _runs(_scheduled(base, span), records, plan.seeds, seeded("the configuration"))
    sizes = sorted(truth.size for truth in main.truths[0].values())
    if not any(truth.size for truths in main.truths for truth in truths.values()):
        raise _unusable(main.rejected)
    answers = main.answers()
    points: dict[str, list[CurvePoint]] = {}
    for axis, factor, setting, changed in variations:
        step = seeded(f"{axis} times {factor:g}")
        if factor == 1 and "budget_exhausted" not in {reason for each in answers for reason in each.refused}:
            point = CurvePoint(factor, setting, answers)
            for _ in plan.seeds:
                step()
        else:
            point = _point(factor, setting, changed, records, span, plan, step)
        points.setdefault(axis, []).append(point)
    covered = base.job.schedule
    further = (int(times.max()) - span[1]) // covered.slide_ms + 1
    return Rehearsal(
        stream=config.stream.name,
        unit=config.stream.unit,
        data=data,
        made_up=made_up,
        seeds=plan.seeds,
        windows=len(sizes),
        left_out=max(0, further) if not made_up else 0,
        sizes=(sizes[0], round(statistics.median(sizes)), sizes[-1]),
        rejected=main.rejected,
        answers=answers,
        curves=tuple(Curve(axis, tuple(own)) for axis, own in points.items()),
    )


def _check_can_be_rehearsed(job: Job) -> None:
    if job.finder is not None:
        raise ConfigError(
            "must be declared for a rehearsal", "stream.keys", remedy="list the keys in a copy of the configuration"
        )
    if job.keys_chosen is not None:
        raise ConfigError(
            "must be 'divided' for a rehearsal",
            "stream.key_budgets",
            remedy="change it in a copy of the configuration, whose errors are those of users who "
            "count under all their keys",
        )


def _in_memory(config: Config) -> Config:
    """Return the configuration without anything that it names outside of this process."""
    changes: dict[str, Any] = dict.fromkeys(("source", "sink", "dead_letter", "service"))
    window = msgspec.structs.replace(config.window, clock="eof", backlog=None, ahead=None)
    if config.window.start == NOW:
        window = msgspec.structs.replace(window, start="1970-01-01T00:00:00Z")
    budget = config.budget
    if budget.group is not None:  # what the streams of a group spend together is not known here
        budget = msgspec.structs.replace(budget, group=None, rho=MAX_RHO, delta=0.9)
    if window.end is None:
        slide = config.job.schedule
        window = msgspec.structs.replace(window, end=_iso(slide.start_ms + slide.length_ms))
    return msgspec.structs.replace(config, **changes, ledger=LedgerSection(url="memory:"), window=window, budget=budget)


def _with_room(config: Config) -> Config:
    """Return the configuration with a budget that any number of windows fits in."""
    budget = msgspec.structs.replace(
        config.budget, rho=MAX_RHO, delta=0.9, total_rho=None, total_delta=None, savings="none"
    )
    return msgspec.structs.replace(config, budget=budget)


def _iso(time_ms: int) -> str:
    return str(np.datetime_as_string(np.datetime64(time_ms, "ms"), timezone="UTC"))


def _first_open(schedule: Schedule, first_ms: int | None) -> int:
    """Return the opening of the first window, at the configuration's phase, that holds a moment; None: its own."""
    if first_ms is None:
        return schedule.start_ms or _SYNTHETIC_START_MS
    return schedule.start_ms + (first_ms - schedule.start_ms) // schedule.slide_ms * schedule.slide_ms


def _usable_times(job: Job, records: Sequence[Batch]) -> NDArray[np.int64]:
    """Return the times of the records, of those in the schedule if any of them lie in it."""
    times = np.concatenate([batch.times_ms for batch in records] or [np.empty(0, np.int64)])
    if not len(times):
        rejected: dict[str, int] = {}
        for each in (rejection for batch in records for rejection in batch.rejections):
            rejected[each.reason] = rejected.get(each.reason, 0) + each.count
        raise _unusable(rejected)
    _, first, last = job.schedule.locate(times)
    inside = times[first <= last]
    return inside if len(inside) else times


def _unusable(rejected: Mapping[str, int]) -> ConfigError:
    named = ", ".join(f"{reason} {count}" for reason, count in sorted(rejected.items()))
    why = f" ({named}): `fcstream check` says more" if named else ": there are none"
    return ConfigError(f"must hold records that this configuration can use, none can{why}", "--public")


def _span(schedule: Schedule, times: NDArray[np.int64], windows: int) -> tuple[int, int]:
    """Return where the rehearsed windows open and close: from the first record on, at most so many windows."""
    opens = _first_open(schedule, int(times.min()))
    held = (int(times.max()) - opens) // schedule.slide_ms + 1
    count = max(1, min(windows, held - (schedule.overlap - 1)))
    return opens, opens + (count - 1) * schedule.slide_ms + schedule.length_ms


def _scheduled(config: Config, span: tuple[int, int]) -> Config:
    """Return the configuration with windows from the start of a span, as many as lie in it."""
    window = msgspec.structs.replace(config.window, start=_iso(span[0]), end=_iso(span[1]))
    return msgspec.structs.replace(config, window=window)


# -- one configuration -----------------------------------------------------------------------------------------------


@dataclass
class _Found:
    """Releases of several runs of one configuration, with the truth of each window and answer."""

    job: Job
    places: list[Place]
    truths: list[dict[Place, WindowTruth]]  # by answer
    yardsticks: list[Yardstick | None]
    releases: list[dict[Place, list[Release | None]]] = field(default_factory=list)  # by answer; None: never answered
    rejected: dict[str, int] = field(default_factory=dict)

    def answers(self) -> tuple[AnswerErrors, ...]:
        return tuple(self._answer(i) for i in range(len(self.job.answers)))

    def _answer(self, place: int) -> AnswerErrors:
        answer, stick = self.job.answers[place], self.yardsticks[place]
        mechanism, truths = answer.mechanism, self.truths[place]
        errors: dict[str, dict[Place, list[float]]] = {}
        sigmas: dict[str, list[float]] = {}
        refused: dict[str, int] = {}
        released = 0
        for at, releases in self.releases[place].items():
            for release in releases:
                if release is None or release.value is None:
                    reason = "budget_exhausted" if release is None else release.reason or ""
                    refused[reason] = refused.get(reason, 0) + 1
                    continue
                released += 1
                if stick is None or truths[at].value is None:
                    continue
                for name, error, sigma in stick.compare(release, truths[at].value):
                    errors.setdefault(name, {}).setdefault(at, []).append(error)
                    if sigma is not None:
                        sigmas.setdefault(name, []).append(sigma)
        planned = {at: mechanism.predicted_sigmas(truth.size, answer.grid) for at, truth in truths.items()}
        numbers = [
            NumberErrors.of(name, list(own.values()), sigmas.get(name, ()), _planned(stick, name, own, planned))
            for name, own in errors.items()
            if any(len(each) > 1 for each in own.values())
        ]
        note = "" if stick is None else stick.note
        if stick is None:
            note = "errors of this kind are not rehearsed, only its refusals: it states no truth"
        elif not errors:
            note = "no window with records was released, so there are no errors to tell"
        expected = None
        if not mechanism.notes(None, answer.grid).chance:
            expected = math.fsum(mechanism.forecast(each.size).probability for each in truths.values()) / len(truths)
        return AnswerErrors(
            answer.name or mechanism.kind, mechanism.kind, note, released, refused, expected, tuple(numbers)
        )


def _planned(
    stick: Yardstick | None, name: str, own: Iterable[Place], planned: Mapping[Place, Mapping[str, float]]
) -> list[float]:
    found = [None if stick is None else stick.planned(name, planned[at]) for at in own]
    return [] if None in found else [each for each in found if each is not None]


def _runs(config: Config, records: Sequence[Batch], seeds: Sequence[int], step: Callable[[], object]) -> _Found:
    """Run one configuration with several seeds; the truth is taken in the first run.

    Where the budget does not last, it is taken in a run of its own whose windows all have room.
    """
    job = config.job
    schedule = job.schedule
    keys: tuple[str | None, ...] = job.keys or (None,)
    places = [(key, schedule.window(i).open_ms) for key in keys for i in range(schedule.count or 0)]
    sticks = [yardstick_of(answer.mechanism, answer.grid) for answer in job.answers]
    recorded: dict[tuple[int, Place], WindowTruth] = {}

    def record(key: str | None, pane: int, points: Sequence[NDArray[Any]]) -> None:
        at = (key, schedule.pane_open_ms(pane))
        for place, (own, stick) in enumerate(zip(points, sticks, strict=True)):
            recorded[place, at] = WindowTruth(len(own), None if stick is None else stick.truth(own))

    def recording(part: Job, answers: Answers, noise: Noise) -> tuple[Counter, UserGroups | None]:
        counter, users = default_counters(part, answers, noise)
        return WindowRecorder(counter, answers, part.width, lambda *found: record(part.key, *found)), users

    empty = [WindowTruth(0, None)] * len(sticks)
    found = _Found(job, places, [{} for _ in sticks], sticks, [{at: [] for at in places} for _ in sticks])
    if windows_until(job) is not None:
        run_once(_with_room(config), records, seeds[0], recording)
    for run, seed in enumerate(seeds):
        released, rejected = run_once(config, records, seed, default_counters if recorded else recording)
        if not run:
            found.rejected = rejected
            found.truths = [{at: recorded.get((i, at), none) for at in places} for i, none in enumerate(empty)]
        by_place = {(each.place or 0, each.key, each.window_open_ms): each for each in released}
        for i, own in enumerate(found.releases):
            for at in places:
                own[at].append(by_place.get((i, *at)))
        step()
    return found


def run_once(
    config: Config, records: Sequence[Batch], seed: int, stores: CounterFactory = default_counters
) -> tuple[list[Release], dict[str, int]]:
    """Release all windows of a configuration about files, in memory; also returns the rejected records by reason."""
    job, noise = config.job, Noise(SeededEntropy(seed))
    engine: Engine | KeyedEngine
    if job.keys:
        ledgers = {key: _ledger(job.part(key)) for key in job.keys}
        engine = KeyedEngine(config, ledgers=ledgers, noise=noise, on_rejection=_ignore, stores=stores)
    else:
        engine = Engine(config, ledger=_ledger(job), noise=noise, on_rejection=_ignore, stores=stores)
    engine.first_records.ignore()  # who rehearses says more about records that cannot be used
    found: list[Release] = []
    with without_garbage_collection():
        try:
            for batch in records:
                engine.take(batch)
            for group in engine.closing():
                found += group
                engine.acknowledge()
        except BudgetExhausted:  # with `budget.exhausted` = 'stop', later windows have no release
            pass
        finally:
            engine.abort()
    return found, dict(engine.rejected)


def _ledger(job: Job) -> MemoryLedger:
    return MemoryLedger(job.terms)


def _ignore(_rejections: object) -> None:
    """Take rejections, which are counted, so that no warning is logged."""


class WindowRecorder:
    """A counter that also keeps the points of open panes, and tells those of a window when it closes. Not private.

    Parameters
    ----------
    inner : Counter
        What the engine counts with.
    answers : Answers
    width : int
        Number of coordinates of a record.
    record : callable
        Gets the window's first pane, and for each answer its lattice points (n, d), or texts (n,).
    """

    def __init__(
        self, inner: Counter, answers: Answers, width: int, record: Callable[[int, Sequence[NDArray[Any]]], object]
    ) -> None:
        self._inner: Any = inner
        self._answers, self._width, self._record = answers, width, record
        self._rows = groups_of(answers)
        self._kept: dict[tuple[int, int], list[NDArray[Any]]] = {}  # by pane and group

    @property
    def panes(self) -> list[int]:
        return sorted({*self._inner.panes, *(pane for pane, _ in self._kept)})

    def add(self, pane: int, points: NDArray[Any], texts: Mapping[str, NDArray[np.object_]] = NO_TEXTS) -> None:
        for group, rows in enumerate(self._rows):
            marks = rows.mark(points)
            mine = points if rows.text is None else texts[rows.text.feature]
            self._keep(pane, group, mine if marks is None else mine.compress(marks, axis=0))
        if texts:
            self._inner.add(pane, points, texts)
        else:
            self._inner.add(pane, points)

    def add_to(self, group: int, pane: int, points: NDArray[Any]) -> None:
        """Add points to the answers of one group, see `AnswerCounters`."""
        self._keep(pane, group, points)
        self._inner.add_to(group, pane, points)

    def drop(self, pane: int) -> None:
        for group in range(len(self._rows)):
            self._kept.pop((pane, group), None)
        self._inner.drop(pane)

    def view(self, panes: Iterable[int]) -> Any:
        wanted = list(panes)
        self._record(wanted[0], [self._points(place, wanted) for place in range(len(self._answers))])
        return self._inner.view(wanted)

    def _keep(self, pane: int, group: int, points: NDArray[Any]) -> None:
        if len(points):
            self._kept.setdefault((pane, group), []).append(np.array(points))

    def _points(self, place: int, panes: Sequence[int]) -> NDArray[Any]:
        selection = self._answers[place].selection
        group = self._rows.index(selection.rows)
        parts = [part for pane in panes for part in self._kept.get((pane, group), [])]
        points = np.concatenate(parts) if parts else np.empty((0, self._width))
        return points if selection.rows.text is not None else replace(selection, bounds=None).points(points)


# -- curves ----------------------------------------------------------------------------------------------------------

_Variation = tuple[str, float, tuple[float, ...], Config | str]
"""Axis, factor, setting, and the changed configuration or why there is none."""


def _variations(config: Config, plan: RehearsalPlan) -> list[_Variation]:
    """List the configurations along all curves, each with room in its budget."""
    if not plan.curves:
        return []
    roomy, found = _with_room(config), []
    for axis in AXES:
        if axis == "radius" and not any(_radius(options) for options in config.releases):
            continue
        for factor in FACTORS:
            setting = _setting(config, axis, factor)
            try:
                changed: Config | str = _changed(roomy, axis, factor)
            except ConfigError as error:
                changed = str(error)
            found.append((axis, factor, setting, changed))
    return found


def _radius(options: Any) -> float | None:
    """Return the declared radius of an answer that has one which matters."""
    radius = getattr(options, "radius", None)
    return float(radius) if isinstance(radius, (int, float)) and "radius" not in options.without_effect else None


def _setting(config: Config, axis: str, factor: float) -> tuple[float, ...]:
    if axis == "length":
        return (config.job.schedule.length_ms * factor / 1000,)
    if axis == "rho":
        return tuple(options.rho * factor for options in config.releases)
    return tuple((_radius(options) or math.nan) * factor for options in config.releases)


def _changed(config: Config, axis: str, factor: float) -> Config:
    """Return the configuration with one setting multiplied.

    Longer windows hold more records, so the size hint and the largest number of records go with their length.

    Raises
    ------
    ConfigError
    """
    if axis != "length":
        changed = [
            msgspec.structs.replace(options, **{axis: value * factor})
            if (value := options.rho if axis == "rho" else _radius(options)) is not None
            else options
            for options in config.releases
        ]
        return msgspec.structs.replace(config, release=tuple(changed) if len(changed) > 1 else changed[0])
    schedule, window = config.job.schedule, config.window
    if (schedule.length_ms * factor) % 1 or (schedule.slide_ms * factor) % 1:
        raise ConfigError("must be whole milliseconds", "window.length")
    length, slide = round(schedule.length_ms * factor), round(schedule.slide_ms * factor)
    most = window.max_records and max(1, round(window.max_records * factor))
    window = msgspec.structs.replace(
        window,
        length=f"{length}ms",
        slide=None if window.slide is None else f"{slide}ms",
        max_records=most,
        end=_iso(schedule.start_ms + length),
    )
    hints = [
        options if options.size_hint is None
        else msgspec.structs.replace(options, size_hint=max(1, round(options.size_hint * factor)))
        for options in config.releases
    ]  # fmt: skip
    return msgspec.structs.replace(config, window=window, release=tuple(hints) if len(hints) > 1 else hints[0])


def _point(
    factor: float,
    setting: tuple[float, ...],
    changed: Config | str,
    records: Sequence[Batch],
    span: tuple[int, int],
    plan: RehearsalPlan,
    step: Callable[[], object],
) -> CurvePoint:
    """Rehearse one changed configuration on the same records."""
    if not isinstance(changed, str) and span[1] - span[0] < changed.job.schedule.length_ms:
        changed = "the window is longer than all that is rehearsed"
    if isinstance(changed, str):
        for _ in plan.seeds:
            step()
        return CurvePoint(factor, setting, (), changed)
    try:
        return CurvePoint(factor, setting, _runs(_scheduled(changed, span), records, plan.seeds, step).answers())
    except ConfigError as error:  # of savings, for instance, which depend on the number of windows
        return CurvePoint(factor, setting, (), str(error))
