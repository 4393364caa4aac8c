"""The messages between analyst and device: a question with its price, and the reply of noisy integers or a refusal."""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigError

LARGEST = 2**20
"""Bytes of one encoded `Ask`."""
MEANINGS = {
    "malformed": "the message is no question",
    "unknown_component": "the device has no such component",
    "other_space": "its component has another space than the analyst assumes",
    "function": "what is asked for is not defined in that space, or not on this device",
    "loss": "the price is not one that the device's budget can be charged",
    "budget": "the price does not fit into what is left of the device's budget",
    "conflict": "the id was used for another question",
    "interrupted": "the device died twice between the charge and the reply",
    "expired": "the question was answered so long ago that its answer was dropped (`devices.keep`)",
}
"""Why a device refuses; each depends on the question, on public facts and on public costs only."""
REASONS = tuple(MEANINGS)


@dataclass(frozen=True)
class Ask:
    """One question to one device, with its price: what the device is to charge for it.

    Parameters
    ----------
    query : str
        Together with `round` the id of the question: a device draws one reply to it and repeats the same bytes.
    round : int
    component : str
        Which of the device's components the question is about.
    space : mapping
        The space that the analyst assumes for it; a device whose component has another space refuses.
    function : mapping
        Of the lattice point: see `fcstream.local.functions`.
    nano : int
        The price: a loss in nano units.
    pure : bool
        The price is an epsilon (pure geo-privacy), else a rho (concentrated).
    """

    query: str
    round: int
    component: str
    space: Mapping[str, Any]
    function: Mapping[str, Any]
    nano: int
    pure: bool = False

    @property
    def id(self) -> tuple[str, int]:
        return self.query, self.round

    def priced(self, nano: int) -> Ask:
        """The same question for another price."""
        found = object.__new__(Ask)  # a tenth of the time of __init__: gateways make one for each device
        found.__dict__.update(self.__dict__, nano=nano)
        return found

    def as_dict(self) -> dict[str, Any]:
        return {
            "query": self.query,
            "round": self.round,
            "component": self.component,
            "space": dict(self.space),
            "function": dict(self.function),
            "epsilon_nano" if self.pure else "rho_nano": self.nano,
        }

    def encode(self) -> bytes:
        return canonical(self.as_dict())

    @property
    def digest(self) -> str:
        """Hash of everything but the price; equal questions under one id have equal digests and prices."""
        rest = self.as_dict()
        rest.pop("epsilon_nano" if self.pure else "rho_nano")
        return hashlib.sha256(canonical([rest, self.pure])).hexdigest()[:32]

    @classmethod
    def from_dict(cls, found: Any) -> Ask:
        """The question that a decoded message holds.

        Raises
        ------
        ConfigError
            It holds none.
        """
        if not isinstance(found, dict):
            raise ConfigError("must be an object", "ask")
        rest = dict(found)
        nano = [(key == "epsilon_nano", rest.pop(key)) for key in ("rho_nano", "epsilon_nano") if key in rest]
        if len(nano) != 1 or set(rest) != {"query", "round", "component", "space", "function"}:
            raise ConfigError("must have query, round, component, space, function and one of *_nano", "ask")
        texts, numbers = (rest["query"], rest["component"]), (rest["round"], nano[0][1])
        if not all(isinstance(text, str) and 0 < len(text) <= 200 and text.isprintable() for text in texts):
            raise ConfigError("must be printable text of 1 to 200 characters", "ask.query")
        if not all(isinstance(n, int) and not isinstance(n, bool) for n in numbers) or not 0 <= numbers[0] < 2**31:
            raise ConfigError("must be integers", "ask.round")
        if not isinstance(rest["space"], dict) or not isinstance(rest["function"], dict):
            raise ConfigError("must be objects", "ask.space")
        if not _is_shallow(rest["space"], _DEEPEST) or not _is_shallow(rest["function"], _DEEPEST):
            raise ConfigError(f"must not be nested deeper than {_DEEPEST}", "ask.function")
        return cls(**rest, nano=nano[0][1], pure=nano[0][0])

    @classmethod
    def decode(cls, data: bytes) -> Ask:
        return cls.from_dict(decoded(data))


_DEEPEST = 8  # far below the depth at which JSON exhausts the stack


def _is_shallow(value: Any, left: int) -> bool:
    if isinstance(value, dict):
        return left > 0 and all(_is_shallow(item, left - 1) for item in value.values())
    if isinstance(value, list):
        return left > 0 and (set(map(type, value)) <= {int, float} or all(_is_shallow(x, left - 1) for x in value))
    return True


_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def canonical(value: Any) -> bytes:
    """JSON with sorted keys and no spaces: equal values have equal bytes."""
    return _encode(value).encode()


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError
    return value


def decoded(data: bytes, max_bytes: int = LARGEST) -> Any:
    """The JSON of a message from an unknown client.

    Raises
    ------
    ConfigError
        It is too long, too deep, or no JSON.
    """
    if len(data) > max_bytes:
        raise ConfigError(f"must be at most {max_bytes} bytes", "message", got=len(data))
    try:
        return json.loads(data, parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError):
        raise ConfigError("must be JSON in UTF-8", "message") from None


_LONGEST_DETAIL = 300  # it may quote the question, and one message asks thousands of devices


@functools.lru_cache(maxsize=64)
def _text(value: str) -> str:
    return _encode(value)


def answered(ask: Ask, values: list[int], private: bool) -> bytes:
    """The reply that is kept and sent; the same bytes as from `canonical`, faster."""
    public = "" if private else '"private":false,'
    return (
        f'{{"nano":{ask.nano},{public}"query":{_text(ask.query)},"round":{ask.round},"status":"answered",'
        f'"values":[{",".join(map(str, values))}]}}'
    ).encode()


def refused(reason: str, ask: Ask | None = None, detail: str = "") -> bytes:
    """A refusal; it costs nothing and is not kept."""
    found = {"status": "refused", "reason": reason}
    if detail:
        found["detail"] = detail[:_LONGEST_DETAIL]
    return canonical(found if ask is None else found | {"query": ask.query, "round": ask.round})
