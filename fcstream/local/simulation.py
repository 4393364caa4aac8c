"""Millions of devices in one process, as arrays, with the same questions, noise and privacy filters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..accounting.losses import EPSILON_UNIT, RHO_UNIT, DPLoss, PrivacyLoss, zcdp_of_geo
from ..errors import ConfigError
from ..noise.samplers import Noise
from .device.device import LocalFilter, answer_all
from .protocol import Ask, decoded
from .queries.elimination import Question
from .spaces import Space


class Simulation:
    """Many devices as arrays. It draws the same noise as real devices that share its source of noise.

    Parameters
    ----------
    components : mapping
        Space and lattice points, int64 (n, d), by component; n is the same for all.
    capacity : PrivacyLoss or DPLoss
        Every device's budget: concentrated, or pure geo-privacy.
    noise : Noise, optional
        Leave it out if the points belong to real people; `SeededEntropy` is for made-up points. Every noisy value
        counts as released, whether or not it is shown.

    Privacy
    -------
    Each device's replies together cost at most `capacity`, as with `LocalFilter`. Nothing is kept on disk, so the
    guarantee holds within one process.

    Complexity
    ----------
    About 0.1 microseconds a noisy coordinate.

    Source
    ------
    Specification 11.4; proofs 10.1, 10.4; Liang and Yi 2025, Algorithm 1, n times.
    """

    def __init__(
        self,
        components: Mapping[str, tuple[Space, NDArray[np.int64]]],
        capacity: PrivacyLoss | DPLoss,
        noise: Noise | None = None,
    ) -> None:
        sizes = {len(points) for _, points in components.values()}
        if len(sizes) != 1:
            raise ConfigError(
                "must have the same number of devices in every component, and one component", "components"
            )
        self._components = {
            name: (space, np.ascontiguousarray(points, np.int64)) for name, (space, points) in components.items()
        }
        self._capacity, self._is_pure = capacity.parts[0], isinstance(capacity, DPLoss)
        self._noise = noise or Noise()
        self._asked: set[tuple[str, int]] = set()
        self.spent = np.zeros(sizes.pop(), np.int64)

    @property
    def count(self) -> int:
        return len(self.spent)

    def ask(
        self, question: Question, who: NDArray[np.int64], costs: NDArray[np.int64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        key = question.query, question.round
        if key in self._asked:
            raise ConfigError("must be asked once: simulated devices do not remember their replies", "query")
        self._asked.add(key)
        space, points = self._components[question.component]
        space.check(question.function)
        if question.pure:
            space.check_pure(question.function)
        if len(costs):
            for nano in (int(costs.min()), int(costs.max())):
                space.check_loss(question.function, nano, question.pure)
        charged = self._charged(costs, question.pure)
        if charged is None:
            return np.zeros(len(who), np.bool_), np.empty((0, question.function.outputs(space.dimension)), np.int64)
        answered = np.asarray(charged <= self._capacity - self.spent[who])
        if not answered.all():
            who, costs, charged = who[answered], costs[answered], charged[answered]
        self.spent[who] += charged
        mine = points if len(who) == len(points) else points[who]
        if question.pure:
            noisy = space.draw_pure(self._noise, question.function, costs)
        else:
            noisy = space.draw(self._noise, question.function, RHO_UNIT, costs)
        noisy += question.function.evaluate_all(mine)
        return answered, noisy

    def _charged(self, costs: NDArray[np.int64], pure: bool) -> NDArray[np.int64] | None:
        """What losses cost a device's budget; None where epsilons are counted and the loss is a rho: none answers."""
        if pure == self._is_pure:
            return costs
        if self._is_pure:
            return None
        values, back = np.unique(costs, return_inverse=True)
        rho = [zcdp_of_geo(Fraction(nano, EPSILON_UNIT)).rho_nano for nano in values.tolist()]
        return np.array(rho, np.int64)[back]


class Fleet:
    """`LocalFilter` devices in this process, asked in one batch; they may share a journal.

    Parameters
    ----------
    devices : sequence of LocalFilter
    """

    def __init__(self, devices: Sequence[LocalFilter]) -> None:
        self.devices = list(devices)

    @property
    def count(self) -> int:
        return len(self.devices)

    def ask(
        self, question: Question, who: NDArray[np.int64], costs: NDArray[np.int64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        first = ask_of(question, 0)
        asks = [(self.devices[i], first.priced(nano)) for i, nano in zip(who.tolist(), costs.tolist(), strict=True)]
        return read_replies(question, first, answer_all(asks), costs)


def ask_of(question: Question, nano: int) -> Ask:
    """A question as it is sent to a device, with its price."""
    return Ask(
        question.query,
        question.round,
        question.component,
        question.space.as_dict(),
        question.function.as_dict(),
        nano,
        question.pure,
    )


def read_replies(
    question: Question, ask: Ask, replies: Sequence[Any], costs: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Which devices answered, and their integers, from replies as bytes or decoded.

    Whatever is no reply to this question counts as silence: devices may be broken, or lie.
    """
    outputs = question.function.outputs(question.space.dimension)
    answered, rows = np.zeros(len(replies), np.bool_), []
    for i, (data, nano) in enumerate(zip(replies, costs.tolist(), strict=True)):
        values = None if data is None else _values(data, ask, nano, outputs)
        if values is not None:
            answered[i] = True
            rows.append(values)
    return answered, np.array(rows, np.int64).reshape(len(rows), outputs)


def _values(data: Any, ask: Ask, nano: int, outputs: int) -> list[int] | None:
    try:
        found = decoded(data) if isinstance(data, bytes) else data
        values = found["values"] if found["status"] == "answered" else None
        is_mine = (found["query"], found["round"], found["nano"]) == (ask.query, ask.round, nano)
    except (ConfigError, KeyError, TypeError):
        return None
    if not is_mine or not isinstance(values, list) or len(values) != outputs:
        return None
    return values if all(type(v) is int and abs(v) < 2**62 for v in values) else None
