"""Forecast of what a configuration will cost and give, from public numbers alone: no data are read."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import msgspec

from ..accounting.arguments import chance
from ..accounting.losses import RHO_UNIT, PrivacyLoss, epsilon_tight
from ..accounting.strength import WEAK
from ..config import Config, Job, SparkSection
from ..config.answers import named, naming, own_section
from ..config.sections import BudgetSection
from ..engine.exhaustion import budget_windows, exhaustion_warning, limited_windows, scheduled_windows
from ..errors import ConfigError, UnusablePlan
from ..formats.bounds import LONGEST_MESSAGE, max_rows
from ..formats.registry import FORMATS
from ..ledgers.base import TOTAL_BLOCK
from ..ledgers.keeping import Keeping, keeping_of
from ..releases.base import EpochMechanism, Forecast, Mechanism, PlanNotes, percent
from ..releases.means.mean import MeanOptions
from ..releases.means.spread_histogram import supposed_deviation
from ..releases.means.tracking import TrackingOptions, keys_of_a_core
from ..releases.means.zooming import ZoomingMean
from ..releases.options import Options
from ..releases.record_gate import TIMES_HINT, GatedMechanism
from ..releases.registry import method_of
from ..runtime.words import many
from .stream_plan import USUAL_SIZE, KeySearch, StreamPlan, points_of, short

NEVER, RARELY = 0.01, 0.99
DAY_MS = 86_400_000
_MORE_RHO = (1.25, 1.5, 2, 3, 5, 10, 30, 100)
_MAX_DELTA = 1e-4
_RECORDS = re.compile(r"\brecord(?=s?\b)")
MANY = 100_000
"""Number of records per window from which on `plan` measures the fastest way to compare pairs."""


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
    return _plan_of_all(config, delta) if len(config.releases) > 1 else _plan_of_one(config, delta, config)


def _plan_of_one(config: Config, delta: float | None, whole: Config) -> StreamPlan:
    """Forecast one answer, which may be one of several of the `whole` stream."""
    job, (options,) = config.job, config.releases
    hint, mechanism = options.size_hint, job.answers[0].mechanism
    forecast, notes = _usable_forecast(config, job, hint, whole), _notes(job, hint)
    smallest = _smallest_size(mechanism)
    is_told = not notes.chance and (hint is not None or smallest == 1)
    return StreamPlan(
        stream=job.terms.stream,
        kind=mechanism.kind,
        method=method_of(options),
        unit=job.terms.unit,
        size_hint=hint,
        probability=forecast.probability if is_told else None,
        sigma=mechanism.predicted_sigmas(hint or USUAL_SIZE, job.answers[0].grid),
        smallest_size=smallest,
        notes=[*notes.lines, *message_note(config, job), *_split_note(config, job, notes)],
        facts=notes.facts,
        case=notes.case,
        chance=notes.chance,
        keys=len(job.keys) or None,
        keys_per_user=(config.stream.keys_per_user or len(job.keys)) if job.keys else None,
        keys_of_a_person=keys_of_a_person(config),
        keys_chosen=job.keys_chosen,
        search=_search(job),
        group=config.budget.group,
        stopped=notes.stopped,
        false_release=mechanism.false_release,
        warnings=_answer_warnings(config, job, forecast.probability, notes, whole)
        + _stream_warnings(config, job)
        + _limit_warnings(config, job)
        + _pair_advice(job, notes, hint),
        name=options.name,
        **_costs(config, delta),
        **_savings(job, notes.stopped, config.budget.savings, hint),
    )


def _plan_of_all(config: Config, delta: float | None) -> StreamPlan:
    """Forecast a stream with several answers: each by itself, and what all of them cost together."""
    job, parts = config.job, []
    for options, alone in _alone(config):
        with naming(options, config.releases):
            parts.append(_plan_of_one(alone, delta, config))
    general = set(_stream_warnings(config, job))
    warnings = [
        f"answer {part.name!r}: {named(text, options, config.releases)}"
        for part, (options, alone) in zip(parts, _alone(config), strict=True)
        for text in part.warnings
        if text not in _stream_warnings(alone, alone.job)
    ]
    notes = [] if all(len(some) == len(parts) for some in job.answers.together) else [_disjoint_note(job)]
    return replace(
        parts[0],
        kind="",
        method=None,
        notes=notes,
        facts={},
        stopped=None,
        savings=config.budget.savings,
        saved_rho=None,
        saved_sigma=None,
        name=None,
        answers=tuple(parts),
        warnings=[*warnings, *sorted(general)],
        **_costs(config, delta),
    )


def _alone(config: Config) -> Iterator[tuple[Options, Config]]:
    """Yield every answer's options, and the configuration that has this answer only."""
    for options in config.releases:
        window = config.window
        if not options.holds_records and len(config.releases) > 1:
            window = msgspec.structs.replace(window, max_records=None)  # it is about the other answers
        yield options, msgspec.structs.replace(config, release=options, window=window)


