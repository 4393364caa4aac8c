"""The sections about how answers are computed, their noise, and what else is wrong with them."""

from __future__ import annotations

import math
from typing import Any

from ..planning.plan import message_note
from ..planning.stream_plan import USUAL_SIZE, StreamPlan, points_of
from ..releases.base import percent
from ..releases.descriptions import kind_description, variations_of
from .document import Block, Bullets, DocumentSection, FactTable, Paragraph, code
from .facts import DeploymentFacts
from .promise import kind_of, name_of, number, plans_of
from .topics import topics


def mechanisms(facts: DeploymentFacts) -> DocumentSection:
    blocks: list[Block] = []
    for options, part in plans_of(facts):
        found = kind_description(options)
        about = f"How {name_of(options)} is computed"
        if found is None:
            text = (type(options).__doc__ or "").strip().partition("\n")[0]
            rows = [
                ("kind", kind_of(options, part)),
                ("declared by", code(type(options).__module__)),
                ("mechanism", text or "not described"),
                (
                    "sources and proofs",
                    "none are known here: that package must give them, and the guarantee rests on them",
                ),
            ]
        else:
            more = variations_of(options)
            sources = dict.fromkeys([*found.sources, *(each for one in more for each in one.sources)])
            rows = [
                ("kind", kind_of(options, part)),
                ("mechanism", " ".join([found.mechanism, *(one.sentence for one in more)])),
                ("cost of a window", str(part.loss)),
                *((("stops early at", f"{part.stopped}: a window that its noisy size shows to be too small"),)
                  if part.stopped is not None else ()),
                ("sources", "; ".join(sources)),
                ("in docs/design", places(found, more)),
            ]  # fmt: skip
        blocks.append(FactTable(about, ("what", "answer"), tuple(rows)))
    blocks.append(
        FactTable(
            "What the accounting rests on",
            ("part", "what it says here", "sources"),
            tuple((each.name, each.sentence, "; ".join(each.sources)) for each in topics(facts)),
        )
    )
    return DocumentSection("mechanisms", "Mechanisms and their sources", tuple(blocks))


def places(found: Any, more: Any = ()) -> str:
    """Cite the sections of docs/design about something."""
    parts = []
    for name, singular in (("specification", "specification"), ("proofs", "proof"), ("errata", "erratum")):
        listed = list(dict.fromkeys(each for one in (found, *more) for each in getattr(one, name, ())))
        if listed:
            parts.append(f"{singular if len(listed) == 1 or name == 'specification' else name} {', '.join(listed)}")
    return "; ".join(parts)


def noise(facts: DeploymentFacts) -> DocumentSection:
    points = points_of(facts.unit)
    rows, biases = [], []
    for options, part in plans_of(facts):
        size = options.size_hint
        for quantity, sigma in part.sigma.items():
            told = "told in each release; only the data show it" if math.isnan(sigma) else number(sigma)
            rows.append((name_of(options), code(quantity), told, f"{size or USUAL_SIZE:,} {points}"))
        found = kind_description(options)
        text = "not described by the package that declares it" if found is None else found.bias
        biases.append((name_of(options), _chance(part, points), _empty(part, points), text))
    blocks: list[Block] = [
        FactTable("Noise: standard deviations", ("answer", "of", "deviation", "in a window of"), tuple(rows)),
        Paragraph(
            "Where noise is Gaussian, as nearly everywhere, it is smaller than two deviations in 95 of 100 windows, "
            "and than three in 997 of 1,000. Each release tells its own deviation where the kind has one. Where one "
            "record's share is large, as in small windows and small groups, the noise is large in proportion."
        ),
        FactTable(
            "Refusals and bias",
            ("answer", "how often a window has numbers", f"a window without {points}", "errors besides the noise"),
            tuple(biases),
        ),
    ]
    noted = message_note(facts.config, facts.job)
    said = [
        f"{name_of(options)}: {note}" for options, part in plans_of(facts) for note in part.notes if note not in noted
    ]
    said += facts.plan.notes if facts.plan.answers else []
    if said:
        blocks += [Paragraph("What the plan says besides:"), Bullets(tuple(said))]
    if facts.plan.warnings:
        blocks += [Paragraph("What the plan warns of:"), Bullets(tuple(facts.plan.warnings))]
    return DocumentSection("noise", "Noise and bias", tuple(blocks))


def _chance(part: StreamPlan, points: str) -> str:
    at = f"a window of {part.size_hint:,} {points}" if part.size_hint else "a window"
    smallest = ""
    if part.smallest_size is not None and part.smallest_size > 1:
        smallest = f"; from {part.smallest_size:,} {points} on 99% have"
    if part.chance:
        return f"{at} releases {part.chance}{smallest}"
    if part.probability is None:
        return f"not known without `size_hint`{smallest}"
    if part.probability == 1 and part.false_release is None:
        return "every window has, as long as the budget lasts"
    return f"{at} has with probability {percent(part.probability)}{smallest}"


def _empty(part: StreamPlan, points: str) -> str:
    if part.false_release is None:
        return "has noisy numbers like any other"
    return (
        "never has numbers"
        if part.false_release == 0
        else f"has numbers with probability {part.false_release:.1e} at most"
    )
