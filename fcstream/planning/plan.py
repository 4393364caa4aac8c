"""Forecast of what a configuration will cost and give, from public numbers alone: no data are read."""

from __future__ import annotations

import math
import re
import time
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import msgspec

from ..accounting.losses import RHO_UNIT, PrivacyLoss, epsilon_tight
from ..config import Config, Job, SparkSection
from ..engine.exhaustion import exhaustion_warning, lasting_windows, scheduled_windows
from ..errors import ConfigError, UnusablePlan
from ..formats.payloads import most_rows
from ..releases.base import Forecast, Mechanism, PlanNotes, percent
from ..releases.record_gate import TIMES_HINT
from ..releases.registry import method_of
from ..runtime.words import many

NEVER, RARELY = 0.01, 0.99
DAY_MS = 86_400_000
USUAL_SIZE = 1000
"""Number of records of a window for which noise is reported if there is no `size_hint`."""
_MORE_RHO = (1.25, 1.5, 2, 3, 5, 10, 30, 100)
_MAX_DELTA = 1e-4
_RECORDS = re.compile(r"\brecord(?=s?\b)")
MANY = 100_000
"""Number of records per window from which on `plan` measures the fastest way to compare pairs."""


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """Forecast of one configuration. `lines` formats it for people, `as_dict` for programs.

    Attributes
    ----------
    probability : float or None
        Chance that a window of `size_hint` records that are all friends releases a value. None where `size_hint` is
        missing and not every window releases, or where it depends on the data: see `chance`.
    sigma : dict
        Expected noise deviations by name: of a mean per coordinate, in the features' own (transformed) units.
    smallest_size : int or None
        Smallest `size_hint` whose windows release with 99%; None if no size up to 2**40 does.
    stopped : PrivacyLoss or None
        What a window costs that stops at its noisy size; the rest is refunded.
    savings : str
        How refunds of earlier windows are offered to later ones.
    saved_rho, saved_sigma : float or None
        If every other window stops at its size: the largest rho offered to one, and its noise relative to the first's.
    total : PrivacyLoss or None
        Capacity for the sum of all windows, if there is one.
    keys, keys_per_user : int or None
        For a stream with keys; the plan is about one of them.
    keys_chosen : int or None
        Under how many keys of a window a user counts, where users have one filter for all keys.
    group : str or None
        The group whose streams share the budget.
    notes, facts : list of str, dict
        What the kind of release adds, for people and for programs.
    false_release : float or None
        Largest probability that a window without records releases a value; None where every window releases one.
    case : str
        The kind of records for which `probability` and `smallest_size` hold.
    chance : str
        What decides whether windows release, where no probability can be given.
    """

    stream: str
    kind: str
    method: str | None
    unit: str
    size_hint: int | None
    probability: float | None
    sigma: dict[str, float]
    smallest_size: int | None
    loss: PrivacyLoss
    per_record: PrivacyLoss
    capacity: PrivacyLoss
    windows_per_day: float
    windows: int | None
    epsilon_delta: float
    epsilon_guarantee: float
    epsilon_release: float
    epsilon_day: float
    epsilon_year: float
    lasting_windows: int | None
    stopped: PrivacyLoss | None = None
    savings: str = "none"
    saved_rho: float | None = None
    saved_sigma: float | None = None
    total: PrivacyLoss | None = None
    notes: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    case: str = ""
    chance: str = ""
    keys: int | None = None
    keys_per_user: int | None = None
    keys_chosen: int | None = None
    group: str | None = None
    warnings: list[str] = field(default_factory=list)
    false_release: float | None = None

    def as_dict(self) -> dict[str, Any]:
        values = asdict(self)
        values |= values.pop("facts")
        values.pop("case")
        values.pop("chance")
        if self.keys is None:
            del values["keys"], values["keys_per_user"]
        for name in ("group", "keys_chosen"):
            if values[name] is None:
                del values[name]
        for name in ("loss", "per_record", "capacity", "stopped", "total"):
            loss = getattr(self, name)
            values[name] = None if loss is None else loss.as_dict()
        return {k: (None if isinstance(v, float) and not math.isfinite(v) else v) for k, v in values.items()}

    def lines(self) -> list[str]:
        """Format the plan for people."""
        what = f"{self.kind} ({self.method})" if self.method else self.kind
        points = points_of(self.unit)
        lines = [
            f"stream {self.stream!r}: {what} per window, unit {self.unit!r}",
            *self._key_lines(),
            *self._release_lines(),
        ]
        lines += self.notes
        if self.smallest_size != 1:
            smallest = "no size" if self.smallest_size is None else f"{self.smallest_size} {points}{self.case}"
            lines.append(f"smallest usable window (99%, with `size_hint` set to it): {smallest}")
        lines.append(self._empty_line())
        delta = f"{self.epsilon_delta:g}"
        lines += [
            f"one release costs {self.loss}, epsilon {_short(self.epsilon_release)} at delta {delta}",
            *self._saving_lines(),
            *self._cost_lines(),
            f"guarantee for ever: {self.capacity}, epsilon {_short(self.epsilon_guarantee)} at delta {delta}",
        ]
        if self.total is not None:
            lines.append(f"and the sum of all windows stays within {self.total}")
        if self.group is not None:
            lines.append(
                f"that is one budget for all streams of group {self.group!r} in the ledger: what the others spend is "
                "missing here"
            )
        return lines + [f"warning: {text}" for text in self.warnings]

    def _empty_line(self) -> str:
        points = points_of(self.unit)
        if self.false_release is None:
            return f"a window without {points} is released like any other"
        if self.false_release == 0:
            return f"a window without {points} never releases a value"
        return f"a window without {points} releases a value with probability {self.false_release:.1e} at most"

    def _release_lines(self) -> list[str]:
        """Describe how often windows release, as far as public numbers show, and with how much noise."""
        points = points_of(self.unit)
        at = f" of {self.size_hint} {points}" if self.size_hint else ""
        noise = ", ".join(f"{name} {_noise(value)}" for name, value in self.sigma.items())
        noise = f"noise (standard deviation){'' if self.size_hint else f' at {USUAL_SIZE} {points}'}: {noise}"
        if self.chance:
            return [f"a window{at} releases {self.chance}", noise]
        if self.probability is None:
            return [f"how often windows release is not known without `size_hint`; {noise}"]
        return [f"a window{at} releases with probability {percent(self.probability)}; {noise}"]

    def _key_lines(self) -> list[str]:
        if self.keys is None:
            return []
        lines = [f"{self.keys} keys, each released by itself: everything below is about one of them"]
        if self.keys_chosen is not None:
            lines.append(
                f"a user counts under at most {self.keys_chosen} of them in a window, and every window costs each of "
                f"its users {self.loss * self.keys_chosen}"
            )
        elif self.group is not None:
            lines.append("all of them share `budget`: a user under several keys spends it the faster")
        elif self.unit != "event":
            whom = "user" if self.unit == "user" else "protected set of records"
            lines.append(
                f"each has `budget` divided by {self.keys_per_user}: a {whom} may lie under so many keys, and no more"
            )
        return lines

    def _saving_lines(self) -> list[str]:
        lines = []
        if self.stopped is not None:
            lines.append(f"a window that its noisy size shows to be too small costs {self.stopped}; the rest goes back")
        if self.saved_rho is not None and self.saved_sigma is not None:
            lines.append(
                f"savings ({self.savings}): if every other window is too small, others may spend up to rho "
                f"{_short(self.saved_rho)}, with {_short(self.saved_sigma)} of the noise"
            )
        return lines

    def _cost_lines(self) -> list[str]:
        day, year = self.windows_per_day, self.windows_per_day * 365
        daily = f"{day:g} window{'' if day == 1 else 's'} a day, epsilon {_short(self.epsilon_day)}; {year:g} a year"
        if self.unit == "event":
            return [
                f"one record costs at most {self.per_record} of its budget, however long the stream runs",
                f"a participant with a record in every window: {daily}, epsilon {_short(self.epsilon_year)} "
                "(the unit 'event' does not cap that)",
            ]
        lasting = self.lasting_windows or 0
        whose = "the stream's budget" if self.unit == "stream" else "the budget of a user present in every window"
        return [
            f"{whose} lasts {many(lasting, 'window')} ({_short(lasting / day)} days)",
            f"without that cap: {daily}, epsilon {_short(self.epsilon_year)}",
        ]