def _disjoint_note(job: Job) -> str:
    dearest = max(job.answers.together, key=lambda some: sum(job.answers[i].mechanism.loss.rho_nano for i in some))
    names = ", ".join(repr(job.answers[i].name) for i in dearest)
    return f"no record belongs to all answers: a record pays for the dearest of those that it can belong to, {names}"


def loss_of_presence(job: Job, windows: float) -> tuple[float, float]:
    """Compute what somebody with a record in each of so many windows loses, if no cap stops it: a rho and a delta.

    Such a participant pays more for each window where a record is in later releases, too.
    """
    mechanisms = [answer.mechanism for answer in job.answers]
    further = sum((each.repeated - 1) * each.loss.rho for each in mechanisms if isinstance(each, EpochMechanism))
    search, more = _search(job), 0.0
    if search is not None:
        further += search.loss.rho / search.windows
        more = search.loss.delta / search.windows
    return (job.window_loss.rho + further) * windows, (job.window_loss.delta + more) * windows


def keys_of_a_person(config: Config) -> int:
    """Count the keys under which somebody who is under as many as possible pays in a window, besides what a window's
    loss holds."""
    job = config.job
    if not job.keys or job.keys_chosen is not None:
        return 1
    return len(job.keys) if job.terms.unit == "event" else config.stream.keys_per_user or len(job.keys)


def keeping_of_config(config: Config) -> Keeping:
    """Say how the configured ledger keeps what was spent."""
    return keeping_of(None if config.ledger is None else config.ledger.url)


def _costs(config: Config, delta: float | None) -> dict[str, Any]:
    """What windows cost, how many of them the budget lasts, and that in epsilon at a delta."""
    job, under = config.job, keys_of_a_person(config)
    loss, guarantee, schedule = job.answers.loss, job.terms.guarantee, job.schedule
    at = max(1e-6, 2 * guarantee.delta) if delta is None else chance(delta, "delta")
    per_day, is_event = DAY_MS / schedule.slide_ms, job.terms.unit == "event"
    lasting, ends_with_total = limited_windows(job)

    def epsilon(spent: PrivacyLoss) -> float:
        return epsilon_tight(spent.rho, at - spent.delta)

    def presence(windows: float) -> float:
        rho, spent_delta = loss_of_presence(job, windows * under)
        return epsilon_tight(rho, at - spent_delta)

    return {
        "loss": loss,
        "per_record": loss * (schedule.overlap if is_event else 1) + job.paid_beside,
        "guarantee": guarantee,
        "lasts": keeping_of_config(config).lasts,
        "key_share": job.terms.key_share,
        "windows_per_day": per_day,
        "windows": scheduled_windows(job),
        "epsilon_delta": at,
        "epsilon_guarantee": epsilon(guarantee),
        "epsilon_release": epsilon(loss),
        "epsilon_day": presence(per_day),
        "epsilon_year": presence(per_day * 365),
        "lasting_windows": lasting,
        "ends_with_total": ends_with_total,
        "total": None if job.terms.total is None else job.terms.promised(TOTAL_BLOCK),
        "total_key_share": job.terms.total if job.terms.total != job.terms.promised(TOTAL_BLOCK) else None,
    }


def _search(job: Job) -> KeySearch | None:
    """Forecast the search for keys."""
    if job.finder is None:
        return None
    mechanism, grid = job.finder.job.answers[0].mechanism, job.finder.job.grid
    facts = mechanism.notes(None, grid).facts
    (sigma,) = mechanism.predicted_sigmas(USUAL_SIZE, grid).values()
    return KeySearch(
        job.finder.period_windows,
        mechanism.loss,
        facts["threshold"],
        math.ceil(facts["threshold"] + 2.33 * sigma),
        facts.get("max_values", facts.get("max_records")),
    )


