"""What a rehearsal found: how far seeded releases lay from the truth, as noise and bias, and what was refused.

Exact errors tell about the data, so nothing here may be published unless the data may be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..runtime.words import many, were

NOTICE = (
    "not private, not for publication: these are exact errors against the true values, and the seeds of the noise are "
    "known"
)
"""Stands in every text, picture and file of a rehearsal."""
MAX_ROWS = 12
"""Largest number of numbers of an answer that a text shows one by one; of more, it shows the worst ones."""


@dataclass(frozen=True, slots=True)
class NumberErrors:
    """Errors of one released number against its truth, over windows and seeds.

    Attributes
    ----------
    name : str
        Which number it is, as `fcstream.releases.long_form` names it; of a quantile also ``rank of 0.5``, in shares of
        the records.
    windows, releases : int
        How many windows, and how many releases of them, are compared.
    error : float
        Root-mean-square error: its square is that of noise plus that of bias, but for the rounding of a bias below 0.
    noise : float
        What differs between seeds: root-mean-square deviation from the window's own average over seeds.
    bias : float
        What is the same for all seeds: root-mean-square over windows of the distance between that average and the
        truth. What the noise adds to it is subtracted.
    mean_error, mean_error_sigma : float
        Average of all errors, with its sign, and the deviation of that average's noise.
    sigma : float or None
        Root-mean-square of the ``sigma`` that the releases state.
    planned : float or None
        What `fcstream plan` predicts for windows of these sizes.
    """

    name: str
    windows: int
    releases: int
    error: float
    noise: float
    bias: float
    mean_error: float
    mean_error_sigma: float
    sigma: float | None = None
    planned: float | None = None

    @classmethod
    def of(
        cls,
        name: str,
        errors: Sequence[Sequence[float]],
        sigmas: Sequence[float] = (),
        planned: Sequence[float] = (),
    ) -> NumberErrors:
        """Divide errors into noise and bias.

        Parameters
        ----------
        name : str
        errors : sequence of sequences of float
            Of each window that was released at least once, the error of each seed that released it; of some window at
            least two.
        sigmas : sequence of float
            What the releases state.
        planned : sequence of float
            What is predicted for each window.
        """
        means = [math.fsum(own) / len(own) for own in errors]
        pairs = list(zip(errors, means, strict=True))
        degrees = sum(len(own) - 1 for own in errors)
        around = math.fsum((x - mean) ** 2 for own, mean in pairs for x in own)
        variance = around / degrees if degrees else math.nan
        left = math.fsum(variance / len(own) for own in errors) / len(errors)
        bias_squared = math.fsum(mean * mean for mean in means) / len(means) - left
        squares = math.fsum(math.fsum(x * x for x in own) / len(own) for own in errors) / len(errors)
        return cls(
            name,
            len(errors),
            sum(map(len, errors)),
            math.sqrt(squares),
            math.sqrt(variance),
            math.sqrt(max(0.0, bias_squared)),
            math.fsum(means) / len(means),
            math.sqrt(left / len(means)),
            root_mean_square(sigmas),
            root_mean_square(planned),
        )


def root_mean_square(values: Sequence[float]) -> float | None:
    """Return the root of the mean square of some numbers; None if there are none, or one of them is not finite."""
    if not values or not all(map(math.isfinite, values)):
        return None
    return math.sqrt(math.fsum(x * x for x in values) / len(values))


@dataclass(frozen=True, slots=True)
class AnswerErrors:
    """What a rehearsal found about one answer.

    Attributes
    ----------
    name : str
        ``release.name``, or the kind.
    kind : str
    note : str
        Why errors are missing, or what they are measured by; may be empty.
    released : int
        Number of releases with a value, of all windows and seeds.
    refused : dict of str to int
        Number of refusals by reason.
    expected : float or None
        Share of releases that `fcstream plan` predicts for windows of these sizes.
    numbers : tuple of NumberErrors
    """

    name: str
    kind: str
    note: str
    released: int
    refused: dict[str, int]
    expected: float | None
    numbers: tuple[NumberErrors, ...]

    @property
    def share(self) -> float:
        """Share of windows and seeds that were released."""
        return self.released / max(1, self.released + sum(self.refused.values()))

    def lines(self) -> list[str]:
        """Format it for people."""
        refused = ", ".join(f"{reason} {count}" for reason, count in sorted(self.refused.items()))
        of = self.released + sum(self.refused.values())
        expected = "" if self.expected is None else f"; plan expects {self.expected:.1%}"
        lines = [
            f"answer {self.name!r} ({self.kind}): released {self.released} of {of} ({self.share:.1%}){expected}; "
            f"refused: {refused or 'none'}"
        ]
        lines += [f"  {self.note}"] if self.note else []
        if not self.numbers:
            return lines
        shown = list(self.numbers)
        if len(shown) > MAX_ROWS:
            worst = sorted(range(len(shown)), key=lambda i: -shown[i].error)[:MAX_ROWS]
            lines.append(f"  the {MAX_ROWS} of {len(shown)} numbers with the largest errors")
            shown = [shown[i] for i in sorted(worst)]
        width = max(len("number"), *(len(each.name) for each in shown))
        head = "".join(f"{title:>12}" for title in ("error", "noise", "bias", "mean error", "+-", "sigma", "plan"))
        lines.append(f"  {'number':<{width}}{head}")
        for each in shown:
            values = (each.error, each.noise, each.bias, each.mean_error, each.mean_error_sigma)
            cells = "".join(f"{_short(value):>12}" for value in (*values, each.sigma, each.planned))
            lines.append(f"  {each.name:<{width}}{cells}")
        return lines

    def as_dict(self) -> dict[str, Any]:
        """Return it for programs; numbers that are not finite are None."""
        found = {name: getattr(self, name) for name in ("name", "kind", "note", "released", "refused", "expected")}
        return found | {"share_released": self.share, "numbers": [_finite(asdict(each)) for each in self.numbers]}


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """A rehearsal with one setting changed.

    Attributes
    ----------
    factor : float
        What the setting was multiplied with.
    setting : tuple of float
        What it became, of each answer; of windows their length in seconds.
    answers : tuple of AnswerErrors
        Empty if the setting cannot be used.
    problem : str
        Why it cannot be used.
    """

    factor: float
    setting: tuple[float, ...]
    answers: tuple[AnswerErrors, ...]
    problem: str = ""

    def as_dict(self) -> dict[str, Any]:
        found = {"factor": self.factor, "setting": list(self.setting), "problem": self.problem}
        return found | {"answers": [each.as_dict() for each in self.answers]}


@dataclass(frozen=True, slots=True)
class Curve:
    """Rehearsals along one setting: ``rho``, ``length`` or ``radius``; the points ascend."""

    axis: str
    points: tuple[CurvePoint, ...]

    def relative(self, place: int) -> list[tuple[CurvePoint, float, float, float]]:
        """Return points with error, noise and bias of one answer, in parts of the error as configured.

        Of several numbers it is the root-mean-square of each in parts of its own error. Where the configuration itself
        released nothing, the point nearest to it stands in its place. Points without a value are left out.
        """
        have = [point for point in self.points if point.answers and point.answers[place].numbers]
        if not have:
            return []
        base = min(have, key=lambda point: abs(math.log(point.factor)))
        units = {each.name: each.error for each in base.answers[place].numbers if each.error > 0}
        found = []
        for point in have:
            those = [each for each in point.answers[place].numbers if each.name in units]
            parts = [
                root_mean_square([getattr(each, what) / units[each.name] for each in those])
                for what in ("error", "noise", "bias")
            ]
            if parts[0] is not None and parts[1] is not None and parts[2] is not None:
                found.append((point, parts[0], parts[1], parts[2]))
        return found

    def lines(self, names: Sequence[str]) -> list[str]:
        """Format it for people; `names` are those of the answers."""
        what = {"rho": "rho", "length": "window length, s", "radius": "radius"}[self.axis]
        lines = [f"along {what} (error, noise and bias in parts of the error as configured):"]
        for place, name in enumerate(names):
            values = {id(point): rest for point, *rest in self.relative(place)}
            for point in self.points:
                setting = _short(point.setting[min(place, len(point.setting) - 1)])
                if not point.answers:
                    text = f"cannot be used: {point.problem}"
                elif id(point) in values:
                    error, noise, bias = values[id(point)]
                    text = f"error {error:.3g}, noise {noise:.3g}, bias {bias:.3g}"
                    text += f", released {point.answers[place].share:.0%}"
                else:
                    text = f"no errors, released {point.answers[place].share:.0%}"
                lines.append(f"  {name}: {setting:>8}  {text}")
        return lines


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A rehearsal of one configuration. `lines` formats it for people, `as_dict` for programs.

    Attributes
    ----------
    stream, unit : str
    data : str
        Where the records come from.
    made_up : bool
        Whether they were made up from the declared ranges.
    seeds : tuple of int
        Of the noise of each run.
    windows : int
        Number of windows, of all keys together, in each run.
    left_out : int
        Number of further windows of the data that were not rehearsed.
    sizes : tuple of int
        Smallest, median and largest number of records (users, where they are counted) of a window.
    rejected : dict of str to int
        Number of records that could not be used, by reason.
    answers : tuple of AnswerErrors
    curves : tuple of Curve
    """

    stream: str
    unit: str
    data: str
    made_up: bool
    seeds: tuple[int, ...]
    windows: int
    left_out: int
    sizes: tuple[int, int, int]
    rejected: dict[str, int]
    answers: tuple[AnswerErrors, ...]
    curves: tuple[Curve, ...] = field(default=())

    def lines(self) -> list[str]:
        """Format it for people."""
        least, median, most = self.sizes
        points = "users" if self.unit == "user" else "records"
        lines = [
            NOTICE.upper(),
            f"rehearsal of stream {self.stream!r} on {self.data}",
            f"{many(self.windows, 'window')} of {least} to {most} {points} (median {median}), each with "
            f"{len(self.seeds)} seeds, {self.seeds[0]} to {self.seeds[-1]}",
        ]
        if self.left_out:
            further = many(self.left_out, "further window")
            lines.append(f"{further} of the data {were(self.left_out)} left out: --windows takes more")
        if self.made_up:
            lines.append(SYNTHETIC)
        if self.rejected:
            lines.append(f"rejected records: {_counts(self.rejected)}")
        for answer in self.answers:
            lines += answer.lines()
        for curve in self.curves:
            lines += curve.lines([answer.name for answer in self.answers])
        return [*lines, NOTICE]

    def as_dict(self) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "notice": NOTICE,
            "publishable": False,
            "private": False,
            "stream": self.stream,
            "unit": self.unit,
            "data": self.data,
            "made_up": self.made_up,
            "seeds": list(self.seeds),
            "windows": self.windows,
            "left_out": self.left_out,
            "sizes": dict(zip(("smallest", "median", "largest"), self.sizes, strict=True)),
            "rejected": self.rejected,
            "answers": [each.as_dict() for each in self.answers],
            "curves": {curve.axis: [point.as_dict() for point in curve.points] for curve in self.curves},
        }


SYNTHETIC = (
    "the records are made up from the declared ranges: these are the errors of made-up data, and yours may be more "
    "skewed, with other outliers and other sizes of windows"
)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


def _short(value: float | None) -> str:
    return "-" if value is None or not math.isfinite(value) else f"{value:.4g}"


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}
