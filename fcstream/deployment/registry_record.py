"""A record for the OpenDP Deployments Registry (registry.opendp.org), as YAML.

The fields are those of its schema (repository opendp/deployments-registry-data, schemas/deployments-schema.yaml, as of
July 2026). What a configuration cannot tell is listed in comments, and is for the people who publish.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from ..releases.descriptions import kind_description
from .document import HazardAnswer, code, spell
from .facts import DeploymentFacts
from .hazards import hazards
from .markdown import escaped, plain
from .mechanisms import places
from .promise import UNITS, lost, name_of, number, plans_of, what_of
from .topics import topics

Record = dict[str, Any]
FIELDS = {
    "url_slug": "a short name for the record's address",
    "status": "Draft until the registry has looked at it",
    "tier": "1 to 3, by completeness",
    "deployment.basic.name": "name of the data product",
    "deployment.basic.data_curators": "names of those who publish it",
    "deployment.basic.intended_use": "what it is for",
    "deployment.basic.data_product_type": "what kind of product it is",
    "deployment.basic.data_product_region": "which region the data describe, or whose law applies",
    "deployment.basic.description": "what it is",
    "deployment.basic.publication_date": "date of the first publication, as YYYY-MM-DD",
    "deployment.basic.data_product_sector": "Technology, Healthcare, Education, Government, Energy or Finance",
    "deployment.dp_variant.variant_name": "variant of differential privacy",
    "deployment.dp_variant.data_domain": "which data are eligible for protection",
    "deployment.dp_variant.unprotected_quantities": "what in the product is not protected",
    "deployment.privacy_loss.privacy_unit": "what is protected",
    "deployment.privacy_loss.privacy_unit_details": "what adjacent data sets are",
    "deployment.privacy_loss.privacy_parameters": "epsilon, delta, rho",
    "deployment.privacy_loss.privacy_parameters_details": "more about them",
    "deployment.deployment_model.model_name": "Local, Central, Shuffle or Federated",
    "deployment.deployment_model.model_name_details": "more about it",
    "deployment.deployment_model.actors": "who takes part, and who is trusted why",
    "deployment.deployment_model.release_type": "One release or Many releases",
    "deployment.deployment_model.release_type_details": "how the loss is managed over time",
    "deployment.deployment_model.data_source_type": "Static or Dynamic",
    "deployment.deployment_model.data_source_type_details": "more about it",
    "deployment.deployment_model.access_type": "Interactive or Non-interactive",
    "deployment.deployment_model.access_type_details": "more about it",
    "deployment.accounting.post_processing": "what is done to numbers after the noise",
    "deployment.accounting.composition": "how losses add up",
    "deployment.implementation.preprocessing_and_hyperparameter_tuning": "how settings were chosen, and what that cost",
    "deployment.implementation.mechanisms": "mechanisms, library, defenses",
    "deployment.implementation.justification": "why all this was chosen",
    "deployment.administrative.sources": "papers, posts and pages about it",
    "deployment.administrative.notes": "anything else",
    "deployment.administrative.registry_authors": "who wrote this record",
}
"""Every field of the schema, by its path, and what it asks for."""
REQUIRED = ("data_curators", "intended_use", "data_product_region", "publication_date", "registry_authors")
"""Last parts of the paths of required fields that no configuration tells."""


def record_of(facts: DeploymentFacts) -> Record:
    """Make the record: nested dictionaries of the fields that can be known.

    Texts are Markdown, as the registry renders them.
    """
    found: Record = {}
    for path, value in _fields(facts):
        place = found
        *above, last = path.split(".")
        for name in above:
            place = place.setdefault(name, {})
        place[last] = escaped(value) if isinstance(value, str) and path not in _PLAIN else value
    return found


def unknown_fields(record: Record) -> list[str]:
    """List the paths of the fields of the schema that a record does not have."""
    return [path for path in FIELDS if _at(record, path) is None]


def to_registry(facts: DeploymentFacts) -> str:
    """Format the record as YAML, the unknown fields listed below it as comments."""
    record = record_of(facts)
    lines = [
        "# A record for the OpenDP Deployments Registry, from a configuration of fcstream. Read every field before you",
        "# hand it in, and add those at the end: no configuration tells them.",
        *_yaml(record, 0),
        "",
        "# Not known from the configuration:",
    ]
    for path in unknown_fields(record):
        needed = " (required)" if path.rpartition(".")[2] in REQUIRED else ""
        lines.append(f"# - {path}{needed}: {FIELDS[path]}")
    return "\n".join(lines) + "\n"


_PLAIN = (
    "url_slug",
    "status",
    "deployment.basic.name",
    "deployment.basic.data_product_type",
    "deployment.dp_variant.variant_name",
    "deployment.deployment_model.model_name",
    "deployment.deployment_model.release_type",
    "deployment.deployment_model.data_source_type",
    "deployment.deployment_model.access_type",
)


def _fields(facts: DeploymentFacts) -> Iterator[tuple[str, Any]]:
    config, job, plan = facts.config, facts.job, facts.plan
    name, unit = job.terms.stream, UNITS[facts.unit]
    findings = {block.title: block for block in hazards(facts).blocks if isinstance(block, HazardAnswer)}
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if slug:
        yield "url_slug", slug
    yield "status", "Draft"
    yield "tier", 3
    yield "deployment.basic.name", plain(name)
    products = {found.product for options in config.releases if (found := kind_description(options)) is not None}
    yield "deployment.basic.data_product_type", products.pop() if len(products) == 1 else "Summary statistics"
    what = "; ".join(dict.fromkeys(what_of(options, facts.unit) for options in config.releases))
    every = spell(job.schedule.slide_ms)
    yield (
        "deployment.basic.description",
        f"Every {every}, about the records of the last {spell(job.schedule.length_ms)}: {what}.",
    )
    yield "deployment.dp_variant.variant_name", "Zero-concentrated DP"
    read = ", ".join(code(feature.name) for feature in config.features) or "no values, only that there is a record"
    yield "deployment.dp_variant.data_domain", f"Records of a stream, each with an event time and: {read}."
    yield (
        "deployment.dp_variant.unprotected_quantities",
        "None in the releases. Public are the configuration, the schedule, the names of declared keys, levels and "
        "features."
        + (" Alarms of the service, for operators, cost besides (PRIVACY.md of the program)." * facts.is_live),
    )
    yield "deployment.privacy_loss.privacy_unit", unit[0]
    yield (
        "deployment.privacy_loss.privacy_unit_details",
        "Adjacent are two versions of the stream that differ in one unit, added or removed. "
        f"{unit[1].format(user=code(config.stream.user))}",
    )
    parameters = {"rho": facts.guarantee.rho, "delta": facts.deltas[1]}
    if facts.epsilon < float("inf"):
        parameters = {"epsilon": float(f"{facts.epsilon:.6g}"), **parameters}
    yield "deployment.privacy_loss.privacy_parameters", parameters
    listed = ", ".join(f"{number(facts.guarantee.epsilon(delta))} at {delta:g}" for delta in facts.deltas)
    year = facts.line("a year")
    yield (
        "deployment.privacy_loss.privacy_parameters_details",
        f"The cap, {facts.keeping.lasts}, is ({facts.guarantee.rho:g}, {facts.guarantee.delta:g})-zCDP: epsilon "
        f"{listed} (delta). One window costs {plan.loss}. {_capital(year.situation)}: {lost(year)} (delta = "
        f"{facts.deltas[1]:g}).",
    )
    yield "deployment.deployment_model.model_name", "Central"
    trust = findings["The trust assumptions of the threat model must hold in the real world"]
    yield "deployment.deployment_model.actors", trust.text
    yield "deployment.deployment_model.release_type", "Many releases"
    many = findings["Many analyses of the same data add up to one privacy budget"]
    yield "deployment.deployment_model.release_type_details", f"{many.text} {_resets(facts)}"
    is_file = job.clock == "eof"
    yield "deployment.deployment_model.data_source_type", "Static" if is_file else "Dynamic"
    yield "deployment.deployment_model.access_type", "Non-interactive"
    yield (
        "deployment.accounting.post_processing",
        "None that changes a published number, but for what the mechanisms say."
        + ("" if facts.keeping.forgets else " Published lines are final."),
    )
    rested = " ".join(f"{_capital(each.name)}: {each.sentence}" for each in topics(facts))
    yield "deployment.accounting.composition", f"Sums of zCDP, before anything is published. {rested}"
    parts = []
    for options, part in plans_of(facts):
        found = kind_description(options)
        text = "declared by another package" if found is None else f"{found.mechanism} (docs/design: {places(found)})"
        parts.append(f"{_capital(name_of(options))}, {part.kind}{f' {part.method}' if part.method else ''}: {text}")
    versions = ", ".join(f"{program} {version}" for program, version in facts.versions)
    side = findings["Implementations must consider side-channel vulnerabilities"].text
    yield (
        "deployment.implementation.mechanisms",
        f"{' '.join(parts)} Library: {versions}; specification {code(job.terms.specification_hash)}. {side}",
    )


def _resets(facts: DeploymentFacts) -> str:
    return "Every process begins with a whole budget." if facts.keeping.forgets else "The budget is never reset."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _at(record: Record, path: str) -> Any:
    found: Any = record
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _yaml(values: Record, depth: int) -> Iterator[str]:
    """Write nested dictionaries; texts and numbers are written as in JSON, which YAML reads as they are.

    But for numbers like 1e-06: older readers of YAML take them for texts unless they have a point.
    """
    for name, value in values.items():
        if isinstance(value, dict):
            yield f"{'  ' * depth}{name}:"
            yield from _yaml(value, depth + 1)
        else:
            text = json.dumps(value, ensure_ascii=False)
            if isinstance(value, float) and "." not in text:
                text = text.replace("e", ".0e")
            yield f"{'  ' * depth}{name}: {text}"
