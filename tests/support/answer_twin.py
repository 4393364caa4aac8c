"""A slow, obvious twin of an engine without noise: what each answer of each window of a drawn stream must be."""

from __future__ import annotations

import hashlib
import itertools
import unicodedata
from typing import Any, NamedTuple

from support.drawn_streams import ASKED_APPS, EDGES, END_MS, LATENESS_MS, LENGTH_MS, LEVELS, STEP, Record
from support.naive import chosen_keys

SLIDES_MS = {None: LENGTH_MS, "5s": 5_000, "2s": 2_000}
Place = tuple[str | None, int, int]
"""Key, opening of the window, place of the answer."""


class Wanted(NamedTuple):
    """What must be released: numbers, or one of some reasons (None: no reason, but numbers).

    Without `value`, any numbers will do: the twin does not follow a recentered mean beyond its record gate.
    """

    reasons: tuple[str | None, ...]
    value: list[float] | None = None


# -- the whole stream --------------------------------------------------------------------------------------------------


def wanted_releases(mapping, job, records: list[Record], salts, interrupted=frozenset()) -> dict[Place, Wanted]:
    """What must be released about every window.

    Parameters
    ----------
    mapping, job
        The configuration; of the job, only what answers cost is read, and how large the budget of a key is.
    records : list of Record
    salts : dict
        The secret of each key's ledger.
    interrupted : set of (key, opening)
        Windows that were charged, and failed twice: they have no numbers, and totals lack them.
    """
    stream, answers = mapping["stream"], mapping["release"]
    keys = stream.get("keys", [None])
    loss, capacity = window_loss(mapping, job)[0], job.terms.capacity.rho_nano
    windows = {open_ms: [] for open_ms in openings(mapping)}
    for record in records:
        for open_ms in windows_of(mapping, record):
            windows[open_ms].append(record)
    spent: dict[Any, int] = {}
    totals: dict[Any, float] = {}
    wanted = {}
    for index, (open_ms, everybody) in enumerate(windows.items()):
        here = {key: [record for record in everybody if key in (None, record.key)] for key in keys}
        taking_part = users_taking_part(mapping, open_ms, here, salts, spent, loss, capacity)
        for key in keys:
            is_paid = stream["unit"] != "stream" or pay(spent, key, loss, capacity)
            is_paid = is_paid and taking_part.get(key, ()) is not None
            for place, answer in enumerate(answers):
                at = (key, open_ms, place)
                if not is_paid:
                    wanted[at] = Wanted(("budget_exhausted",))
                elif (key, open_ms) in interrupted:
                    wanted[at] = Wanted(("interrupted",))
                else:
                    mine = [record for record in here[key] if matches(answer, record.values)]
                    points = [record.values for record in mine]
                    if stream["unit"] == "user":
                        points = points_of_users(mapping, answer, mine, taking_part[key])
                    wanted[at] = wanted_answer(mapping, answer, job.answers[place].mechanism, points)
                if answer["kind"] == "total" and wanted[at].value is not None:
                    epoch = (key, place, index // answer["epoch"])
                    totals[epoch] = totals.get(epoch, 0.0) + len(points)
                    wanted[at] = Wanted((None,), [totals[epoch]])
    return wanted


def openings(mapping) -> range:
    """When windows open that close before the end."""
    return range(0, END_MS - LENGTH_MS + 1, SLIDES_MS[mapping["window"].get("slide")])


def windows_of(mapping, record: Record) -> list[int]:
    """The windows that hold a record's time and for which it is not late."""
    return [
        open_ms
        for open_ms in openings(mapping)
        if open_ms <= record.time_ms < open_ms + LENGTH_MS
        and (mapping["window"]["clock"] == "eof" or record.arrival_ms <= open_ms + LENGTH_MS + LATENESS_MS)
    ]


# -- who is about what, and who pays -----------------------------------------------------------------------------------


def composed(text: str) -> str:
    """A text in the one way to write it that counts."""
    return unicodedata.normalize("NFC", text)


def matches(answer, values: dict[str, Any]) -> bool:
    """Whether a record with these values belongs to an answer."""
    for feature, condition in answer.get("where", {}).items():
        if feature == "speed":
            if not condition.get("min", 0.0) <= values["speed"] <= condition.get("max", 100.0):
                return False
        elif feature == "app":
            if composed(values["app"]) not in condition:
                return False
        elif values[feature] not in condition:
            return False
    return True


def window_loss(mapping, job) -> tuple[int, int]:
    """What a window costs: all answers for a user, and else those of the record that belongs to the dearest ones."""
    losses = [answer.mechanism.loss.parts for answer in job.answers]
    if mapping["stream"]["unit"] == "user":
        paid = [losses]
    else:
        bounds = [b for answer in mapping["release"] for b in answer.get("where", {}).get("speed", {}).values()]
        speeds = {min(max(bound + step, 0.0), 100.0) for bound in (0.0, *bounds) for step in (-STEP, 0.0, STEP)}
        names = ("speed", "on", "status", "app")
        every_record = itertools.product(speeds, ["false", "true"], LEVELS, [*ASKED_APPS, "another"])
        paid = []
        for record in every_record:
            values = dict(zip(names, record, strict=True))
            paid.append([losses[i] for i, answer in enumerate(mapping["release"]) if matches(answer, values)])
    return max(sum(rho for rho, _ in some) for some in paid), max(sum(delta for _, delta in some) for some in paid)


def pay(spent: dict[Any, int], payer: Any, loss: int, capacity: int) -> bool:
    """Take a loss from somebody's budget, if it fits."""
    fits = spent.get(payer, 0) + loss <= capacity
    if fits:
        spent[payer] = spent.get(payer, 0) + loss
    return fits


def user_key(salt: bytes, user: str) -> bytes:
    """A user's name as the ledger knows it."""
    return hashlib.blake2b(user.encode(), digest_size=16, key=salt).digest()


def users_taking_part(mapping, open_ms: int, here, salts, spent, loss: int, capacity: int):
    """By key, the users with a record that some answer is about; None if the window has no room in the one budget.

    That is the budget of somebody in every window. One that has room for the window pays, whoever is there.
    """
    stream = mapping["stream"]
    if stream["unit"] != "user":
        return {}
    users = {
        key: {record.user for record in mine if any(matches(answer, record.values) for answer in mapping["release"])}
        for key, mine in here.items()
    }
    if stream.get("key_budgets") != "shared":
        return {key: mine if pay(spent, key, loss, capacity) else None for key, mine in users.items()}
    # One budget for all keys: a window pays for as many as may count, and users count under those of the least hash.
    most = stream["keys_per_user"]
    if not pay(spent, "all keys", most * loss, capacity):
        return dict.fromkeys(users)
    found: dict[str, set[str]] = {key: set() for key in users}
    for user in set().union(*users.values()):
        salt = salts[stream["keys"][0]]
        own = [key for key, mine in users.items() if user in mine]
        for key in chosen_keys(salt, user_key(salt, user), open_ms, own, most):
            found[key].add(user)
    return found


# -- users' points -----------------------------------------------------------------------------------------------------


def points_of_users(mapping, answer, records: list[Record], users) -> list[dict[str, Any]]:
    """One point for each of some users, from that user's records."""
    per_user = answer.get("per_user", mapping["stream"]["per_user"])
    by_user: dict[str, list[Record]] = {}
    for record in records:
        if record.user in users:
            by_user.setdefault(record.user, []).append(record)
    return [point_of_user(mapping, own, per_user) for own in by_user.values()]


def point_of_user(mapping, records: list[Record], per_user: str) -> dict[str, Any]:
    """The earliest record's values (of the least point), or the sums, or the means on the lattice, halves up."""
    if per_user == "first":
        return min(records, key=lambda record: (record.time_ms, lattice_point(mapping, record.values))).values
    point = {}
    for feature in ("speed", "load"):
        total, number = sum(round(record.values[feature] / STEP) for record in records), len(records)
        point[feature] = total * STEP if per_user == "sum" else (2 * total + number) // (2 * number) * STEP
    return point


def lattice_point(mapping, values: dict[str, Any]) -> list[float]:
    """A record's coordinates, texts last: by their place among those that answers ask for."""
    point = []
    for feature in mapping["features"]:
        value = values[feature["name"]]
        if feature.get("type") == "boolean":
            point.append(["false", "true"].index(value))
        elif feature.get("type") == "category":
            point.append(LEVELS.index(value))
        elif feature.get("type") != "text":
            point.append(value)
    asked = sorted({text for answer in mapping["release"] for text in answer.get("where", {}).get("app", [])})
    if asked:
        text = composed(values["app"])
        point.append(asked.index(text) if text in asked else -1)
    return point


# -- one answer --------------------------------------------------------------------------------------------------------


def wanted_answer(mapping, answer, mechanism, points: list[dict[str, Any]]) -> Wanted:
    """What one answer must say of its points; a total, of this window alone."""
    if answer.get("method") == "recentered":
        too_many = len(points) > mapping["window"]["max_records"]
        return Wanted(("too_many",) if too_many else (None, "too_few", "no_core"))
    if answer["kind"] in ("count", "total"):
        return Wanted((None,), [float(len(points))])
    values = [point[answer["features"][0]] for point in points]
    if "user_bounds" in answer:
        least, most = answer["user_bounds"]
        values = [min(max(value, least), most) for value in values]
    if answer["kind"] == "sum":
        return Wanted((None,), [float(sum(values))])
    if answer["kind"] == "histogram":
        bins = [0.0] * (len(EDGES) + 1)
        for value in values:
            bins[sum(value >= edge for edge in EDGES)] += 1
        return Wanted((None,), bins)
    assert answer["method"] == "ball"
    if len(values) < mechanism.average.smallest:
        return Wanted(("too_few",))
    return Wanted((None,), [sum(values) / len(values)])


# -- comparison --------------------------------------------------------------------------------------------------------


def compare(releases, wanted: dict[Place, Wanted], about: str) -> None:
    """Every window and answer has one release, and it says what it must."""
    found = {(each.key, each.window_open_ms, each.place or 0): each for each in releases}
    assert len(found) == len(releases), f"{about}: two releases of one window and answer"
    assert found.keys() == wanted.keys(), about
    for at, (reasons, value) in wanted.items():
        release = found[at]
        assert release.reason in reasons, f"{about}, {at}: {release.reason}, not one of {reasons}"
        assert (release.value is None) == (release.reason is not None), f"{about}, {at}"
        if value is not None:
            differences = [abs(mine - other) for mine, other in zip(release.value, value, strict=True)]
            assert max(differences) < 1e-6, f"{about}, {at}: {release.value}, not {value}"