def plan(config: Config, delta: float | None = None) -> StreamPlan:
    """Forecast a configuration.

    Parameters
    ----------
    config : Config
    delta : float, optional
        The delta at which epsilons are reported; by default 1e-6 or twice the budget's delta, whichever is larger.

    Raises
    ------
    UnusablePlan
        A window of `size_hint` records that are all friends would release with a probability below 1%.

    Privacy
    -------
    Reads public numbers only, so it costs nothing.

    Source
    ------
    Specification 1.2, 12.1; proof 1.8; forecasts of the mechanisms.
    """
    job, hint = config.job, config.release.size_hint
    mechanism = job.mechanism
    forecast, notes = _usable_forecast(config, job, hint), _notes(job, hint)
    smallest = _smallest_size(mechanism)
    is_told = not notes.chance and (hint is not None or smallest == 1)
    return StreamPlan(
        stream=job.terms.stream,
        kind=mechanism.kind,
        method=method_of(config.release),
        unit=job.terms.unit,
        size_hint=hint,
        probability=forecast.probability if is_told else None,
        sigma=mechanism.predicted_sigmas(hint or USUAL_SIZE, job.grid),
        smallest_size=smallest,
        notes=[*notes.lines, *_message_note(config, job), *_split_note(config, job, notes)],
        facts=notes.facts,
        case=notes.case,
        chance=notes.chance,
        keys=len(job.keys) or None,
        keys_per_user=(config.stream.keys_per_user or len(job.keys)) if job.keys else None,
        keys_chosen=job.keys_chosen,
        group=config.budget.group,
        stopped=notes.stopped,
        false_release=mechanism.false_release,
        warnings=_warnings(config, job, forecast.probability, notes)
        + _limit_warnings(config, job)
        + _pair_advice(job, notes, hint),
        **_costs(job, delta),
        **_savings(job, notes.stopped, config.budget.savings, hint),
    )


