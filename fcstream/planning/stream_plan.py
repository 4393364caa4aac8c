"""What a configuration will cost and give, as a document for people and for programs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ..accounting.losses import PrivacyLoss
from ..releases.base import percent
from ..runtime.words import many

USUAL_SIZE = 1000
"""Number of records of a window for which noise is reported if there is no `size_hint`."""
_OF_AN_ANSWER = ("kind", "method", "size_hint", "probability", "sigma", "smallest_size", "stopped", "false_release")
"""Keys of a plan's JSON that only a plan of one answer has."""
_OF_A_STREAM = frozenset(
    (
        *(
            "stream",
            "unit",
            "per_record",
            "guarantee",
            "key_share",
            "lasts",
            "windows_per_day",
            "windows",
            "epsilon_delta",
        ),
        *("epsilon_guarantee", "epsilon_day", "epsilon_year", "lasting_windows", "savings", "saved_rho"),
        *("saved_sigma", "total", "total_key_share", "keys", "keys_per_user", "search", "warnings"),
    )
)
"""Keys that are about the whole stream."""


@dataclass(frozen=True, slots=True)
class KeySearch:
    """Forecast of the search for the keys of a period.

    Attributes
    ----------
    windows : int
        Number of windows in a period.
    loss : PrivacyLoss
        What one search costs.
    threshold : int
        The least noisy number that makes a text a key.
    nearly_always : int
        How many records (with the unit ``user``: users) of a period a text needs to be found with probability 99%.
    most : int or None
        How many different texts (users) a period may hold.
    """

    windows: int
    loss: PrivacyLoss
    threshold: int
    nearly_always: int
    most: int | None

    def as_dict(self) -> dict[str, Any]:
        return {own.name: getattr(self, own.name) for own in fields(self)} | {"loss": self.loss.as_dict()}

    def lines(self, unit: str) -> list[str]:
        """Format the forecast for people."""
        points = points_of(unit)
        found = [
            "keys are found, none is declared but for the first period: everything below is about one of them",
            f"after every {many(self.windows, 'window')} a search costs {self.loss}: a key that {self.nearly_always} "
            f"{points} of these have is found with probability 99%, from a noisy number of {self.threshold} on, and is "
            "answered until the next search",
        ]
        if self.most is not None:
            what = "different keys" if unit == "event" else "users"
            found.append(f"searches among more than {self.most} {what} are refused, and the keys stay as they were")
        return found


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """Forecast of one configuration. `lines` formats it for people, `as_dict` for programs.

    Attributes
    ----------
    probability : float or None
        Chance that a window of `size_hint` records that are all friends releases a value. None where `size_hint` is
        missing and not every window releases, or where it depends on the data: see `chance`.
    sigma : dict
        Expected noise deviations by name: of a mean per coordinate, in the features' own (transformed) units, and with
        what the coins of a core add to it.
    smallest_size : int or None
        Smallest `size_hint` whose windows release with 99%; None if no size up to 2**40 does.
    stopped : PrivacyLoss or None
        What a window costs that stops at its noisy size; the rest is refunded.
    savings : str
        How refunds of earlier windows are offered to later ones.
    saved_rho, saved_sigma : float or None
        If every other window stops at its size: the largest rho offered to one, and its noise relative to the first's.
    guarantee : PrivacyLoss
        What one unit can lose for as long as `lasts` says, under all keys together.
    lasts : str
        How long the ledger knows what was spent: ``for ever``, or in one process only.
    key_share : PrivacyLoss or None
        The part of the guarantee that each key may spend, where keys divide it.
    epsilon_day, epsilon_year : float
        What somebody who is there in every window, under as many keys as possible, would lose without a cap.
    total, total_key_share : PrivacyLoss or None
        The same for the sum of all windows, if that has a cap.
    ends_with_total : bool
        Whether `lasting_windows` is for how many windows the total lasts.
    name : str or None
        The answer that the plan is about, if it has a name.
    answers : tuple of StreamPlan
        Of a stream with several answers: a plan of each. Then the fields above that are about one answer are not set,
        and `loss` is what a whole window costs.
    keys, keys_per_user : int or None
        For a stream with keys; the plan is about one of them.
    keys_chosen : int or None
        Under how many keys of a window a user counts, where users have one filter for all keys.
    search : KeySearch or None
        For a stream that finds its keys.
    group : str or None
        The group whose streams share the budget.
    notes, facts : list of str, dict
        What the kind of release adds, for people and for programs.
    false_release : float or None
        Largest probability that a window without records releases a value; None where every window releases one.
    case : str
        The kind of records for which `probability` and `smallest_size` hold.
    chance : str
        What decides whether windows release, where no probability can be given.
    """

    stream: str
    kind: str
    method: str | None
    unit: str
    size_hint: int | None
    probability: float | None
    sigma: dict[str, float]
    smallest_size: int | None
    loss: PrivacyLoss
    per_record: PrivacyLoss
    guarantee: PrivacyLoss
    lasts: str
    windows_per_day: float
    windows: int | None
    epsilon_delta: float
    epsilon_guarantee: float
    epsilon_release: float
    epsilon_day: float
    epsilon_year: float
    lasting_windows: int | None
    stopped: PrivacyLoss | None = None
    savings: str = "none"
    saved_rho: float | None = None
    saved_sigma: float | None = None
    key_share: PrivacyLoss | None = None
    total: PrivacyLoss | None = None
    total_key_share: PrivacyLoss | None = None
    ends_with_total: bool = False
    notes: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    case: str = ""
    chance: str = ""
    keys: int | None = None
    keys_per_user: int | None = None
    keys_of_a_person: int = 1
    keys_chosen: int | None = None
    search: KeySearch | None = None
    group: str | None = None
    warnings: list[str] = field(default_factory=list)
    false_release: float | None = None
    name: str | None = None
    answers: tuple[StreamPlan, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        values = {own.name: getattr(self, own.name) for own in fields(self)}
        del values["answers"]
        if self.name is None:
            del values["name"]
        if self.answers:
            for name in _OF_AN_ANSWER:
                values.pop(name, None)
            values["answers"] = [
                {name: value for name, value in answer.as_dict().items() if name not in _OF_A_STREAM}
                for answer in self.answers
            ]
        values |= values.pop("facts")
        values.pop("case")
        values.pop("ends_with_total")
        values.pop("chance")
        if self.keys is None:
            del values["keys"], values["keys_per_user"]
        values.pop("keys_of_a_person")
        for name in ("group", "keys_chosen", "search", "key_share", "total_key_share"):
            if values[name] is None:
                del values[name]
        if self.search is not None:
            values["search"] = self.search.as_dict()
        for name in ("loss", "per_record", "guarantee", "key_share", "stopped", "total", "total_key_share"):
            if (loss := values.get(name)) is not None:
                values[name] = loss.as_dict()
        return {k: (None if isinstance(v, float) and not math.isfinite(v) else v) for k, v in values.items()}

    def lines(self) -> list[str]:
        """Format the plan for people."""
        what = f"{len(self.answers)} answers" if self.answers else self._what()
        lines = [f"stream {self.stream!r}: {what} per window, unit {self.unit!r}", *self._key_lines()]
        for answer in self.answers:
            lines.append(f"answer {answer.name!r}: {answer._what()}, costs {answer.loss}")
            lines += [f"  {line}" for line in answer._answer_lines()]
        if not self.answers:
            lines += self._answer_lines()
        lines += self.notes if self.answers else []
        delta = f"{self.epsilon_delta:g}"
        one = "all answers of a window together cost" if self.answers else "one release costs"
        lines += [
            f"{one} {self.loss}, epsilon {short(self.epsilon_release)} at delta {delta}",
            *self._saving_lines(),
            *self._cost_lines(),
            f"guarantee {self.lasts}: {self.guarantee}, epsilon {short(self.epsilon_guarantee)} at delta {delta}"
            + _shared(self.key_share),
        ]
        if self.total is not None:
            lines.append(f"and the sum of all windows stays within {self.total}{_shared(self.total_key_share)}")
        if self.group is not None:
            lines.append(
                f"that is one budget for all streams of group {self.group!r} in the ledger: what the others spend is "
                "missing here"
            )
        return lines + [f"warning: {text}" for text in self.warnings]

    def _what(self) -> str:
        return f"{self.kind} ({self.method})" if self.method else self.kind

    def _answer_lines(self) -> list[str]:
        """Describe what one answer gives."""
        lines = [*self._release_lines(), *self.notes]
        if self.smallest_size != 1:
            smallest = (
                "no size" if self.smallest_size is None else f"{self.smallest_size} {points_of(self.unit)}{self.case}"
            )
            lines.append(f"smallest usable window (99%, with `size_hint` set to it): {smallest}")
        return [*lines, self._empty_line()]

    def _empty_line(self) -> str:
        points = points_of(self.unit)
        if self.false_release is None:
            return f"a window without {points} is released like any other"
        if self.false_release == 0:
            return f"a window without {points} never releases a value"
        return f"a window without {points} releases a value with probability {self.false_release:.1e} at most"

    def _release_lines(self) -> list[str]:
        """Describe how often windows release, as far as public numbers show, and with how much noise."""
        points = points_of(self.unit)
        at = f" of {self.size_hint} {points}" if self.size_hint else ""
        noise = _noise(self.sigma, "" if self.size_hint else f" at {USUAL_SIZE} {points}")
        if self.chance:
            return [f"a window{at} releases {self.chance}", noise]
        if self.probability is None:
            return [f"how often windows release is not known without `size_hint`; {noise}"]
        return [f"a window{at} releases with probability {percent(self.probability)}; {noise}"]

    def _key_lines(self) -> list[str]:
        if self.keys is None and self.search is None:
            return []
        lines = [
            f"{self.keys} keys, each released by itself: what follows is about one of them, the last lines about all"
        ]
        lines = lines if self.search is None else self.search.lines(self.unit)
        if self.keys_chosen is not None:
            lines.append(
                f"a user counts under at most {self.keys_chosen} of them in a window, and every window costs each of "
                f"its users {self.loss * self.keys_chosen}"
            )
        elif self.group is not None:
            lines.append("all of them share `budget`: a user under several keys spends it the faster")
        elif self.unit != "event":
            whom = "user" if self.unit == "user" else "protected set of records"
            lines.append(
                f"each has `budget` divided by {self.keys_per_user}: a {whom} may lie under so many keys, and no more"
            )
        return lines

    def _saving_lines(self) -> list[str]:
        lines = []
        if self.stopped is not None:
            lines.append(f"a window that its noisy size shows to be too small costs {self.stopped}; the rest goes back")
        if self.saved_rho is not None and self.saved_sigma is not None:
            lines.append(
                f"savings ({self.savings}): if every other window is too small, others may spend up to rho "
                f"{short(self.saved_rho)}, with {short(self.saved_sigma)} of the noise"
            )
        return lines

    def _cost_lines(self) -> list[str]:
        day, year = self.windows_per_day, self.windows_per_day * 365
        under = f" under each of {self.keys_of_a_person} keys" if self.keys_of_a_person > 1 else ""
        daily = (
            f"{day:g} window{'' if day == 1 else 's'} a day{under}, epsilon {short(self.epsilon_day)}; {year:g} a year"
        )
        if self.unit == "event":
            what = "" if self.search is None else ", the search for keys included"
            cap = "the unit 'event' does not cap that"
            if self.total is not None:
                cap = f"`budget.total_rho` caps that: it lasts {many(self.lasting_windows or 0, 'window')}"
            return [
                f"one record costs at most {self.per_record} of its budget{what}, however long the stream runs",
                f"a participant with a record in every window: {daily}, epsilon {short(self.epsilon_year)} ({cap})",
            ]
        lasting = self.lasting_windows or 0
        whose = "the stream's budget" if self.unit == "stream" else "the budget of a user present in every window"
        whose = "the total" if self.ends_with_total else whose
        return [
            f"{whose} lasts {many(lasting, 'window')} ({short(lasting / day)} days)",
            f"without that cap: {daily}, epsilon {short(self.epsilon_year)}",
        ]


def _shared(share: PrivacyLoss | None) -> str:
    return "" if share is None else f", under all keys together; each key may spend {share} of it"


def points_of(unit: str) -> str:
    """Return what a window counts: records or users."""
    return "users" if unit == "user" else "records"


def _noise(sigma: Mapping[str, float], at: str) -> str:
    """Describe the noise of the parts of a value, of which nan stands for what depends on the records."""
    known = ", ".join(f"{name} {short(value)}" for name, value in sigma.items() if not math.isnan(value))
    unknown = ", ".join(name for name, value in sigma.items() if math.isnan(value))
    told = [f"noise (standard deviation){at}: {known}"] if known else []
    return "; ".join([*told, f"only the data tell the noise of {unknown}"] if unknown else told)


def short(value: float) -> str:
    return "unbounded (delta is used up)" if math.isinf(value) else f"{value:.3g}"
