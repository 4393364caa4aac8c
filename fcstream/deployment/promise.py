"""The sections that say what is released, who is protected, and how strongly."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from ..accounting.strength import STRONG
from ..config.durations import NOW
from ..connectors.urls import mask
from ..planning.plan import message_note
from ..planning.stream_plan import StreamPlan, points_of
from ..releases.descriptions import kind_description
from ..releases.options import Options
from ..runtime.words import many
from .document import Block, Bullets, DocumentSection, Drawing, FactTable, HazardAnswer, Paragraph, code, spell
from .facts import DeploymentFacts, LossLine

UNITS = {
    "event": (
        "one record",
        "The guarantee is about a single record, known by its position in the source. It is not about a person: "
        "somebody with many records is protected in each of them, and not as a whole.",
    ),
    "user": (
        "one user",
        "The guarantee is about everything that one user ever sends, however much and however long. A user is what "
        "the field {user} says: somebody with two names there counts as two users, with two budgets.",
    ),
    "stream": (
        "any set of records with at most one in each window",
        "The guarantee is about somebody with at most one record in each window, for as long as the stream runs. "
        "Somebody with several records in one window is not covered as a whole.",
    ),
}


_ONE = {"event": "a certain record", "user": "a certain user", "stream": "records of somebody, one in each window"}


def number(value: float) -> str:
    """Format a number for people; an epsilon without end in words."""
    if math.isinf(value):
        return "none (delta is used up)"
    if value >= 1e5:
        return f"{value:.2g}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def belief(epsilon: float, before: float = 0.5) -> float:
    """Compute how sure of a membership somebody can become, at most, who held it for probable with `before`."""
    against = (1 - before) / before
    return 1 / (1 + against * math.exp(-epsilon)) if epsilon < 700 else 1.0


def chance(delta: float) -> str:
    """Say a small probability in words: ``one in 1,000,000``."""
    many_times = 1 / delta
    return f"one in {many_times:,.0f}" if many_times >= 10 else f"{100 * delta:.3g}%"


def sure(share: float) -> str:
    """Format a probability for people; never as certainty."""
    return "over 99.9%" if share > 0.999 else f"{100 * share:.3g}%"


def plans_of(facts: DeploymentFacts) -> list[tuple[Options, StreamPlan]]:
    """Pair each answer's options with its plan."""
    parts = facts.plan.answers or (facts.plan,)
    return list(zip(facts.config.releases, parts, strict=True))


def name_of(options: Options) -> str:
    """Return what an answer is called."""
    return "the release" if options.name is None else f"the answer {code(options.name)}"


def kind_of(options: Options, plan: StreamPlan) -> str:
    """Return kind and method as they are configured."""
    return code(plan.kind) + (f", method {code(plan.method)}" if plan.method else "")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def what_of(options: Options, unit: str) -> str:
    """Say what an answer publishes about a window; with the unit ``user`` it counts users."""
    found = kind_description(options)
    if found is None:
        return "what another package declares"
    return re.sub(r"\b(numbers? of) records\b", r"\1 users", found.what) if unit == "user" else found.what


# -- in short ----------------------------------------------------------------------------------------------------------


def summary(facts: DeploymentFacts, questions: Sequence[HazardAnswer]) -> DocumentSection:
    """The report in a few sentences."""
    unit, strong = UNITS[facts.unit][0], facts.epsilon
    delta = facts.deltas[1]
    parts = [what_of(options, facts.unit) for options in facts.config.releases]
    listed = parts[0] if len(parts) == 1 else "; ".join(dict.fromkeys(parts))
    every, length = spell(facts.job.schedule.slide_ms), spell(facts.job.schedule.length_ms)
    used_up = None if facts.ledger is None else facts.ledger.used_up
    blocks: list[Block] = [
        *([] if used_up is None else [Paragraph(used_up, strong=True)]),
        Paragraph(
            f"A window of {_one(length)} begins every {every}. A program publishes about its records: {listed}. Random "
            f"noise is in that. It limits what anybody can learn from it about {_ONE[facts.unit]}: how much, is what "
            "this report says."
        ),
        Paragraph(
            f"Protected is {unit}. All that {_publisher(facts)} publishes, together, is bounded by rho = "
            f"{facts.guarantee.rho:g} and delta = {facts.guarantee.delta:g}. Told as an epsilon, which may fail with "
            f"a chance of delta = {delta:g}, that is epsilon = {number(strong)}. Say, somebody holds it for a coin "
            f"toss (50%) whether {unit} is in the data. When they have seen all of it, they can at most be "
            f"{sure(belief(strong))} sure, apart from a chance of {chance(delta)}. At 50% nothing would have been "
            "learned; near 100% nothing would be protected.",
            strong=True,
        ),
        *([Paragraph(_of_one_process(facts), strong=True)] if facts.keeping.forgets else []),
        Paragraph(_person(facts)),
        Paragraph(_count(questions)),
        _losses(facts),
    ]
    return DocumentSection("summary", "In short", tuple(blocks))