def _costs(job: Job, delta: float | None) -> dict[str, Any]:
    """What windows cost, how many of them the budget lasts, and that in epsilon at a delta."""
    loss, capacity, schedule = job.mechanism.loss, job.terms.capacity, job.schedule
    at = max(1e-6, 2 * capacity.delta) if delta is None else delta
    per_day, is_event = DAY_MS / schedule.slide_ms, job.terms.unit == "event"

    def epsilon(spent: PrivacyLoss, times: float = 1) -> float:
        return epsilon_tight(spent.rho * times, at - spent.delta * times)

    return {
        "loss": loss,
        "per_record": loss * (schedule.overlap if is_event else 1),
        "capacity": capacity,
        "windows_per_day": per_day,
        "windows": scheduled_windows(job),
        "epsilon_delta": at,
        "epsilon_guarantee": epsilon(capacity),
        "epsilon_release": epsilon(loss),
        "epsilon_day": epsilon(job.window_loss, per_day),
        "epsilon_year": epsilon(job.window_loss, per_day * 365),
        "lasting_windows": None if is_event else lasting_windows(job.window_loss, capacity),
        "total": job.terms.total,
    }


def _savings(job: Job, stopped: PrivacyLoss | None, policy: str, hint: int | None) -> dict[str, Any]:
    """Compute what becomes of the loss of stages that are never started."""
    mechanism, savings = job.mechanism, job.spending.savings
    if stopped is None or savings is None or hint is None or savings.queries is None:
        return {}
    left, most = savings.capacity_nano, 0
    for index in range(min(savings.queries, 10_000)):
        offer = job.spending.offer(index, PrivacyLoss(savings.capacity_nano - left), None).loss.rho_nano
        most = max(most, offer)
        left -= stopped.rho_nano * offer // mechanism.loss.rho_nano if index % 2 == 0 else offer
    best = job.spending.mechanism_at(most, None).forecast(hint).sigma
    return {
        "savings": policy,
        "saved_rho": most / RHO_UNIT,
        "saved_sigma": best / job.mechanism.forecast(hint).sigma,
    }


