"""The parts of the accounting that a configuration rests on, each with its paper and its proof in docs/design."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..config import Config
from ..releases.descriptions import CKS20, OURS
from ..releases.record_gate import GatedMechanism
from .facts import DeploymentFacts

BS16 = "Bun, Steinke: Concentrated Differential Privacy: Simplifications, Extensions, and Lower Bounds (TCC 2016)"
WRRW23 = "Whitehouse, Ramdas, Rogers, Wu: Fully-Adaptive Composition in Differential Privacy (ICML 2023)"
FZ21 = "Feldman, Zrnic: Individual Privacy Accounting via a Rényi Filter (NeurIPS 2021)"
RRUV16 = "Rogers, Roth, Ullman, Vadhan: Privacy Odometers and Filters: Pay-as-you-go Composition (NeurIPS 2016)"
LY25 = "Liang, Yi: Adaptive Privacy Budgeting (2025)"


@dataclass(frozen=True, slots=True)
class ProvenTopic:
    """A part of the accounting: what it says here, whose idea it is, and where it is specified and proved."""

    name: str
    sentence: str
    sources: tuple[str, ...]
    specification: tuple[str, ...]
    proofs: tuple[str, ...]


_UNITS = {
    "event": ProvenTopic(
        "records",
        "Time is cut into slices. Each slice has a budget of its own, and a window charges all slices that it "
        "covers; a record lies in one slice.",
        (FZ21, WRRW23, OURS),
        ("8.3",),
        ("2.3",),
    ),
    "user": ProvenTopic(
        "users",
        "A window charges every user who takes part, all the same, and is refused once a user present in every "
        "window has no room: no user has spent more.",
        (FZ21, WRRW23, OURS),
        ("8.3",),
        ("2.4",),
    ),
    "stream": ProvenTopic(
        "the stream", "One budget takes the plain sum of all windows.", (RRUV16, WRRW23), ("8.3",), ("2.1",)
    ),
}


def draws_floats(config: Config) -> bool:
    """Whether some answer draws in floating point."""
    return any(each.makes_rows and getattr(each, "variant", None) == "paper" for each in config.releases)


def topics(facts: DeploymentFacts) -> Iterator[ProvenTopic]:
    """Iterate over what this configuration rests on besides the mechanisms of its answers."""
    config, job = facts.config, facts.job
    yield ProvenTopic(
        "zCDP", "Losses are measured as rho of zero-concentrated differential privacy.", (BS16,), ("1.1",), ("1.1",)
    )
    yield ProvenTopic(
        "epsilon and delta", "Rho is converted to epsilon and delta by the tight formula.", (CKS20,), ("1.2",), ("1.8",)
    )
    noise = "Noise is drawn in whole numbers, exactly, from the system's random generator."
    if draws_floats(config):
        noise += " But for the directions of `variant` = 'paper', which are drawn in floating point."
    yield ProvenTopic("noise", noise, (CKS20,), ("2.4", "2.5"), ("1.5",))
    yield ProvenTopic(
        "whole numbers",
        "Records are rounded to a public grid, so that sums are exact and no rounding error can tell a record.",
        (OURS,),
        ("2.1", "2.3"),
        ("1.5",),
    )
    yield ProvenTopic(
        "privacy filter", "A window is charged before its noise is drawn, and refused where there is no room.",
        (RRUV16, WRRW23), ("8.1", "8.4"), ("2.1",),
    )  # fmt: skip
    yield _UNITS[job.terms.unit]
    yield ProvenTopic(
        "refunds",
        "What a window reserved for stages that it never started comes back.",
        (WRRW23, OURS),
        ("1.4",),
        ("2.2",),
    )
    if not facts.keeping.forgets:
        yield ProvenTopic(
            "crashes", "A window that was drawn before a crash is drawn once more at most.", (OURS,), ("8.4",), ("2.9",)
        )
    if facts.ledger is not None:
        yield ProvenTopic("odometer", "How large the loss so far can be.", (RRUV16, WRRW23), ("8.2",), ("2.6",))
    if any(isinstance(answer.mechanism, GatedMechanism) for answer in job.answers):
        yield ProvenTopic(
            "record gate", "Windows of too many records are refused by a noisy number.", (OURS,), ("10.1",), ("2.7",)
        )
    if any(feature.learned for feature in job.grid.features):
        yield ProvenTopic(
            "learned scales",
            "Some features are divided by the difference of their quartiles, found privately for a tenth of rho, or "
            "released by an earlier window.",
            (OURS,),
            ("5.15",),
            ("5.9",),
        )
    if job.finder is not None:
        yield ProvenTopic(
            "keys that are found",
            "A search like that for frequent texts tells the keys of a period; it is paid for besides the windows.",
            (OURS,),
            ("8.9", "5.12"),
            ("2.14", "6.6"),
        )
    if job.keys:
        yield ProvenTopic("keys", "Every key is a stream of its own.", (OURS,), ("8.3",), ("2.10",))
    if job.keys_chosen is not None:
        yield ProvenTopic("one budget across keys", "A user has one budget for all keys.", (OURS,), ("8.7",), ("2.12",))
    if config.budget.group is not None:
        yield ProvenTopic("groups", "Several streams share one budget.", (OURS,), ("8.6",), ("2.11",))
    if config.budget.savings != "none":
        yield ProvenTopic("savings", "Later windows get what earlier ones did not use.", (LY25,), ("8.5",), ("2.8",))
    if len(config.releases) > 1:
        yield ProvenTopic(
            "several answers",
            "All answers that a record can belong to add up; answers about disjoint records cost the dearest of them.",
            (BS16, OURS),
            ("8.8",),
            ("2.13",),
        )