def _person(facts: DeploymentFacts) -> str:
    one_day, one_year = facts.line("a day"), facts.line("a year")
    who = one_day.situation.removesuffix(", in a day")
    who += "," if "," in who else ""
    text = f"What one person can lose: {who} loses {lost(one_day)} in a day, and {lost(one_year)} in a year (delta = "
    text += f"{facts.deltas[1]:g})."
    if one_year.cap is None:
        text += " No budget caps that, because the guarantee is about records and not about people"
        if facts.plan.windows is None:
            return f"{text}."
        by_then = "".join(f": {lost(line)} by then" for line in facts.lines if line.name == "all windows")
        return f"{text}; the schedule ends it, after {many(facts.plan.windows, 'window')}{by_then}."
    if one_year.cap[1] <= one_year.epsilons[1]:
        text += f" There the guarantee stops it, {facts.keeping.lasts}."
    else:
        text += f" The guarantee stops it at epsilon {number(one_year.cap[1])}, {facts.keeping.lasts}."
    for line in facts.lines:
        if line.name == "all windows" and line.bounds[1] < one_year.bounds[1]:
            text += f" The schedule ends sooner, after {many(facts.plan.windows or 0, 'window')}: {lost(line)} by then."
    return text


def _publisher(facts: DeploymentFacts) -> str:
    return "one process" if facts.keeping.forgets else "the program ever"


def _of_one_process(facts: DeploymentFacts) -> str:
    return (
        "The ledger is in memory. What was spent is known in this process only: whoever starts the program again, or "
        "twice, spends the whole budget once more on the same records, and the losses add up without a limit."
    )


def lost(line: LossLine) -> str:
    """Say an epsilon at the middle delta; a rho where no epsilon is left at that delta."""
    epsilon = line.bounds[1]
    if math.isinf(epsilon):
        return f"rho = {number(line.rho)} (too much for any epsilon at that delta)"
    return f"at most epsilon {number(epsilon)}"


def _count(questions: Sequence[HazardAnswer]) -> str:
    found = Counter(each.level for each in questions)
    text = (
        f"NIST Special Publication 800-226 names hazards. Of the {len(questions)} answered below, avoided are "
        f"{found['met']}, in need of attention {found['attention']}, not avoided {found['bad']}, for the operator to "
        f"answer {found['open']} (no configuration holds the answer), and {found['none']} do not arise."
    )
    bad = "; ".join(each.title[:1].lower() + each.title[1:] for each in questions if each.level == "bad")
    return f"{text} Not avoided: {bad}." if bad else text


def _losses(facts: DeploymentFacts) -> Drawing:
    delta = facts.deltas[1]
    shown = [line for line in facts.lines if line.name]
    values = tuple((line.name, line.bounds[1]) for line in shown)
    told = "; ".join(f"{line.name}: {number(line.bounds[1])}" for line in shown)
    return Drawing(
        "losses",
        values,
        f"Bars of epsilon at delta {delta:g}, on a scale of powers of ten. {told}.",
        f"What is lost at most, as epsilon at delta = {delta:g}. A day and a year are those of {_who(facts)}. The "
        f"shaded part up to {STRONG.most:g} is {STRONG.word}.",
    )


def _who(facts: DeploymentFacts) -> str:
    return facts.line("a day").situation.removesuffix(", in a day")


# -- what is released, and to whom -------------------------------------------------------------------------------------


def _features(facts: DeploymentFacts, options: Options) -> Sequence[str]:
    """Return the features that an answer reads."""
    wanted = [each.name for each in facts.config.features] if options.features is None else options.features
    kept = [each.name for each in facts.config.features if (each.type == "text") == options.reads_text]
    return options.uses([name for name in wanted if name in kept])