def _pair_advice(job: Job, notes: PlanNotes, hint: int | None) -> list[str]:
    """Advise another choice of pairs if it would be cheaper on this machine; measured, for large windows only."""
    if hint is None or hint < MANY or notes.core is None:
        return []
    from .speeds import cheapest_pairs

    pairs, loss = notes.core
    best = cheapest_pairs(hint, job.grid.dimension, loss, tumbling=job.schedule.reach == 1)
    if best.kind == pairs.kind:
        return []
    return [
        f"`release.pairs` = {best.kind!r} would count the friends of {hint} records faster on this machine: in about "
        f"{best.seconds:.2g} s of one core"
    ]


def _message_note(config: Config, job: Job) -> list[str]:
    """Return the length of a message up to which its rows are protected each by itself."""
    if config.source is None or config.source.format not in ("floats", "arrow"):
        return []
    most = most_rows(job.grid.dimension)
    return [
        f"of one {config.source.format!r} message {most} rows are read and later ones rejected: in a longer message a "
        "record more or less decides about another one, so what is protected there is the message"
    ]


def _limit_warnings(config: Config, job: Job) -> list[str]:
    """Warn of what bounds, or does not bound, the records that a window may hold."""
    gate, points = job.gate, "users" if job.terms.unit == "user" else "records"
    if gate is None:
        if not config.release.holds_records:
            return []
        missing = "`window.max_records`" if config.release.delta_or_zero else "`release.delta` and `window.max_records`"
        return [
            f"nothing bounds the {points} that a window holds, and so the memory: give {missing} to refuse windows of "
            "more"
        ]
    if config.window.max_records is not None:
        return []
    return [
        f"`window.max_records` is not given: windows of more than {gate.max_records} {points}, {TIMES_HINT} times "
        "`release.size_hint`, are refused; say how many there may be"
    ]


def _split_note(config: Config, job: Job, notes: PlanNotes) -> list[str]:
    """Find the size from which on it pays to deal one window's pairs to many tasks; measured, for configurations with
    Spark.
    """
    if config.spark == SparkSection() or notes.core is None or notes.core[0].kind != "exact":
        return []
    from .speeds import split_from

    cores = config.spark.partitions or 8
    least = split_from(job.grid.dimension, cores)
    where = f"with {cores} cores of Spark" + ("" if config.spark.partitions else " (give `spark.partitions`)")
    if least is None:
        return [f"{where} no window's pairs are dealt to several tasks: they are too few"]
    return [f"{where} the pairs of a window of {least} records or more are counted sooner by several tasks than by one"]


def quick_warnings(config: Config) -> list[str]:
    """Return the warnings of `plan` that are quick to compute, for a run.

    Raises
    ------
    UnusablePlan
        Windows of `size_hint` records would hardly ever release a value, and only spend.
    """
    job, hint = config.job, config.release.size_hint
    forecast = _usable_forecast(config, job, hint)
    return _warnings(config, job, forecast.probability, _notes(job, hint), planned=False)


def _usable_forecast(config: Config, job: Job, hint: int | None) -> Forecast:
    mechanism = job.mechanism
    forecast = mechanism.forecast(hint or USUAL_SIZE)
    if hint is not None and forecast.probability < NEVER:
        raise UnusablePlan(
            f"a window of {hint} {points_of(job.terms.unit)}{_notes(job, hint).case} would release with probability "
            f"{percent(forecast.probability)} at {mechanism.loss}: {_remedies(config, job)}",
            "release",
        )
    return forecast


def _notes(job: Job, hint: int | None) -> PlanNotes:
    """Return the mechanism's notes, about users where users are counted, because the mechanism calls all points
    records.
    """
    notes = job.mechanism.notes(hint, job.grid)
    if job.terms.unit != "user":
        return notes
    lines, warnings = ([_RECORDS.sub("user", text) for text in texts] for texts in (notes.lines, notes.warnings))
    return replace(notes, lines=tuple(lines), warnings=tuple(warnings), case=_RECORDS.sub("user", notes.case))


def points_of(unit: str) -> str:
    """Return what a window counts: records or users."""
    return "users" if unit == "user" else "records"