def _savings(job: Job, stopped: PrivacyLoss | None, policy: str, hint: int | None) -> dict[str, Any]:
    """Compute what becomes of the loss of stages that are never started."""
    answers, savings = job.answers, job.spending.savings
    if stopped is None or savings is None or hint is None or savings.queries is None:
        return {}
    left, most = savings.capacity_nano, 0
    for index in range(min(savings.queries, 10_000)):
        offer = job.spending.offer(index, PrivacyLoss(savings.capacity_nano - left), ()).loss.rho_nano
        most = max(most, offer)
        left -= stopped.rho_nano * offer // answers.loss.rho_nano if index % 2 == 0 else offer
    best = job.spending.answers_at(most)[0].mechanism.forecast(hint).sigma
    return {
        "savings": policy,
        "saved_rho": most / RHO_UNIT,
        "saved_sigma": best / answers[0].mechanism.forecast(hint).sigma,
    }


def _pair_advice(job: Job, notes: PlanNotes, hint: int | None) -> list[str]:
    """Advise another choice of pairs if it would be cheaper on this machine; measured, for large windows only."""
    if hint is None or hint < MANY or notes.core is None:
        return []
    from .speeds import cheapest_pairs

    pairs, loss = notes.core
    best = cheapest_pairs(hint, job.answers[0].grid.dimension, loss, tumbling=job.schedule.reach == 1)
    if best.kind == pairs.kind:
        return []
    return [
        f"`release.pairs` = {best.kind!r} would count the friends of {hint} records faster on this machine: in about "
        f"{best.seconds:.2g} s of one core"
    ]


def message_note(config: Config, job: Job) -> list[str]:
    """Say whether the records of a message are protected each by itself, or the message."""
    if config.source is None:
        return []
    row, most = FORMATS[config.source.format], max_rows(len(job.schema.features))
    if config.source.records is not None and not row.isolates_elements:
        return [
            f"an element of `source.records` that cannot be read rejects its whole {config.source.format!r} message, "
            "so what is protected is the message: all its elements together"
        ]
    if config.source.records is not None:
        return [
            "every element of `source.records` is a record and protected by itself; only where one more makes its "
            "message unreadable (brackets or quotation marks of its own that do not match, over "
            f"{LONGEST_MESSAGE} bytes or {most} elements) what is protected is the message"
        ]
    if row.shares_values:
        return [
            f"a record of a {config.source.format!r} message may hold base values of those that follow it, so what is "
            "protected is the message: all its records together"
        ]
    if row.reads_whole:
        return [
            f"a {config.source.format!r} message is read whole: a record that cannot be read takes the others with it, "
            "and which values make a record may depend on the others, so what is protected is the message: all its "
            "records together"
        ]
    if not row.holds_rows:
        return []
    return [
        f"of one {config.source.format!r} message {most} rows are read and later ones rejected: in a longer message a "
        "record more or less decides about another one, so what is protected there is the message"
    ]


def _limit_warnings(config: Config, job: Job) -> list[str]:
    """Warn of what bounds, or does not bound, the records that a window may hold."""
    (options,), mechanism = config.releases, job.answers[0].mechanism
    gate = mechanism.gate if isinstance(mechanism, GatedMechanism) else None
    points = "users" if job.terms.unit == "user" else "records"
    if gate is None:
        if not options.needs_record_gate(job.terms.unit):
            return []
        missing = "`window.max_records`" if options.delta_or_zero else "`release.delta` and `window.max_records`"
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
    found = []
    for options, alone in _alone(config):
        with naming(options, config.releases):
            forecast, notes = (
                _usable_forecast(alone, alone.job, options.size_hint, config),
                _notes(alone.job, options.size_hint),
            )
            texts = _answer_warnings(alone, alone.job, forecast.probability, notes, config)
        texts = [named(text, options, config.releases) for text in texts]
        found += texts if len(config.releases) == 1 else [f"answer {options.name!r}: {text}" for text in texts]
    return found + _stream_warnings(config, config.job, planned=False)


def _usable_forecast(config: Config, job: Job, hint: int | None, whole: Config) -> Forecast:
    mechanism = job.answers[0].mechanism
    forecast = mechanism.forecast(hint or USUAL_SIZE)
    if hint is not None and forecast.probability < NEVER:
        raise UnusablePlan(
            f"a window of {hint} {points_of(job.terms.unit)}{_notes(job, hint).case} would release "
            f"with probability {percent(forecast.probability)} at {mechanism.loss}",
            "release",
            remedy=_remedies(config, job, whole),
        )
    return forecast