def released(facts: DeploymentFacts) -> DocumentSection:
    config, schedule = facts.config, facts.job.schedule
    rows = tuple(
        (
            name_of(options),
            kind_of(options, part),
            what_of(options, facts.unit),
            ", ".join(map(code, _features(facts, options))) or "none",
            _where(options),
        )
        for options, part in plans_of(facts)
    )
    length, slide = spell(schedule.length_ms), spell(schedule.slide_ms)
    overlap = (
        "Windows do not overlap."
        if schedule.overlap == 1
        else f"Windows overlap: a record lies in up to {schedule.overlap} of them, and pays for each."
    )
    first = "the first run" if config.window.start == NOW else code(config.window.start)
    last = "" if config.window.end is None else f" The last one ends by {code(config.window.end)}."
    blocks: list[Block] = [
        FactTable(
            "What is published about every window", ("answer", "kind", "what", "features", "about which records"), rows
        ),
        Bullets(
            (
                f"A window covers {_one(length)}, and one opens every {slide}, from {first} on: "
                f"{facts.plan.windows_per_day:g} a day. {overlap}{last}",
                f"Every window of that public schedule is answered, {_from(facts)}{_until(facts)}an empty one too: "
                "with numbers, or with a refusal and its reason. A refusal is decided by noisy numbers and public "
                "facts alone, and what it tells is within the guarantee. "
                + (
                    "A second process draws every window anew, for another loss."
                    if facts.keeping.forgets
                    else "A published line is never changed or drawn again."
                ),
                *_keys(facts),
                "A line holds besides: the window's times, what it cost, the guarantee, what was spent, the "
                "deviation of the noise (`sigma`) and an interval (`interval`) where they are known, and noisy numbers "
                "of records where the kind has them.",
            )
        ),
        Paragraph(_recipients(facts)),
    ]
    return DocumentSection("released", "What is released, and to whom", tuple(blocks))


def _one(duration: str) -> str:
    """Return a duration with its article, if it is a single unit."""
    return duration if duration[0].isdigit() else f"one {duration}"


def _where(options: Options) -> str:
    if not options.where:
        return "all records"
    parts = []
    for feature, allowed in options.where.items():
        if isinstance(allowed, dict):
            low, high = allowed.get("min"), allowed.get("max")
            ends = [f"from {low:g}" if low is not None else "", f"up to {high:g}" if high is not None else ""]
            parts.append(f"{code(feature)} {' '.join(filter(None, ends))}")
        else:
            parts.append(f"{code(feature)} is {' or '.join(code(each) for each in allowed)}")
    return "those where " + ", and ".join(parts)


def _keys(facts: DeploymentFacts) -> Iterator[str]:
    job, stream, search = facts.job, facts.config.stream, facts.plan.search
    if job.finder is not None and search is not None:
        first = ", ".join(map(code, job.finder.first)) or "none"
        yield (
            f"The stream is divided by {code(stream.key)}, and which keys there are is found: after every "
            f"{many(search.windows, 'window')} a private search tells the keys that many {points_of(facts.unit)} have "
            f"(a noisy number of {search.threshold} or more), and each of these is answered by itself until the next "
            f"search. The keys of the first period are declared: {first}. That a key is told is a release too, and is "
            "paid for."
        )
    if not job.keys:
        return
    shown = ", ".join(map(code, job.keys[:20])) + (f" and {len(job.keys) - 20} more" if len(job.keys) > 20 else "")
    yield (
        f"The stream is divided by {code(stream.key)}: each of {many(len(job.keys), 'key')} ({shown}) is answered by "
        "itself, at every window. The list is public: it comes from the configuration."
    )


def _recipients(facts: DeploymentFacts) -> str:
    sink = facts.config.sink
    where = "to standard output, or to the program that calls it" if sink is None else f"to {code(mask(sink.url))}"
    service = facts.config.service
    if service is not None and service.page:
        where += ", and to whoever opens the page of the service"
    if service is not None and service.values:
        where += ", and to its metrics"
    return (
        f"To whom: releases go {where}. Who may read them there is not in the configuration, so this report assumes "
        "the worst case: everybody, now and later, with any other knowledge. Whoever runs the program sees the raw "
        "records and is trusted (the central model)."
    )


# -- who is protected --------------------------------------------------------------------------------------------------


