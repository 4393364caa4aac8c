"""Envelopes: what a message has besides its body, such as its topic, and the fields of a configuration that read it.

``@topic`` is a message's topic (of NATS the subject, of AMQP the routing key, of Redis the stream), ``@topic:N`` one of
its levels, counted from 0, ``@key`` its key, ``@header:NAME`` one of its headers (of MQTT the user properties, of Redis
the other fields of the entry), and ``@broker`` its time of arrival. Sources give only what was asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from ..errors import ConfigError

LONGEST_HEADER = 2**16
"""Most bytes of a topic, key or header that are kept; a longer one counts as absent."""
_LARGE = 10**300


class Envelope(NamedTuple):
    """What a message has besides its body, as far as it was asked for.

    Attributes
    ----------
    topic : str or None
    key : bytes or None
    headers : dict of str to bytes
        By name, text as UTF-8; those only that were asked for.
    arrived_ms : int or None
        When the message arrived, in Unix milliseconds: `fcstream.connectors.base.Chunk.timestamps_ms`. Sources leave it
        out; whoever reads a chunk adds it.
    """

    topic: str | None = None
    key: bytes | None = None
    headers: Mapping[str, bytes] = {}
    arrived_ms: int | None = None

    def packed(self) -> bytes:
        """Return topic, key and headers as bytes that `unpacked` reads; nothing if there are none."""
        if self.topic is None and self.key is None and not self.headers:
            return b""
        return _ENCODER.encode((self.topic, self.key, self.headers))

    @classmethod
    def unpacked(cls, data: bytes) -> Envelope:
        """Read what `packed` returned; an empty envelope for anything else."""
        try:
            return cls(*_DECODER.decode(data)) if data else NOTHING
        except (msgspec.DecodeError, UnicodeDecodeError):
            return NOTHING


NOTHING = Envelope()
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(tuple[str | None, bytes | None, dict[str, bytes]])


@dataclass(frozen=True, slots=True)
class AskedFields:
    """What a configuration reads of envelopes; nothing by default.

    Attributes
    ----------
    topic, key, broker : bool
    headers : frozenset of str
    """

    topic: bool = False
    key: bool = False
    headers: frozenset[str] = frozenset()
    broker: bool = False

    def __bool__(self) -> bool:
        return self.from_source or self.broker

    @property
    def from_source(self) -> bool:
        """Return whether anything is asked of the source; times of arrival come with every chunk."""
        return bool(self.topic or self.key or self.headers)

    def envelope(
        self, topic: str | None = None, key: str | bytes | None = None, headers: Iterable[tuple[str, Any]] = ()
    ) -> Envelope:
        """Make the envelope of one message out of what its broker's client tells, as far as it was asked for.

        Of headers with one name the last one counts. Numbers and Booleans are kept as their text; lists and the like
        are left out.
        """
        found: dict[str, bytes] = {}
        if self.headers:
            for name, value in headers:
                if name in self.headers and (text := _header(value)) is not None:
                    found[name] = text
        named = topic if self.topic and topic is not None and len(topic) <= LONGEST_HEADER else None
        return Envelope(named, _header(key) if self.key else None, found)


NO_FIELDS = AskedFields()


def _header(value: Any) -> bytes | None:
    if isinstance(value, bool):
        value = "true" if value else "false"
    if isinstance(value, (int, float)):
        value = str(value) if abs(value) < _LARGE else ""
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogatepass")
    if not isinstance(value, (bytes, bytearray, memoryview)) or len(value) > LONGEST_HEADER:
        return None
    return bytes(value)


@dataclass(frozen=True, slots=True)
class OfferedFields:
    """What the messages of a kind of source have besides their bodies, as a class attribute of the source tells it.

    Attributes
    ----------
    topic : str
        What stands between the levels of a topic, such as ``/``; empty if messages have no topic.
    key : bool
    headers : str
        What headers are called there; empty if there are none.
    """

    topic: str = ""
    key: bool = False
    headers: str = ""

    def has(self, part: str) -> bool:
        """Return whether there is a part of `EnvelopeField`."""
        return part == "broker" or bool({"topic": self.topic, "key": self.key, "header": self.headers}[part])

    def words(self) -> str:
        """List in words what can be asked for."""
        parts = ["'@topic', '@topic:N'"] if self.topic else []
        parts += ["'@key'"] if self.key else []
        parts += [f"'@header:NAME' ({self.headers})"] if self.headers else []
        return ", ".join([*parts, "'@broker' (the time of arrival)"])


@dataclass(frozen=True, slots=True)
class EnvelopeField:
    """One field of an envelope.

    Attributes
    ----------
    part : str
        ``topic``, ``key``, ``header`` or ``broker``.
    level : int or None
        Of a topic.
    header : str
        Of a header its name.
    """

    part: str
    level: int | None = None
    header: str = ""

    @property
    def text(self) -> str:
        """Return the field as configurations write it."""
        rest = self.header if self.part == "header" else self.level
        return f"@{self.part}" if rest is None else f"@{self.part}:{rest}"

    def column(self, envelopes: Sequence[Envelope], separator: str) -> list[Any]:
        """Return this field of every envelope, None where there is none; `separator` stands between levels.

        Topics are text, keys and headers too unless they are no UTF-8, and times of arrival whole milliseconds.
        """
        if self.part == "broker":
            return [each.arrived_ms for each in envelopes]
        if self.part == "header":
            name = self.header
            return [_as_text(each.headers.get(name)) for each in envelopes]
        if self.part == "key":
            return [_as_text(each.key) for each in envelopes]
        if self.level is None:
            return [each.topic for each in envelopes]
        known: dict[str | None, str | None] = {None: None}  # few topics have many messages
        found = []
        for each in envelopes:
            topic = each.topic
            if topic not in known:
                assert topic is not None
                known[topic] = _level(topic, self.level, separator)
            found.append(known[topic])
        return found


def _level(topic: str, level: int, separator: str) -> str | None:
    levels = topic.split(separator, level + 1) if separator else [topic]
    return levels[level] if level < len(levels) else None


def _as_text(value: bytes | None) -> str | bytes | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def parse_envelope_field(text: str, key: str) -> EnvelopeField:
    """Read a field that begins with an at sign, which a configuration gives as `key`.

    Raises
    ------
    ConfigError
    """
    part, colon, rest = text[1:].partition(":")
    if part in ("topic", "key", "broker") and not colon:
        return EnvelopeField(part)
    if part == "topic" and rest.isascii() and rest.isdecimal() and len(rest) <= 3:
        return EnvelopeField(part, int(rest))
    if part == "header" and rest:
        return EnvelopeField(part, header=rest)
    raise ConfigError(
        "must be '@topic', '@topic:N' (a level, from 0), '@key', '@header:NAME' or '@broker', or a "
        "field of the message, in double quotes if its name begins with @",
        key,
        got=text,
    )


def asked_fields(fields: Iterable[object], others: frozenset[str] = frozenset()) -> AskedFields:
    """Collect what fields read of envelopes, besides `others` of their headers; paths in the body ask for nothing."""
    asked = [each for each in fields if isinstance(each, EnvelopeField)]
    parts = {each.part for each in asked}
    headers = frozenset(each.header for each in asked if each.part == "header")
    return AskedFields("topic" in parts, "key" in parts, headers | others, "broker" in parts)
