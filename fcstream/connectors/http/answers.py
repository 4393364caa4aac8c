"""Answers of the receiver: why it refuses a request, in the words that the senders of each path understand."""

from __future__ import annotations

from http import HTTPStatus
from typing import NamedTuple

import msgspec

RETRY_S = {"full": 5, "busy": 1, "failed": 5}
"""Seconds after which a sender is asked to try again, by the reason."""


class _Words(NamedTuple):
    status: int
    meaning: str
    influx: str  # InfluxDB's name of the error
    grpc: int  # google.rpc.Code, for OTLP


REASONS = {
    "broken": _Words(400, "a body that cannot be read at all", "invalid", 3),
    "unauthorized": _Words(401, "no valid token", "unauthorized", 16),
    "cross_site": _Words(403, "sent by a page in a browser, to a receiver without a token", "forbidden", 7),
    "host": _Words(421, "asked for by another name than an address or this machine's, without a token", "forbidden", 7),
    "not_found": _Words(404, "a path that this stream does not take", "not found", 5),
    "method": _Words(405, "another method than POST", "method not allowed", 12),
    "too_large": _Words(
        413, "more than `max_bytes`, packed or unpacked, or than half of the spool", "request too large", 3
    ),
    "type": _Words(415, "a content type that this stream does not take there", "invalid", 3),
    "encoding": _Words(415, "a content coding other than gzip and deflate", "invalid", 3),
    "failed": _Words(503, "the disk of the spool failed", "unavailable", 14),
    "full": _Words(503, "no room in the spool", "unavailable", 14),
    "busy": _Words(503, "too much that waits for the disk", "unavailable", 14),
    "slow": _Words(0, "a request that was not sent within the time for it: the connection was closed", "", 0),
    "crowded": _Words(0, "a connection beyond `connections`", "", 0),
    "handshake": _Words(0, "a connection without valid TLS, or without a valid certificate", "", 0),
}
"""Why a body was refused: the status (0: none was sent), and what it means."""


class Taken(NamedTuple):
    """A body that can be stored: the byte before it, and what its sender is answered then."""

    tag: bytes
    status: int = 204
    media: str = ""
    answer: bytes = b""


class RefusedRequest(Exception):
    """A request that is refused.

    Parameters
    ----------
    reason : str
        One of `REASONS`.
    text : str
        For the sender; holds nothing of the body.
    """

    def __init__(self, reason: str, text: str = "") -> None:
        self.reason, self.text = reason, text or REASONS[reason].meaning
        self.status = REASONS[reason].status
        super().__init__(self.text)

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers that go with the status."""
        if self.reason in RETRY_S:
            return [(b"retry-after", str(RETRY_S[self.reason]).encode())]
        if self.reason == "unauthorized":
            return [(b"www-authenticate", b"Bearer")]
        if self.reason == "method":
            return [(b"allow", b"POST")]
        return [(b"accept-encoding", b"gzip, deflate")] if self.reason == "encoding" else []

    def json(self) -> bytes:
        """Return the answer as InfluxDB words it, which other senders can read too."""
        return msgspec.json.encode({"code": REASONS[self.reason].influx, "message": self.text})


def of_status(status: int) -> RefusedRequest:
    """Return why the server itself refuses a request: its chunks are too short or have a length beside them, it is too
    large, there is no memory for it, or it failed."""
    if status == HTTPStatus.BAD_REQUEST:
        return RefusedRequest("broken", "the body comes in chunks that are too short, or with a length beside them")
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return RefusedRequest("too_large")
    return RefusedRequest("busy" if status == HTTPStatus.SERVICE_UNAVAILABLE else "failed")