def protected(facts: DeploymentFacts) -> DocumentSection:
    unit, text = UNITS[facts.unit]
    stream = facts.config.stream
    blocks: list[Block] = [
        Paragraph(f"The unit of privacy is {code(facts.unit)}: {unit}. {text.format(user=code(stream.user))}"),
        Paragraph(
            "The guarantee compares neighbors: two versions of the whole stream that are the same but for one unit, "
            "which is in one version and not in the other. It bounds how much likelier anything that is published, "
            "values and refusals together, can be in one version than in the other. It is a promise about what is "
            "published, whatever else somebody knows, and whatever computers they have."
        ),
        Paragraph(
            "That is about being there or not. Between two values of somebody who is known to be there lie two such "
            f"steps, one out and one in: {_two_steps(facts)}."
        ),
    ]
    if facts.unit == "user":
        how = {"first": "the earliest record", "mean": "the mean of all records"}[stream.per_user]
        own = any(options.per_user == "sum" for options in facts.config.releases)
        blocks.append(
            Paragraph(
                f"In each window a user counts as one point: {how} of that user"
                + (", or the cut sum of them where an answer says `per_user` = 'sum'." if own else ".")
                + " So the number of records that somebody sends makes no difference to what they can lose by what is "
                f"published{'; alarms, which are not published, count records' if facts.is_live else ''}."
            )
        )
    if facts.job.has_keys:
        blocks.append(Paragraph(_key_promise(facts)))
    blocks += [Paragraph(_capital(note) + ".") for note in message_note(facts.config, facts.job)]
    return DocumentSection("protected", "Who is protected, and from what", tuple(blocks))


def _key_promise(facts: DeploymentFacts) -> str:
    job, stream = facts.job, facts.config.stream
    if facts.unit == "event":
        free = "nothing" if job.finder is None else "nothing but its part in the search for keys"
        return (
            f"A record lies under one key, so keys cost a record {free}. A person with records under several keys is "
            "in several streams at once, and their losses add up."
        )
    if job.keys_chosen is not None:
        return (
            f"A user has one budget across all keys, and counts under at most {job.keys_chosen} of them in a window; "
            "every window costs each of its users so many releases. Nothing is promised by the operator for that."
        )
    if facts.config.budget.group is not None:
        return "All keys share one budget: whoever is under several keys spends it the faster."
    if stream.keys_per_user is None:
        return (
            f"Each of the {len(job.keys)} keys has its part of the budget, so that somebody with records under all "
            "keys is covered."
        )
    return (
        f"Each key has the budget divided by {stream.keys_per_user}: the operator promises that nobody has records "
        f"under more than {many(stream.keys_per_user, 'key')}. The program does not check that, and the guarantee "
        "rests on it."
    )


# -- the guarantee -----------------------------------------------------------------------------------------------------


def guarantee(facts: DeploymentFacts) -> DocumentSection:
    cap, unit = facts.guarantee, UNITS[facts.unit][0]
    rows = tuple(
        (
            f"delta = {delta:g}, {chance(delta)}",
            number(cap.epsilon(delta)),
            *(sure(belief(cap.epsilon(delta), p)) for p in (0.5, 0.01)),
        )
        for delta in facts.deltas
    )
    blocks: list[Block] = [
        Paragraph(
            f"({cap.rho:g}, {cap.delta:g})-zCDP {facts.keeping.lasts}: rho = {cap.rho:g} and delta = {cap.delta:g} of "
            f"zero-concentrated differential privacy, for {unit}, added or removed. {_how_it_holds(facts)}",
            strong=True,
        ),
        Bullets(
            (
                "Rho is the measure in which the program adds up losses: two releases of rho = 0.1 are one of 0.2. "
                "The larger, the weaker the protection.",
                "Epsilon is the measure that most papers tell. It says how far the odds can move: whatever "
                "somebody believed about one unit, the odds for it change by a factor of e to the power of epsilon "
                "at most. At epsilon = 1 that is 2.7, at 3 it is 20, at 10 it is 22,000.",
                "Delta is the chance that even this fails. One rho stands for many pairs of epsilon and delta, and "
                "the table below has three of them: epsilons are comparable at the same delta only.",
            )
        ),
        FactTable(
            "The guarantee as epsilon and delta, and how sure somebody can become at most",
            ("at", "epsilon", "who held it for 50%", "who held it for 1%"),
            rows,
        ),
        Drawing(
            "belief",
            (facts.epsilon, facts.deltas[1]),
            f"A curve: how sure somebody can be before, against after. At epsilon {number(facts.epsilon)}, 50% "
            f"becomes at most {sure(belief(facts.epsilon))}, and 1% at most {sure(belief(facts.epsilon, 0.01))}.",
            f"How sure somebody can be that {unit} was in the data: before, and at most after having seen all "
            f"releases (epsilon = {number(facts.epsilon)} at delta = {facts.deltas[1]:g}). On the dashed line nothing "
            "is learned.",
        ),
        *_further_caps(facts),
    ]
    return DocumentSection("guarantee", "The guarantee", tuple(blocks))