def _notes(job: Job, hint: int | None) -> PlanNotes:
    """Return the mechanism's notes, and before them why its method was taken.

    They are about users where users are counted, because the mechanism calls all points records.
    """
    answer = job.answers[0]
    notes = answer.mechanism.notes(hint, answer.grid)
    if answer.why:
        notes = replace(notes, lines=(answer.why, *notes.lines))
    if job.terms.unit != "user":
        return notes
    lines, warnings = ([_RECORDS.sub("user", text) for text in texts] for texts in (notes.lines, notes.warnings))
    return replace(notes, lines=tuple(lines), warnings=tuple(warnings), case=_RECORDS.sub("user", notes.case))


def _remedies(config: Config, job: Job, whole: Config) -> str:
    """List changes that would make windows of the size hint release; each is tried, and those that do not help are left
    out.
    """
    (options,) = config.releases
    smallest, hint = _smallest_size(job.answers[0].mechanism), options.size_hint
    own = own_section(options, whole.releases)
    found = []
    if smallest is not None and hint is not None and smallest > hint:
        found.append(f"use longer windows, of {smallest} {points_of(job.terms.unit)} (and set `size_hint` to that)")
    rho = next((x for x in (options.rho * f for f in _MORE_RHO) if _releases(config, rho=x)), None)
    if rho is not None:
        found.append(f"raise `{own}.rho` to {rho:g}, and `budget.rho` {_in_proportion(whole, options, rho=rho)}")
    delta, most = options.delta_or_zero, min(_MAX_DELTA, 1e-3 / (hint or 1))
    more = next((x for x in (delta * 10**n for n in range(1, 7)) if 0 < x <= most and _releases(config, delta=x)), None)
    if more is not None:
        found.append(
            f"raise `{own}.delta` to {more:g}, and `budget.delta` {_in_proportion(whole, options, delta=more)}"
        )
    found += _without_core(config, own) + _in_a_ball(config, own)
    return ", or ".join(found) or "no longer windows and no larger budget would help"


def _in_a_ball(config: Config, own: str) -> list[str]:
    """Name the mean in a public ball that holds the public ranges: it needs no core."""
    (options,) = config.releases
    if options.kind != "mean" or method_of(options) == "ball":
        return []
    grid = config.job.grid
    ends = [each.scaled_range for each in grid.features]
    if not all(math.isfinite(high - low) for low, high in ends):
        return []
    center = [
        each.origin + each.scale * (low + high) / 2 for each, (low, high) in zip(grid.features, ends, strict=True)
    ]
    radius = math.hypot(*((high - low) / 2 for low, high in ends))
    kept = {own.name: getattr(options, own.name) for own in msgspec.structs.fields(Options)}
    try:
        ball = MeanOptions(**kept, method="ball", center=center, radius=radius)
        window = msgspec.structs.replace(config.window, max_records=None)
        job = msgspec.structs.replace(config, release=ball, window=window).job
    except ConfigError:  # for instance, a ball so wide that its noise cannot be drawn
        return []
    hint, mechanism = options.size_hint or USUAL_SIZE, job.answers[0].mechanism
    probability = mechanism.forecast(hint).probability
    if probability < RARELY:
        return []
    told = ", ".join(f"{name} {short(sigma)}" for name, sigma in mechanism.predicted_sigmas(hint, grid).items())
    listed = ", ".join(f"{value:g}" for value in center)
    return [
        f"use `{own}.method` = 'ball' with a public ball, such as `center` = [{listed}] and `radius` = {radius:.6g}, "
        f"which hold the public ranges: {hint} {points_of(job.terms.unit)} release with probability "
        f"{percent(probability)}, with a noise of {told}"
    ]


