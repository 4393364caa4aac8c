"""The noisy integers of replies: devices with one source of noise, space and question are drawn for together."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from ...accounting.losses import RHO_UNIT
from ...noise.samplers import Noise
from ..functions import Box, Distance, Function
from ..protocol import Ask
from .components import Component
from .questions import QuestionCheck


class PendingReply(NamedTuple):
    """A reply that was charged and is to be drawn, and its position among the replies."""

    position: int
    ask: Ask
    question: QuestionCheck
    component: Component
    noise: Noise


def draw(pending: Sequence[PendingReply]) -> list[list[int]]:
    """Noisy integers of every reply, in order."""
    groups: dict[tuple[int, int, int, bool], list[int]] = {}
    for i, (_, ask, question, component, noise) in enumerate(pending):
        groups.setdefault((id(noise), id(question), id(component.space), ask.pure), []).append(i)
    found: list[list[int]] = [[]] * len(pending)
    for members in groups.values():
        for i, values in zip(members, _draw_group([pending[i] for i in members]), strict=True):
            found[i] = values
    return found


def _draw_group(members: Sequence[PendingReply]) -> list[list[int]]:
    """Noisy integers of replies that share noise, question and space."""
    _, ask, question, component, noise = members[0]
    function, space = question.function, component.space
    assert function is not None
    exact = exact_values(function, [one.component.point for one in members])
    losses = np.array([one.ask.nano for one in members], np.int64)
    drawn = space.draw_pure(noise, function, losses) if ask.pure else space.draw(noise, function, RHO_UNIT, losses)
    return [[a + b for a, b in zip(*pair, strict=True)] for pair in zip(exact, drawn.tolist(), strict=True)]


def exact_values(function: Function, points: list[tuple[int, ...]]) -> list[list[int]]:
    """The function's integers of points of one space."""
    if isinstance(function, (Box, Distance)):
        with suppress(OverflowError):  # far more than 64 bits: one by one, in Python's integers
            return [[value] for value in function.evaluate_all(np.array(points, np.int64))[:, 0].tolist()]
    return [list(function.evaluate(point)) for point in points]