def _further_caps(facts: DeploymentFacts) -> Iterator[Block]:
    budget, job = facts.config.budget, facts.job
    if facts.plan.total is not None:
        yield Paragraph(
            f"Besides, the plain sum of all windows{', of all keys,' if job.has_keys else ''} stays within rho = "
            f"{facts.plan.total.rho:g} and delta = {facts.plan.total.delta:g}: this covers whoever has one record in "
            "each window too."
        )
    if budget.group is not None:
        yield Paragraph(
            f"That is one budget for all streams of the group {code(budget.group)} in the ledger: the cap holds for "
            "the sum of what they all publish. What the others spend is missing here afterwards."
        )
    if budget.savings != "none":
        yield Paragraph(
            f"Windows that need less than they reserved leave it to later windows (savings: {code(budget.savings)}). A "
            "later window may therefore cost more than the figure for one window below, never more than the guarantee."
        )


def _how_it_holds(facts: DeploymentFacts) -> str:
    charged = f"every window is charged to {facts.keeping.place} before its noise is drawn, and {_without_room(facts)}"
    if facts.keeping.forgets:
        return (
            f"In this process {charged}. It does not hold through a restart: another process has a budget of its own."
        )
    return f"It holds through crashes and restarts, because {charged}."


def _without_room(facts: DeploymentFacts) -> str:
    return f"{'the run ends' if facts.job.spending.stops else 'it is refused'} when there is no room"


def _from(facts: DeploymentFacts) -> str:
    return "from the stream's first run on, " if facts.is_live else ""


def _until(facts: DeploymentFacts) -> str:
    return "until the budget is used up and the run ends, " if facts.job.spending.stops else ""


def _two_steps(facts: DeploymentFacts) -> str:
    if facts.guarantee.delta == 0:
        return "rho is four times as large for them at most"
    return "for them (epsilon, delta) becomes at most (2 epsilon, (1 + e to the power of epsilon) delta)"


def _of_several(facts: DeploymentFacts) -> str:
    if facts.plan.loss.delta == 0:
        return "loses up to k times k the rho of one: with 10 in every window, up to 100 times the rho of the table"
    return "loses more than the table says, and how much more has no simple rule where delta is not 0"


def losses(facts: DeploymentFacts) -> DocumentSection:
    """What one person loses in a window, a day, a year and for ever."""
    at = tuple(f"epsilon at delta {delta:g}" for delta in facts.deltas)
    blocks: list[Block] = [
        FactTable("What can be lost at most", ("who, and when", "rho", "delta", *at), tuple(map(_row, facts.lines)))
    ]
    lasting = facts.plan.lasting_windows
    if any(line.cap is not None for line in facts.lines):
        blocks.append(
            Paragraph(
                "A day and a year are shown as they would be without the cap and, after the arrow, with it, where the "
                "cap is smaller."
            )
        )
    if facts.unit == "event":
        blocks.append(
            Paragraph(
                f"A person with k records in one window {_of_several(facts)}. If your records are about people, "
                "choose the unit `user`."
            )
        )
    elif lasting is not None:
        days = lasting / facts.plan.windows_per_day
        share = " of one key" if facts.job.keys and facts.job.keys_chosen is None else ""
        blocks.append(
            Paragraph(
                f"The budget{share} of somebody present in every window lasts {many(lasting, 'window')}, {days:.3g} "
                f"days. {_afterwards(facts, lasting)}."
            )
        )
    return DocumentSection("losses", "What one person can lose", tuple(blocks))


def _row(line: LossLine) -> tuple[str, ...]:
    if line.cap is None:
        return (line.situation, number(line.rho), f"{line.delta:.3g}", *map(number, line.epsilons))
    shown = tuple(
        number(own) if own <= cap else f"{number(own)} → {number(cap)}"
        for own, cap in zip(line.epsilons, line.cap, strict=True)
    )
    return (line.situation, number(line.rho), f"{line.delta:.3g}", *shown)


def _afterwards(facts: DeploymentFacts, lasting: int) -> str:
    if facts.plan.windows is not None and facts.plan.windows <= lasting:
        return "The schedule ends before that, or with it"
    return f"After that {'the run ends' if facts.job.spending.stops else 'windows are refused'}"
