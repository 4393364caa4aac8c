"""The sections about settings, spending, limits, versions and proofs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ..connectors.urls import mask
from ..ledgers.history import utc
from ..releases.clusters.centers import ClusterOptions
from ..releases.descriptions import description_of, variations_of
from ..releases.reasons import HINTS
from ..releases.statistics.covariance import CovarianceOptions
from ..reporting.budget import FilterReport
from ..runtime.words import duration, many
from .document import Block, Bullets, DocumentSection, Drawing, FactTable, Paragraph, code
from .facts import DeploymentFacts, LedgerStream, day
from .mechanisms import places
from .promise import name_of, number, plans_of
from .topics import topics

_LONGEST = 160
_ADDRESSES = ("source", "sink", "ledger", "dead_letter")
_BY_HAND = ("stream.user", "stream.key")


def parameters(facts: DeploymentFacts) -> DocumentSection:
    blocks: list[Block] = [
        Paragraph(
            "Every setting that shapes a release, and where it comes from: written in the configuration, a default of "
            "the program, or derived from other settings. None is taken from the data by the program. Whether the "
            "person who wrote a value looked at the data before cannot be seen here: a value that was computed from "
            "the records, such as a radius, is a release of its own that nobody has paid for."
        ),
        FactTable("Settings", ("setting", "value", "where it comes from"), tuple(_settings(facts))),
        FactTable("Derived values", ("what", "value", "derived from"), tuple(_derived(facts))),
    ]
    return DocumentSection("parameters", "Parameters, and where they come from", tuple(blocks))


def _settings(facts: DeploymentFacts) -> Iterator[tuple[str, str, str]]:
    config, written = facts.config, facts.written
    yield from _of_section("stream", config.stream, written.get("stream", {}), facts)
    if config.lattice is not None:
        yield from _of_section("lattice", config.lattice, written.get("lattice", {}), facts)
    for i, feature in enumerate(config.features):
        yield from _of_section(f"features.{feature.name}", feature, _item(written.get("features"), i), facts)
    yield from _of_section("window", config.window, written.get("window", {}), facts)
    for i, options in enumerate(config.releases):
        name = "release" if len(config.releases) == 1 else f"release.{options.name}"
        yield from _of_section(name, options, _item(written.get("release"), i), facts)
    yield from _of_section("budget", config.budget, written.get("budget", {}), facts)
    for name in _ADDRESSES:
        section = getattr(config, name)
        if section is not None:
            yield code(f"{name}.url"), code(mask(section.url)), _origin("url", written.get(name, {}))
    if config.service is not None:
        for key in ("listen", "counters", "page"):
            value = getattr(config.service, key)
            if value is not None:
                yield code(f"service.{key}"), code(_shown(value)), _origin(key, written.get("service", {}))


def _item(sections: Any, index: int) -> Mapping[str, Any]:
    """Return the keys of one of several sections, which may have been written as one."""
    if isinstance(sections, Mapping):
        return sections
    return sections[index] if isinstance(sections, (list, tuple)) and index < len(sections) else {}


def _of_section(
    name: str, section: msgspec.Struct, written: Mapping[str, Any], facts: DeploymentFacts
) -> Iterator[tuple[str, str, str]]:
    ignored = getattr(section, "without_effect", ())
    for own in msgspec.structs.fields(type(section)):
        key, value = own.encode_name, getattr(section, own.name)
        if key in ignored:
            continue
        if value is None:
            derived = _left_out(name, key, facts)
            if derived is not None:
                yield code(f"{name}.{key}"), derived[0], f"left out: {derived[1]}"
        else:
            yield code(f"{name}.{key}"), code(_shown(value)), _origin(key, written)


def _origin(key: str, written: Mapping[str, Any]) -> str:
    return "written" if key in written else "default"


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(msgspec.to_builtins(value), ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"


def _left_out(section: str, key: str, facts: DeploymentFacts) -> tuple[str, str] | None:
    """Return what a key that is left out means, and why; None if it means that there is no such thing."""
    job = facts.job
    name = section.partition(".")[0]
    found = {
        ("window", "slide"): (code(duration(job.schedule.slide_ms)), "windows do not overlap"),
        ("window", "ahead"): (code(duration(job.ahead_ms)), "as long as a window"),
        ("window", "end"): ("none", "the stream has no end"),
        ("window", "max_records"): _limit(facts),
        ("release", "features"): ("all", "all that the kind can read"),
        ("release", "where"): ("all records", "no condition"),
        ("budget", "total_rho"): ("none", "the sum of all windows has no cap of its own"),
        ("budget", "exhausted"): (code("refuse"), "a window without room gets no value"),
        ("stream", "keys_per_user"): (str(len(job.keys)), "the number of keys") if job.keys else None,
        ("release", "size_hint"): ("none", "no public guess of the number of records"),
    }
    return found.get((name, key))


def _limit(facts: DeploymentFacts) -> tuple[str, str] | None:
    limits = [part.facts.get("max_records") for _, part in plans_of(facts)]
    shown = ", ".join(f"{limit:,}" for limit in limits if limit is not None)
    return (shown, "16 times `release.size_hint`") if shown else ("none", "nothing bounds the records of a window")


def _derived(facts: DeploymentFacts) -> Iterator[tuple[str, str, str]]:
    plan, job = facts.plan, facts.job
    yield "windows a day", f"{plan.windows_per_day:g}", "`window.slide`"
    if plan.windows is not None:
        yield "windows in all", f"{plan.windows:,}", "`window.start`, `window.end`, `window.slide`"
    if job.schedule.overlap > 1:
        yield "windows that hold one record", str(job.schedule.overlap), "`window.length`, `window.slide`"
    yield "cost of one window", str(plan.loss), "`release.rho`, `release.delta` of all answers"
    if facts.unit == "event":
        yield "cost of one record", str(plan.per_record), "the cost of a window, times the windows that hold it"
    if plan.key_share is not None:
        yield "what one key may spend", str(plan.key_share), "`[budget]` divided by `stream.keys_per_user`"
    if plan.search is not None:
        yield "cost of one search for keys", str(plan.search.loss), "`stream.keys.rho`, `stream.keys.delta`"
        yield "least noisy number of a key", f"{plan.search.threshold:,}", "the cost of a search"
    if job.keys_chosen is not None:
        yield "keys under which a user counts in a window", str(job.keys_chosen), "`stream.keys_per_user`"
    if plan.lasting_windows is not None:
        yield "windows that the budget lasts", f"{plan.lasting_windows:,}", "the cap and the cost of a window"
    for options, part in plans_of(facts):
        if "most_held" in part.facts:
            yield (
                f"most records held for {name_of(options)}",
                f"{part.facts['most_held']:,}",
                "`window.max_records` and a margin for the gate's noise",
            )


# -- what was spent ----------------------------------------------------------------------------------------------------


def spending(facts: DeploymentFacts) -> DocumentSection:
    title = "What was spent and refused"
    if facts.ledger is None:
        text = (
            "No ledger was read for this report, so it does not say what was spent. `fcstream report CONFIG LEDGER` "
            "adds it, also while the stream runs."
        )
        return DocumentSection("spent", title, (Paragraph(text),))
    ledger = facts.ledger
    blocks: list[Block] = [
        Paragraph(
            f"From the ledger {code(ledger.location)}, read while it may be in use. Shown are public figures only: "
            "what windows cost, and what was published. How many records or users there were is not in this report. "
            "What was spent is no guarantee, since it goes on; the guarantee is."
        )
    ]
    wrong = [each.terms.stream for each in ledger.streams if not each.agrees]
    if wrong:
        blocks.append(
            Paragraph(
                f"The ledger of {', '.join(map(code, wrong))} was made with another specification than this "
                "configuration: a run would be refused. What the ledger tells is about the other one.",
                strong=True,
            )
        )
    caps = [(each.budget.unit.capacity, each.terms.stream) for each in ledger.streams]
    cap = facts.job.terms.capacity
    if any(own != cap for own, _ in caps):
        blocks.append(Paragraph(f"The ledger's cap is {caps[0][0]}, the configuration's {cap}."))
    rows = tuple(row for each in ledger.streams for row in _spent_rows(each))
    blocks.append(
        FactTable(
            "What was spent",
            ("stream, and whose budget", "spent", "refunded", "loss so far at most", "runs out"),
            rows,
        )
    )
    blocks.append(
        Paragraph(
            "The loss so far at most is an epsilon that what was really lost exceeds with the given small chance "
            "only. It is computed for a loss that goes on, and may be larger than the guarantee while little was "
            "spent."
        )
    )
    blocks.append(
        FactTable("Windows", ("stream", "period", "in states", "answers"), tuple(map(_windows, ledger.streams)))
    )
    reasons = {name for each in ledger.streams for name in each.budget.answers if name != "released"}
    if reasons:
        listed = tuple(f"{code(name)}: {HINTS.get(name, 'a reason of another package')}" for name in sorted(reasons))
        blocks += [Paragraph("Why windows were refused, and what helps:"), Bullets(listed)]
    blocks += [_picture(each) for each in ledger.streams[:6]]
    blocks += list(_together(facts))
    return DocumentSection("spent", title, tuple(blocks))


def _spent_rows(stream: LedgerStream) -> Iterator[tuple[str, ...]]:
    budget = stream.budget
    shared = stream.terms.group is not None
    for reading in (budget.unit, budget.total):
        if reading is None:
            continue
        share = reading.share(reading.spent)
        part = "over 100%" if share > 1 else f"{100 * share:.3g}%"
        yield (
            f"{code(stream.terms.stream)}, {_whose(reading.block)}",
            f"{reading.spent} of {reading.capacity}, which is {part}",
            str(reading.saved) if any(reading.saved.parts) else "nothing",
            f"epsilon {number(reading.realized_loss_bound())}, but for a chance of {reading.failure:g}",
            "as the group's other streams spend" if shared else str(reading.outlook),
        )


def _whose(block: str) -> str:
    return {
        "event": "the most charged slice of time",
        "stream": "the stream",
        "user": "a user present in every window",
        "total": "all windows together",
    }.get(block, block)


def _windows(stream: LedgerStream) -> tuple[str, ...]:
    budget = stream.budget
    counts = ", ".join(f"{count} {name}" for name, count in budget.windows.items() if count)
    answers = ", ".join(f"{count} {name}" for name, count in sorted(budget.answers.items()))
    period = f"{day(stream.first_ms)} to {day(stream.last_ms)}" if stream.first_ms is not None else "nothing yet"
    refused = f"; {many(budget.refused, 'window')} never charged, for lack of budget" if budget.refused else ""
    return code(stream.terms.stream), period, counts or "none", (answers or "none") + refused


def _picture(stream: LedgerStream) -> Drawing:
    reading = stream.budget.unit
    name = code(stream.terms.stream)
    return Drawing(
        "spending",
        stream.budget,
        f"Rho spent over time by {_whose(reading.block)}: {_spent_in_words(reading)}.",
        f"What {name} has spent over time ({_whose(reading.block)}), and as a dashed line {_limit_of(reading)}.",
    )


def _limit_of(reading: FilterReport) -> str:
    return "what one key may spend of the guarantee" if reading.is_divided else "the guarantee"


def _spent_in_words(reading: FilterReport) -> str:
    last = f", last at {utc(reading.curve[-1].time_ms)}" if reading.curve else ""
    return f"{reading.spent.rho:.3g} of {reading.capacity.rho:g}{last}"


def _together(facts: DeploymentFacts) -> Iterator[Block]:
    ledger = facts.ledger
    if ledger is None or len(ledger.together.parts) < 2:
        return
    both = ledger.together
    rows = [(code(name), str(cap), str(spent)) for name, (cap, spent) in both.parts.items()]
    yield FactTable(
        "Other streams in the same ledger: somebody with records in all of them can lose the sum",
        ("stream or group", "guarantee", "spent"),
        (*rows, ("all together", str(both.guarantee), str(both.spent))),
    )


# -- what is not covered -----------------------------------------------------------------------------------------------


def not_covered(facts: DeploymentFacts) -> DocumentSection:
    config = facts.config
    items = [
        "What is true of everybody. If releases show that rooms with old windows are cold, they say something about "
        "Ana's room as well. It would be learned without her records just the same.",
        "Whoever runs the program. They see the raw records: the machine, its copies, the source and the dead "
        "letters must be protected by other means.",
        "Groups. What is promised for one is weaker for several together"
        + (": five together can lose 25 times the rho of one." if facts.guarantee.delta == 0 else ", and fast so."),
        f"What else is published about the same people: other streams{_outside(facts)}, reports from the raw data, "
        "exact numbers. Losses add up, and no ledger here knows of them.",
        "Time, memory, power and caches. Drawing larger noise and counting more records takes longer. Whoever can "
        "measure the process may learn from that.",
        "Settings that were chosen by looking at the data.",
        "What is for operators: the summary of a run, rejections and dead letters hold exact numbers and positions "
        "of records. Do not publish them.",
        "Another process. The ledger is in memory, and every process begins with a whole budget."
        if facts.keeping.forgets
        else "An older copy of the ledger that is put back. It has forgotten what was spent.",
        "The random generator of the system. Noise hides what it hides from those who cannot predict that.",
        "Records whose senders lie about users or times. A person with two names has two budgets."
        if facts.unit == "user"
        else "Records whose senders lie about times.",
    ]
    if facts.unit == "event":
        items.insert(0, "Persons. The unit is a record: whoever has many is not protected as a whole.")
    if config.service is not None and config.service.counters:
        items.append("Metrics of the service: `service.counters` is on, so that they hold exact numbers of records.")
    if facts.is_live:
        items.append(
            "Alarms (late or unusable records), on `/ready`, in the log and in the metrics. They are for operators, "
            "noisy, and cost besides the budget: each alarm up to epsilon 0.5 for every record that it counts, in "
            "every process that reads it, so that somebody with k such records can lose k times that, whatever the "
            "unit. PRIVACY.md lists them."
        )
    if any(options.keeps_totals for options in config.releases):
        items.append("The ledger holds the exact running totals of the current epoch: protect it, and its copies too.")
    if any(isinstance(options, CovarianceOptions) for options in config.releases):
        items.append("Covariances of shards are averaged, rooted and multiplied in floating point.")
    if any(isinstance(options, ClusterOptions) for options in config.releases):
        items.append("Programs that cluster a shard are taken as functions of that shard, on one thread.")
    text = "The guarantee is about what is published. It does not cover:"
    whole = (
        "PRIVACY.md of the program has the complete list, and what an operator may change without breaking the promise."
    )
    return DocumentSection("limits", "What is not covered", (Paragraph(text), Bullets(tuple(items)), Paragraph(whole)))


# -- versions, proofs, words -------------------------------------------------------------------------------------------


def _outside(facts: DeploymentFacts) -> str:
    group = facts.config.budget.group
    return " under other names" if group is None else f" outside of the group {code(group)}"


def versions(facts: DeploymentFacts) -> DocumentSection:
    terms = facts.job.terms
    bound = "" if facts.keeping.forgets else " A ledger is bound to it: a run with another one is refused."
    rows = [(name, code(version)) for name, version in facts.versions]
    rows += [("stream", code(terms.stream)), ("SHA-256 of the specification", code(terms.specification_hash))]
    blocks: list[Block] = [
        FactTable("Program and specification", ("what", "value"), tuple(rows)),
        Paragraph(
            f"The specification is every setting that shapes a release and is not at its default.{bound} Here it is, "
            "as the hash is computed from it:"
        ),
        Paragraph(code(terms.specification)),
    ]
    if facts.ledger is not None:
        listed = [row for each in facts.ledger.streams for row in _hashes(each)]
        blocks += [
            FactTable("The ledger", ("stream, and what", "value"), tuple(listed)),
            Paragraph(
                "The chain of hashes was checked from its first row. The last figure is that of all published lines, "
                "each with a line feed, in order of sealing (`fcstream budget releases LEDGER | sha256sum`): who kept "
                "the lines can compare. It finds accidents and careless edits, not somebody who can write the ledger."
            ),
        ]
        if facts.ledger.others:
            others = ", ".join(map(code, facts.ledger.others))
            blocks.append(Paragraph(f"Other streams in the ledger: {others}."))
    return DocumentSection("versions", "Versions and hashes", tuple(blocks))


def _hashes(stream: LedgerStream) -> Iterator[tuple[str, str]]:
    name = code(stream.terms.stream)
    yield f"{name}, specification", code(stream.terms.specification_hash) + ("" if stream.agrees else " (another one)")
    yield f"{name}, rows of the journal", f"{stream.rows:,}, in order"
    yield f"{name}, newest link of the chain of hashes", code(stream.head)
    yield f"{name}, published lines", f"{stream.sealed:,}"
    yield f"{name}, SHA-256 of the published lines", code(stream.sealed_hash)


def proofs(facts: DeploymentFacts) -> DocumentSection:
    rows = []
    for options, part in plans_of(facts):
        found = description_of(options)
        kind = part.kind + (f", {part.method}" if part.method else "")
        place = "in the package that declares it" if found is None else places(found, variations_of(options))
        rows.append((f"{name_of(options)} ({kind})", place))
    rows += [(each.name, places(each)) for each in topics(facts)]
    blocks: list[Block] = [
        Paragraph(
            "What every mechanism computes stands in docs/design/specification.md of the program, why it costs what "
            "it says in docs/design/proofs.md, and where a paper is wrong in docs/design/errata.md."
        ),
        FactTable("Where it is proved", ("part", "sections"), tuple(rows)),
    ]
    return DocumentSection("proofs", "Proofs, by section", tuple(blocks))


def words(facts: DeploymentFacts) -> DocumentSection:
    lasts, place = facts.keeping.lasts, facts.keeping.place
    rows = (
        ("guarantee", f"The cap that holds {lasts}, whatever is asked: the promise to the people in the data."),
        ("unit of privacy", "What is protected as a whole: a record, a user, or at most one record in each window."),
        ("neighbors", "Two versions of the data that are the same but for one unit, which one of them has."),
        ("epsilon", "How far the odds can move, at most: by a factor of e to the power of epsilon."),
        ("delta", "The chance that the bound fails."),
        ("rho", "The measure in which losses are added up here; (rho, delta)-zCDP. Epsilon and delta follow from it."),
        ("window", "A stretch of time that is answered at once."),
        ("release", "What is published about a window: numbers, or a refusal with its reason."),
        ("sigma", "The standard deviation of the noise: two of them hold Gaussian noise in 95 of 100 cases."),
        ("ledger", f"What counts the losses before anything is published: here {place}."),
        (
            "refusal",
            "A window without numbers, because of noisy counts or an empty budget. One record more or less changes how "
            "likely that is by no more than the guarantee says.",
        ),
        ("bias", "An error that is not noise: it does not vanish by averaging many windows."),
    )
    return DocumentSection("words", "Words", (FactTable("Words of this report", ("word", "what it means"), rows),))
