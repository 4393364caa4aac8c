"""Reasons of refusals and of missing intervals. Each is a function of public facts and released values."""

from __future__ import annotations


def too_scattered(radius: str) -> str:
    """Return what to do where no core is found, by the name of the key that is the radius."""
    return (
        f"there are enough records, but too few of them lie within `release.{radius}` of most others: raise "
        f"`{radius}`, raise the features' `scale`, or say by `outliers` how many lie elsewhere"
    )


HINTS = {
    "too_few": (
        "the noisy number of records is too small for this budget: use longer windows, raise `release.rho`, or lower "
        "`release.size_hint` if windows hold fewer records; `fcstream plan` shows the smallest usable window"
    ),
    "no_core": too_scattered("radius"),
    "no_match": (
        "parts of the window do not agree on where its clusters are: ask for fewer (`release.k`), leave out features "
        "that do not tell clusters apart, raise `release.rho`, or use longer windows"
    ),
    "no_radius": (
        "parts of the window do not even agree on how far apart its clusters are: ask for fewer (`release.k`), raise "
        "`release.rho`, or use longer windows"
    ),
    "too_many": "the window holds more records than `window.max_records`: raise it, or use shorter windows",
    "too_many_values": (
        "the window holds more different texts than `release.max_values`, or a search for keys more than "
        "`stream.keys.max_values`: raise it, or use shorter windows"
    ),
    "budget_exhausted": (
        "the budget has no room for another window: `fcstream budget show` shows how it was spent; a new stream needs "
        "a new budget"
    ),
    "state_lost": (
        "the ledger has lost what earlier windows of the epoch left for this one (was it restored from a copy without "
        "its private tables?): nothing was charged, and totals begin again with the next epoch"
    ),
    "interrupted": (
        "the process died twice between the charge and the seal, or, where keys share budgets, the key was added after "
        "the window had been charged: the charge stays, nothing was released"
    ),
}
"""What to do about a refusal, by its reason, unless the kind of release has a hint of its own."""
REASONS = tuple(HINTS)

NO_INTERVAL = {
    "left_out": (
        "records that lie far from the others were left out, and what was released does not tell where they lie: no "
        "interval holds the value of all records"
    ),
    "clipped": (
        "records were moved into a public ball or range, and what was released does not tell how many, and how far"
    ),
    "clusters": (
        "which records belong to a cluster was found from noisy numbers, and those far from its center were left out "
        "or moved: there is no number of all records that an interval could hold"
    ),
    "range_too_wide": (
        "records were moved or left out, and in public ranges as wide as these they may lie so far away that an "
        "interval says nothing: give features a range that fits"
    ),
}
"""Why a released number has no interval, by the word that ``parts.no_interval`` has for it."""
LEFT_OUT = {"value": "left_out"}
"""What means that leave records out have in ``parts.no_interval``."""
