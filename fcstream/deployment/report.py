"""Makes the document of some facts, section by section."""

from __future__ import annotations

from . import mechanisms, promise, running
from .document import DeploymentReport, HazardAnswer
from .facts import DeploymentFacts, day
from .hazards import hazards
from .personal_data import personal_data


def report_of(facts: DeploymentFacts) -> DeploymentReport:
    """Make the report of a deployment.

    Parameters
    ----------
    facts : DeploymentFacts

    Privacy
    -------
    A function of public facts.
    """
    questions = hazards(facts)
    findings = [block for block in questions.blocks if isinstance(block, HazardAnswer)]
    version = dict(facts.versions)["fcstream"]
    return DeploymentReport(
        title=f"Privacy report: {facts.job.terms.stream}",
        subtitle=(
            "What is published about people's records, what is promised to them, and what it costs. Epsilon, neighbor "
            "and "
            "guarantee are explained where they first occur, and again at the end."
        ),
        made=f"Made on {day(facts.made_ms)} by fcstream {version}. No record was read for it.",
        sections=(
            promise.summary(facts, findings),
            promise.released(facts),
            promise.protected(facts),
            promise.guarantee(facts),
            promise.losses(facts),
            mechanisms.mechanisms(facts),
            mechanisms.noise(facts),
            running.parameters(facts),
            running.spending(facts),
            questions,
            personal_data(facts),
            running.not_covered(facts),
            running.versions(facts),
            running.proofs(facts),
            running.words(facts),
        ),
    )
