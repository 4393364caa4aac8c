"""The section about personal data: where it lies, for how long, and what deleting it does to the promise."""

from __future__ import annotations

from collections.abc import Iterator

from ..connectors.spool import LONGEST_S
from ..ledgers.user_key import UserKeyPlace
from ..runtime.words import duration
from .document import Bullets, DocumentSection, FactTable, Paragraph, code
from .facts import DeploymentFacts


def personal_data(facts: DeploymentFacts) -> DocumentSection:
    """Make the section, which holds no law: who decides why and how records are used answers for them."""
    return DocumentSection(
        "personal-data",
        "Personal data",
        (
            FactTable("Where it lies", ("where", "what", "how long"), tuple(_places(facts))),
            Paragraph("Deleting what is about a person:"),
            Bullets(tuple(_erasure(facts))),
            Paragraph(
                "Not in the configuration, so for the operator to say: why the records are collected, on what legal "
                "basis, how long their source keeps them, what people are told, and who answers their requests."
            ),
        ),
    )


def _places(facts: DeploymentFacts) -> Iterator[tuple[str, str, str]]:
    config, is_user = facts.config, facts.unit == "user"
    whom = "what a window needs of each user, with the name" if is_user else "what a window needs of each record"
    yield "memory of the process", whom, "until the last window that needs it is answered"
    source = config.source
    if source is not None and source.spool is not None:
        yield (
            f"spool {code(source.spool)}",
            "whole messages as they were sent, also what is not read of them",
            "until the last window that needs them is answered, and while others wait up to "
            f"{duration(1000 * LONGEST_S)} longer",
        )
    ledger = "no record, no user's name, and no hash of one: what windows cost, and what was released"
    if any(options.keeps_totals for options in config.releases):
        ledger += "; exact running totals of the current epoch"
    yield "ledger", ledger, "as long as the process" if facts.keeping.forgets else "for ever: it is the promise"
    place = _key_place(facts)
    if place is not None:
        what = "a random key, under which users' names are hashed in memory"
        yield f"user key, in {code(place.text)}", what, "as long as the ledger; keep their copies apart"
    if config.dead_letter is not None:
        is_file = config.dead_letter.url.startswith("jsonl:")
        limit = f", up to {config.dead_letter.max_bytes:,} bytes of a file" if is_file else ""
        what = f"why records were rejected, and their positions{limit}; no contents"
        yield "dead letters", what, "until you delete them"
    yield "sink", "releases, which the promise is about", "for the sink to say; what is published cannot be taken back"
    if config.service is not None and config.service.counters:
        yield "metrics", "exact numbers of records, for operators", "as long as the process, and what reads them keeps"
    yield "log", "no record, and no name out of one", "for whoever keeps the log to say"


def _key_place(facts: DeploymentFacts) -> UserKeyPlace | None:
    ledger = facts.config.ledger
    if ledger is None or facts.job.keys_chosen is None:
        return None
    return UserKeyPlace.of(ledger.url, ledger.user_key)


def _erasure(facts: DeploymentFacts) -> Iterator[str]:
    yield (
        "Records go by themselves, with their windows. Sooner only at the source, or with the whole spool: then the "
        "windows that are open lack them, and the promise stands."
        if facts.config.source is not None and facts.config.source.spool is not None
        else "Records go by themselves, with their windows. Sooner only at the source; the promise stands."
    )
    yield "Releases stay. They are the same up to noise with or without any one person: that is what the promise says."
    if not facts.keeping.forgets:
        yield (
            "The ledger holds nothing to delete for one person, and must not be deleted: whoever begins a new one "
            "spends a whole budget again on the same people."
        )
    if _key_place(facts) is not None:
        yield "Deleting the user key ends the stream: it does not start with another one."
