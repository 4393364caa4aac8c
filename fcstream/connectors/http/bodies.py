"""Kinds of bodies that a stream takes, by path and content type, and the decoder of what the spool holds of them.

A body is one message of the spool, with a byte before it that says of which kind it is. So a body is stored whole or
not at all, its records share a position, and a repeated request is known by one identity.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from ...errors import ConfigError, needs_package
from ...formats.batch import Batch, Schema
from ...formats.decoders import LineDecoder
from ...formats.envelopes import Envelope
from ...formats.json_parts import check_list
from ...formats.nested import objects_decoder
from ...formats.paths import FieldPath
from ...formats.payloads import decoder_for
from ...formats.tagged import SplitMessages, TaggedMessages, split_json_array, split_lines, split_msgpack_array
from .answers import RefusedRequest, Taken
from .content import ANY, MEDIA_TYPES

INGEST, METRICS, LOGS, WRITE = "/ingest", "/v1/metrics", "/v1/logs", "/api/v2/write"
_OTLP = {"otlp-metrics": METRICS, "otlp-logs": LOGS}
_OBJECTS = ("json", "ndjson", "msgpack", "arrow")
_PRECISIONS = {"": "n", "ns": "n", "us": "u", "ms": "m", "s": "s"}
_RAW_JSON = msgspec.json.Decoder(msgspec.Raw)
_RAW_MSGPACK = msgspec.msgpack.Decoder(msgspec.Raw)
_WHOLE = FieldPath(())
_ARROW_START = b"\xff\xff\xff\xff"


class Kind(NamedTuple):
    """How bodies of one kind are checked when they come.

    Attributes
    ----------
    look : callable
        Takes a body and its envelope, and returns `Taken`; raises `RefusedRequest` for one that cannot be read at all.
    """

    look: Callable[[bytes, Envelope | None], Taken]


def _json(records: FieldPath | None) -> Kind:
    """Return the kind of bodies in JSON, of which elements of a list may be none."""

    def look(body: bytes, _envelope: Envelope | None) -> Taken:
        is_list = body.lstrip()[:1] == b"["
        try:
            _RAW_JSON.decode(body)
        except (msgspec.DecodeError, RecursionError):
            try:
                check_list(body, _WHOLE if is_list or records is None else records)
            except (ValueError, RecursionError):
                words = "the body is no JSON (lines of it are application/x-ndjson)"
                raise RefusedRequest("broken", words) from None
        return Taken(b"A" if is_list and records != _WHOLE else b"J")

    return Kind(look)


def _msgpack(records: FieldPath | None) -> Kind:
    def look(body: bytes, _envelope: Envelope | None) -> Taken:
        try:
            _RAW_MSGPACK.decode(body)
        except (msgspec.DecodeError, RecursionError):
            raise RefusedRequest("broken", "the body is not one value of MessagePack") from None
        is_list = body[0] & 0xF0 == 0x90 or body[0] in (0xDC, 0xDD)
        return Taken(b"B" if is_list and records != _WHOLE else b"M")

    return Kind(look)


def _arrow(_records: FieldPath | None) -> Kind:
    def look(body: bytes, _envelope: Envelope | None) -> Taken:
        if body[:4] != _ARROW_START:
            raise RefusedRequest("broken", "the body is no Arrow IPC stream")
        return Taken(b"R")

    return Kind(look)


def _any(tag: str) -> Kind:
    """Return the kind of bodies that are not looked at: what is wrong in them is rejected where they are decoded."""
    taken = Taken(tag.encode())

    def look(body: bytes, _envelope: Envelope | None) -> Taken:
        if not body or body.isspace():
            raise RefusedRequest("broken", "the body is empty")
        return taken

    return Kind(look)


_LOOKED_AT = {"json": _json, "msgpack": _msgpack, "arrow": _arrow}


class Bodies:
    """The kinds of bodies that a stream takes, and the `LineDecoder` of what the spool holds of them.

    Parameters
    ----------
    format : str
        ``source.format``. With ``json``, ``msgpack`` and ``arrow`` the content type of each body decides which of
        them it is, or JSON lines; another format is taken alone, OTLP and line protocol at paths of their own.
    schema : Schema
    options : mapping
        Keys of `[source]` that belong to the format.

    Raises
    ------
    ConfigError
    """

    def __init__(self, format: str, schema: Schema, options: Mapping[str, Any]) -> None:
        self._kinds: dict[str, dict[str, Kind]] = {}
        self._words: dict[str, Any] = {}
        decoders: dict[int, LineDecoder] = {}
        if format in _OTLP:
            decoder = decoder_for(format, schema, options)
            with needs_package("googleapis-common-protos", "otlp", "source.format"):
                from ...formats.otlp import LogRequests, MetricRequests
                from .otlp import OtlpWords
            decoders = {ord("O"): decoder}
            assert isinstance(decoder, (MetricRequests, LogRequests))
            words = self._words[_OTLP[format]] = OtlpWords(decoder, "O")
            self._kinds[_OTLP[format]] = {media: Kind(look) for media, look in words.looks.items()}
        elif format == "influx":
            for precision, tag in _PRECISIONS.items():
                unit = precision or "ns"
                decoders[ord(tag)] = decoder_for(format, replace(schema, time_unit=unit), options)
                self._kinds[f"{WRITE}?precision={precision}"] = {ANY: _any(tag)}
        else:
            self._kinds[INGEST] = dict(self._ingested(format, schema, options, decoders))
        self._decoder = TaggedMessages(decoders)

    @staticmethod
    def _ingested(
        format: str, schema: Schema, options: Mapping[str, Any], decoders: dict[int, LineDecoder]
    ) -> Iterator[tuple[str, Kind]]:
        """Yield the kinds of bodies by media type, and note their decoders."""
        for name in dict.fromkeys((format, *(_OBJECTS if format in _OBJECTS else ()))):
            try:
                found = _decoders(name, schema, options if name == format else {})
            except ConfigError:
                if name == format:
                    raise
                continue
            decoders |= found
            kind = _LOOKED_AT[name](schema.records) if name in _LOOKED_AT else _any(chr(next(iter(found))))
            for media, other in MEDIA_TYPES.items():
                if other == name:
                    yield media, kind

    def decode(self, lines: list[bytes], first_position: int, envelopes: Sequence[Envelope] = ()) -> Batch:
        return self._decoder.decode(lines, first_position, envelopes)

    def kind(self, path: str, query: bytes, media: str) -> Kind:
        """Return the kind of a request's body.

        Raises
        ------
        RefusedRequest
            ``not_found``, ``type``, ``broken``.
        """
        if path == WRITE:
            path = f"{WRITE}?precision={_precision(query)}"
        kinds = self._kinds.get(path)
        if kinds is None:
            taken = dict.fromkeys(each.partition("?")[0] for each in self._kinds)
            raise RefusedRequest("not_found", f"this stream takes {', '.join(taken)} only")
        kind = kinds.get(media) or kinds.get(ANY)
        if kind is None:
            raise RefusedRequest("type", f"the content type must be one of {', '.join(kinds)}")
        return kind

    def refusal(self, path: str, media: str, refused: RefusedRequest) -> tuple[str, bytes]:
        """Return the content type and the body of an answer that refuses, as the senders of a path understand it."""
        words = self._words.get(path)
        if words is None:
            return "application/json", refused.json()
        return words.refusal(media, refused)  # type: ignore[no-any-return]


def _precision(query: bytes) -> str:
    found = urllib.parse.parse_qs(query.decode("latin-1")).get("precision", [""])[-1]
    if found not in _PRECISIONS:
        raise RefusedRequest("broken", "precision must be ns, us, ms or s")
    return found


_TAGS = {
    "arrow": "R",
    "floats": "F",
    "avro": "V",
    "protobuf": "P",
    "cbor": "C",
    "senml": "S",
    "senml-cbor": "T",
}


def _decoders(format: str, schema: Schema, options: Mapping[str, Any]) -> dict[int, LineDecoder]:
    """Make the decoders of a format that is taken at `INGEST`, by the byte before a body."""
    if format == "ndjson":
        return {ord("N"): SplitMessages(objects_decoder(schema, "json"), split_lines)}
    made = decoder_for(format, schema, options)
    if format == "json":
        return {ord("J"): made, ord("A"): SplitMessages(made, split_json_array)}
    if format == "msgpack":
        return {ord("M"): made, ord("B"): SplitMessages(made, split_msgpack_array)}
    if format not in _TAGS:
        raise ConfigError(f"must be one of {', '.join(_TAGS)} over HTTP", "source.format", got=format)
    return {ord(_TAGS[format]): made}