def _without_core(config: Config, own: str) -> list[str]:
    """Name the mean that starts from the public ranges, if windows are too few for a core and not for it.

    Its error is told for records that lie as far apart as the configuration's radius says.
    """
    (options,) = config.releases
    if not isinstance(options, MeanOptions) or options.method == "ball" or options.radius is None:
        return []
    hint, known = options.size_hint or USUAL_SIZE, {own.name for own in msgspec.structs.fields(Options)}
    kept = {name: getattr(options, name) for name in (*known, "delta")}
    try:
        job = msgspec.structs.replace(config, release=TrackingOptions(**kept)).job
        mechanism, grid = job.answers[0].mechanism, job.answers[0].grid
        probability = mechanism.forecast(hint).probability
    except ConfigError:  # for instance, its ranges are too wide
        return []
    if probability < RARELY:
        return []
    inner = cast("ZoomingMean", mechanism.inner if isinstance(mechanism, GatedMechanism) else mechanism)
    if isinstance(options.spread, (int, float)):
        deviation = options.spread / math.sqrt(grid.dimension)
    elif isinstance(options.radius, (int, float)):
        deviation = supposed_deviation(options.radius, grid.dimension)
    else:
        deviation = math.nan
    width = math.hypot(*inner.settled(hint)) * deviation
    told = ", ".join(f"{feature.name} {feature.scale * width:.3g}" for feature in grid.features)
    error = f"{inner.error_of_reach(hint):.3g} of the distance within which nine of ten records lie"
    if math.isfinite(width):
        error = f"{told} if records lie as far apart as is now supposed"
    without = ["radius", *keys_of_a_core(options)]
    out = " and ".join(f"`{name}`" for name in without)
    return [
        f"use `{own}.method` = 'tracking' without {out}: each window starts from the release before and finds "
        f"no core, so {hint} {points_of(job.terms.unit)} release with probability "
        f"{percent(probability)}, from about the tenth window on with an error of {error}"
    ]


def _in_proportion(whole: Config, options: Options, **change: float) -> str:
    """Return what a budget must become with a larger rho or delta of one of its answers, so that it lasts for as many
    windows, which all of its answers pay for."""
    job, (key,) = whole.job, change
    if job.terms.unit == "event":
        return "with it"
    dear = tuple(msgspec.structs.replace(each, **change) if each == options else each for each in whole.releases)
    lasting = budget_windows(job, job.terms.capacity)
    paid = msgspec.structs.replace(whole, release=dear if len(dear) > 1 else dear[0], budget=_room(whole)).job
    first, then = ((each.window_loss.rho, each.window_loss.delta)[key == "delta"] for each in (job, paid))
    now = float(getattr(whole.budget, key))
    return f"to {now * then / first:.6g}, to last for {many(lasting, 'window')} as now"


def _room(config: Config) -> BudgetSection:
    """Return a budget that holds whatever a window may cost."""
    return msgspec.structs.replace(config.budget, rho=1e6, delta=0.5, total_rho=None, total_delta=None, savings="none")


def _releases(config: Config, **changes: float) -> bool:
    """Return whether windows of the size hint would release with these options, and a budget that holds them."""
    try:
        (options,) = config.releases
        changed = msgspec.structs.replace(options, **changes)
        job = msgspec.structs.replace(config, release=changed, budget=_room(config)).job
        return job.answers[0].mechanism.forecast(options.size_hint or USUAL_SIZE).probability >= RARELY
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


def _answer_warnings(config: Config, job: Job, probability: float, notes: PlanNotes, whole: Config) -> list[str]:
    warnings, hint = [], config.releases[0].size_hint
    if hint is not None and probability < RARELY:
        warnings.append(
            f"a window of {hint} {points_of(job.terms.unit)}{notes.case} releases with probability "
            f"{percent(probability)} only: {_remedies(config, job, whole)}"
        )
    return [*warnings, *notes.warnings]


def _stream_warnings(config: Config, job: Job, planned: bool = True) -> list[str]:
    warnings = []
    at = max(1e-6, 2 * job.terms.guarantee.delta)
    if at < 1 and (epsilon := job.terms.guarantee.epsilon(at)) > WEAK.most:
        warnings.append(
            f"`budget.rho` = {job.terms.guarantee.rho:g} protects weakly: epsilon {short(epsilon)} at delta {at:g}"
        )
    if job.terms.guarantee.delta > 1e-4:
        warnings.append(
            f"`budget.delta` = {job.terms.guarantee.delta:g} is large: below 1 / (number of people) is usual"
        )
    if keeping_of_config(config).forgets:
        warnings.append(
            "`ledger.url` = 'memory:' knows what was spent in this process only: the next one spends the whole "
            "budget on the same records again, and nothing adds that up; name a ledger that is kept, such as "
            "'sqlite:ledger.db'"
        )
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