def _remedies(config: Config, job: Job) -> str:
    """List changes that would make windows of the size hint release; each is tried, and those that do not help are left
    out.
    """
    smallest, hint = _smallest_size(job.mechanism), config.release.size_hint
    found = []
    if smallest is not None and hint is not None and smallest > hint:
        found.append(f"use longer windows, of {smallest} {points_of(job.terms.unit)} (and set `size_hint` to that)")
    rho = next((x for x in (config.release.rho * f for f in _MORE_RHO) if _releases(config, rho=x)), None)
    if rho is not None:
        found.append(f"raise `release.rho` to {rho:g}, and `budget.rho` {_in_proportion(config, job, rho)}")
    delta, most = config.release.delta_or_zero, min(_MAX_DELTA, 1e-3 / (hint or 1))
    more = next((x for x in (delta * 10**n for n in range(1, 7)) if 0 < x <= most and _releases(config, delta=x)), None)
    if more is not None:
        found.append(f"raise `release.delta` to {more:g}, and `budget.delta` with it")
    return ", or ".join(found) or "no longer windows and no larger budget would help"


def _in_proportion(config: Config, job: Job, rho: float) -> str:
    """Return what a budget must become with a larger rho of a release, so that it lasts for as many windows."""
    if job.terms.unit == "event":
        return "with it"
    lasting = lasting_windows(job.mechanism.loss, job.terms.capacity)
    return f"to {config.budget.rho * rho / config.release.rho:g}, to last for {many(lasting, 'window')} as now"


def _releases(config: Config, **changes: float) -> bool:
    """Return whether windows of the size hint would release with these options, and a budget that holds them."""
    room = msgspec.structs.replace(config.budget, rho=1e6, delta=0.5, total_rho=None, total_delta=None, savings="none")
    try:
        changed = msgspec.structs.replace(config.release, **changes)
        job = msgspec.structs.replace(config, release=changed, budget=room).job
        return job.mechanism.forecast(config.release.size_hint or USUAL_SIZE).probability >= RARELY
    except ConfigError:
        return False


def _smallest_size(mechanism: Mechanism) -> int | None:
    """Find the smallest n whose windows release with 99%, if n is also the size hint by which the budget is divided."""

    def usable(n: int) -> bool:
        try:
            return mechanism.with_size_hint(n).forecast(n).probability >= RARELY
        except ConfigError:  # for instance, sampled pairs of so few records find no core
            return False

    high = 1
    while not usable(high):
        high *= 2
        if high > 2**40:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if usable(middle) else (middle, high)
    return high


def _warnings(config: Config, job: Job, probability: float, notes: PlanNotes, planned: bool = True) -> list[str]:
    warnings, hint = [], config.release.size_hint
    if hint is not None and probability < RARELY:
        warnings.append(
            f"a window of {hint} {points_of(job.terms.unit)}{notes.case} releases with probability "
            f"{percent(probability)} only: {_remedies(config, job)}"
        )
    if job.terms.capacity.rho > 5:
        warnings.append(f"`budget.rho` = {job.terms.capacity.rho:g} protects weakly")
    if job.terms.capacity.delta > 1e-4:
        warnings.append(
            f"`budget.delta` = {job.terms.capacity.delta:g} is large: below 1 / (number of people) is usual"
        )
    warnings += notes.warnings
    if exhaustion := exhaustion_warning(job, planned):
        warnings.append(exhaustion)
    schedule = job.schedule
    now = time.time_ns() // 1_000_000
    if job.clock == "eof" and schedule.end_ms is not None and schedule.end_ms > now:
        warnings.append(
            "`window.end` lies in the future: a run answers its windows for ever, before their records come"
        )
    count = scheduled_windows(job, now)
    if (count or 0) > 10**6:
        warnings.append(f"the schedule has {count} windows: is `window.end` right?")
    if schedule.end_ms is not None and schedule.count is not None:
        rest = schedule.end_ms - schedule.window(schedule.count - 1).close_ms
        if rest:
            warnings.append(f"the last {rest} ms before `window.end` lie in no window: records there are rejected")
    return warnings


def _noise(value: float) -> str:
    return "that only the data tell" if math.isnan(value) else _short(value)


def _short(value: float) -> str:
    return "unbounded (delta is used up)" if math.isinf(value) else f"{value:.3g}"
