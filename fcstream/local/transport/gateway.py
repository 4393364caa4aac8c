"""Gateways, where devices are asked over a network: a phone with one device, or a server with thousands.

A message asks many devices one question, each at its own price; the reply lists their replies in the same order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError
from ..device.device import LocalFilter, answer_all
from ..protocol import Ask, canonical, decoded, refused
from ..queries.elimination import Question
from ..simulation import ask_of, read_replies

LARGEST = 2**21
"""Bytes of one message."""
LARGEST_REPLY = 2**24
"""Bytes of one reply."""
MAX_QUESTIONS = 10_000
"""Devices that one message may name."""
_PRICES = ("rho_nano", "epsilon_nano")


class Gateway:
    """Answers messages for the devices it holds; may be called from several threads.

    Parameters
    ----------
    devices : iterable of LocalFilter
        Best with one journal for all. Their names must differ.

    Attributes
    ----------
    failed : Exception or None
        The error that ended it, usually a journal that cannot be written: the devices must be opened again.

    Raises
    ------
    ConfigError
        Two devices have one name.

    Privacy
    -------
    The guarantee is that of `LocalFilter`: each reply is durable before it leaves. A client that can send messages can
    use up budgets, and do nothing else.
    """

    def __init__(self, devices: Iterable[LocalFilter]) -> None:
        held = list(devices)
        self._devices = {device.name: device for device in held}
        if len(self._devices) < len(held):
            raise ConfigError("must have different names", "devices")
        self.failed: Exception | None = None

    @property
    def names(self) -> list[str]:
        return list(self._devices)

    def answer(self, message: bytes) -> bytes:
        """The reply to one message; durable before it is returned.

        Raises
        ------
        LedgerError
            The journal cannot be written; no reply leaves.
        """
        return self.answer_many([message])[0]

    def answer_many(self, messages: Sequence[bytes]) -> list[bytes]:
        """`answer` for several messages, with two durable writes for all of them together.

        Raises
        ------
        LedgerError
            As `answer`.
        """
        read = [_read(message) for message in messages]
        asks = [entry for found in read if not isinstance(found, bytes) for entry in found[1]]
        known = [(self._devices[name], ask) for name, ask in asks if name in self._devices]
        try:
            replies = iter(answer_all(known))
        except Exception as error:
            self.failed = error
            raise
        bodies = []
        for found in read:
            if isinstance(found, bytes):
                bodies.append(found)
                continue
            batch, mine = found
            inner = [next(replies) if name in self._devices else b"null" for name, _ in mine]
            bodies.append(b'{"batch":%s,"replies":[%s]}' % (json.dumps(batch).encode(), b",".join(inner)))
        return bodies


def _read(message: bytes) -> tuple[str, list[tuple[str, Ask]]] | bytes:
    """Batch and questions of a message, or a refusal of it."""
    try:
        return _asks(decoded(message, LARGEST))
    except ConfigError as error:
        return refused("malformed", detail=str(error))


def _asks(found: Any) -> tuple[str, list[tuple[str, Ask]]]:
    if not isinstance(found, dict) or set(found) != {"batch", "ask", "loss", "to"} or found["loss"] not in _PRICES:
        raise ConfigError("must have batch, ask, loss and to", "message")
    batch, to = found["batch"], found["to"]
    if not isinstance(batch, str) or len(batch) > 200 or not isinstance(to, list):
        raise ConfigError("must be a text and a list", "message.batch")
    if not isinstance(found["ask"], dict):
        raise ConfigError("must be an object", "message.ask")
    if len(to) > MAX_QUESTIONS:
        raise ConfigError(f"must name at most {MAX_QUESTIONS} devices", "message.to", got=len(to))
    first = Ask.from_dict({**found["ask"], found["loss"]: 0})
    asks: list[tuple[str, Ask]] = []
    for entry in to:
        if not (isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str) and type(entry[1]) is int):
            raise ConfigError("must be pairs of a name and a price", "message.to")
        asks.append((entry[0], first.priced(entry[1])))
    if len({name for name, _ in asks}) < len(asks):
        raise ConfigError("must name a device once only", "message.to")
    return batch, asks


def message_of(ask: Ask, batch: str, to: Sequence[tuple[str, int]]) -> bytes:
    """One message to one gateway."""
    question = ask.as_dict()
    price = _PRICES[ask.pure]
    question.pop(price)
    return canonical({"batch": batch, "ask": question, "loss": price, "to": [list(pair) for pair in to]})


class Transport(Protocol):
    """Carries messages to gateways and replies back."""

    def exchange(self, messages: Mapping[str, tuple[str, bytes]], timeout_s: float) -> dict[str, bytes]:
        """Send messages, (gateway, body) by batch; returns the replies that came in time, by batch."""
        ...

    def close(self) -> None: ...


class Remote:
    """The devices behind gateways, as `Respondents` for an analyst.

    Parameters
    ----------
    transport : Transport
    devices : sequence of (gateway, name)
        Devices 0, 1, ... of the analyst.
    batch : int
        Devices asked in one message, at most `MAX_QUESTIONS`.
    timeout_s : float
        For each try. Devices that have not replied by then are asked again under the same id, which costs nothing if
        they had drawn a reply. After the last try they count as silent.
    tries : int

    Raises
    ------
    ConfigError
    """

    def __init__(
        self,
        transport: Transport,
        devices: Sequence[tuple[str, str]],
        *,
        batch: int = 500,
        timeout_s: float = 10.0,
        tries: int = 3,
    ) -> None:
        if not 1 <= batch <= MAX_QUESTIONS:
            raise ConfigError(f"must be in [1, {MAX_QUESTIONS}]", "analyst.batch", got=batch)
        self._transport = transport
        self._devices = list(devices)
        self._batch = batch
        self._timeout_s = timeout_s
        self._tries = tries
        self._number = 0

    @property
    def count(self) -> int:
        return len(self._devices)

    def ask(
        self, question: Question, who: NDArray[np.int64], costs: NDArray[np.int64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        ask = ask_of(question, 0)
        batches = self._batches(ask, who)
        messages: dict[str, tuple[str, bytes]] = {}
        for batch, (gateway, rows) in batches.items():
            to = [(self._devices[int(who[row])][1], int(costs[row])) for row in rows]
            messages[batch] = gateway, message_of(ask, batch, to)
        replies: list[Any] = [None] * len(who)
        for _ in range(self._tries):
            if not messages:
                break
            for batch, data in self._transport.exchange(messages, self._timeout_s).items():
                rows = batches[batch][1] if batch in messages else []
                found = _opened(data, batch, len(rows))
                if found is not None:
                    del messages[batch]
                    for row, reply in zip(rows, found, strict=True):
                        replies[row] = reply
        return read_replies(question, ask, replies, costs)

    def _batches(self, ask: Ask, who: NDArray[np.int64]) -> dict[str, tuple[str, list[int]]]:
        """Gateway and rows of `who` for each message."""
        groups: dict[str, list[int]] = {}
        for row, number in enumerate(who.tolist()):
            groups.setdefault(self._devices[number][0], []).append(row)
        batches: dict[str, tuple[str, list[int]]] = {}
        for gateway, rows in groups.items():
            for start in range(0, len(rows), self._batch):
                self._number += 1
                batches[f"{ask.query[:100]}/{ask.round}/{self._number}"] = gateway, rows[start : start + self._batch]
        return batches


def _opened(data: bytes, batch: str, size: int) -> list[Any] | None:
    """The replies that a message holds, or None if it is not the reply to this batch."""
    try:
        found = decoded(data, LARGEST_REPLY)
    except ConfigError:
        return None
    if not isinstance(found, dict) or found.get("batch") != batch:
        return None
    replies = found.get("replies")
    return replies if isinstance(replies, list) and len(replies) == size else None
