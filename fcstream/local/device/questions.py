"""Whether a question can be answered in a space: examined once, for all devices that are asked it together."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...errors import ConfigError
from ..functions import Function, Named, function_from
from ..protocol import Ask
from ..spaces import Space


class Fit(NamedTuple):
    """How a question fits a space.

    Attributes
    ----------
    reason : str or None
        Why it must be refused.
    min_loss : int
        The smallest loss in nano units for which there is noise.
    metric : dict
        What distance 1 is in the space.
    """

    reason: str | None
    min_loss: int
    metric: dict[str, Any]


class QuestionCheck:
    """A question, examined for all devices that have the same functions registered.

    Attributes
    ----------
    digest : str
        Of the question, without its price.
    kind : str
        The component without ``@`` and a time.
    function : Function or None
        None if the device cannot compute it.
    problem : str
        What is wrong with the function, in words.
    """

    def __init__(self, ask: Ask, named: Mapping[str, Named]) -> None:
        self.digest = ask.digest
        self.kind = ask.component.partition("@")[0]
        self.problem = ""
        self.function: Function | None = None
        self._fits: dict[int, tuple[Space, Fit]] = {}  # by identity; the space is held so that its id stays its own
        self._wanted = dict(ask.space)
        self._pure = ask.pure
        try:
            self.function = function_from(ask.function, named)
        except ConfigError as error:
            self.problem = str(error)

    def fit(self, space: Space) -> Fit:
        """How the question fits a space."""
        known = self._fits.get(id(space))
        if known is None:
            reason = self._reason(space)
            least = 0 if reason or self.function is None else space.min_loss(self.function, self._pure)
            known = self._fits[id(space)] = space, Fit(reason, least, space.metric)
        return known[1]

    def _reason(self, space: Space) -> str | None:
        if space.as_dict() != self._wanted:
            return "other_space"
        if self.function is None:
            return "function"
        try:
            space.check(self.function)
            if self._pure:
                space.check_pure(self.function)
        except ConfigError as error:
            self.problem = str(error)
            return "function"
        return None


class Questions:
    """The questions of one batch, each examined once. Asks are alike if they share their objects."""

    def __init__(self) -> None:
        self._checks: dict[tuple[Any, ...], QuestionCheck] = {}
        self._key: tuple[Any, ...] = ()
        self._last: QuestionCheck | None = None

    def check(self, ask: Ask, named: Mapping[str, Named]) -> QuestionCheck:
        """The examined question of an ask, for a device with these registered functions."""
        key = ask.function, ask.space, ask.component, ask.pure, ask.query, ask.round, named
        if self._last is None or any(map(operator.is_not, key, self._key)):  # not the question of the ask before
            ids = (id(ask.function), id(ask.space), *key[2:6], id(named))
            self._key, self._last = key, self._checks.get(ids)
            if self._last is None:
                self._last = self._checks[ids] = QuestionCheck(ask, named)
        return self._last
