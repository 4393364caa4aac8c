"""Bodies of requests: what their headers say they hold, and decompression within a limit."""

from __future__ import annotations

import zlib

from .answers import RefusedRequest

CODINGS = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""Content codings, and the window bits by which zlib tells their headers apart."""
MEDIA_TYPES = {
    "application/json": "json",
    "application/x-ndjson": "ndjson",
    "application/ndjson": "ndjson",
    "application/jsonl": "ndjson",
    "application/msgpack": "msgpack",
    "application/x-msgpack": "msgpack",
    "application/vnd.msgpack": "msgpack",
    "application/vnd.apache.arrow.stream": "arrow",
    "application/octet-stream": "floats",
    "application/avro": "avro",
    "application/x-protobuf": "protobuf",
    "application/protobuf": "protobuf",
    "application/cbor": "cbor",
    "application/senml+json": "senml",
    "application/senml+cbor": "senml-cbor",
}
"""Formats by the media type of a body."""
ANY = "*/*"
"""Stands for every media type."""
_FIRST_STEP = 512
"""Bytes that a member is first given: what it leaves over is copied, so it is not given the rest of the body."""


def media_type(value: bytes) -> str:
    """Return the media type of a Content-Type header, without parameters."""
    return value.partition(b";")[0].strip().lower().decode("latin-1")


def decompressed(body: bytes, coding: str, max_bytes: int) -> bytes:
    """Undo a content coding; a body that grows beyond `max_bytes` is not unpacked any further.

    Raises
    ------
    RefusedRequest
        ``too_large``, or ``broken``: cut off, not of this coding, or followed by something else.
    """
    if coding in ("", "identity"):
        return body
    parts: list[bytes] = []
    at = size = members = 0
    whole = memoryview(body)
    while at < len(body) or not members:  # gzip may have several members
        if members and coding == "deflate":
            raise RefusedRequest("broken", "the compressed body is followed by something else")
        unpacker, step = zlib.decompressobj(CODINGS[coding]), _FIRST_STEP
        while not unpacker.eof:
            some = whole[at : at + step]
            if not some:
                raise RefusedRequest("broken", "the compressed body is cut off")
            try:
                part = unpacker.decompress(some, max_bytes - size + 1)
            except zlib.error:
                raise RefusedRequest("broken", f"the body is not {coding}, as Content-Encoding says") from None
            size += len(part)
            if size > max_bytes:
                raise RefusedRequest("too_large", f"the body has more than {max_bytes} bytes when it is unpacked")
            parts.append(part)
            at, step = at + len(some), 2 * step
        at -= len(unpacker.unused_data)
        members += 1
    return parts[0] if len(parts) == 1 else b"".join(parts)
