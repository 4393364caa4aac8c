"""Answers to exporters of OTLP: which data points a stream does not take, and why a request is refused.

Source
------
https://opentelemetry.io/docs/specs/otlp/#otlphttp: an answer has the encoding of its request; a request of which a part
is taken gets 200 with ``partial_success``, one that cannot be decoded 400, and refusals hold a ``google.rpc.Status``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

import msgspec
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

from ...formats.envelopes import Envelope
from ...formats.otlp import LogRequests, MetricRequests
from .answers import REASONS, RefusedRequest, Taken

PROTOBUF, JSON = "application/x-protobuf", "application/json"


class OtlpWords:
    """What exporters are answered.

    Parameters
    ----------
    decoder : MetricRequests or LogRequests
    tag : str
        The byte before a body.

    Attributes
    ----------
    looks : dict of str to callable
        See `Kind.look`, by content type.
    """

    def __init__(self, decoder: MetricRequests | LogRequests, tag: str) -> None:
        self._decoder, self._tag = decoder, tag.encode()
        self.looks: dict[str, Callable[[bytes, Envelope | None], Taken]] = {
            media: partial(self._look, media) for media in (PROTOBUF, JSON)
        }

    def _look(self, media: str, body: bytes, _envelope: Envelope | None) -> Taken:
        """Look for what is not taken of a request, to tell its sender at once."""
        unread = self._decoder.unread(body)
        if unread is None:
            raise RefusedRequest("broken", f"the body is no request of OTLP in {media}")
        return Taken(self._tag, 200, media, self._answer(media, unread))

    def _answer(self, media: str, unread: Counter[tuple[str, str]]) -> bytes:
        if not unread:
            return b"{}" if media == JSON else b""
        count = unread.total()
        text = ", ".join(f"{number} {reason} ({metric})" for (reason, metric), number in sorted(unread.items()))
        if media == JSON:
            return msgspec.json.encode(
                {"partialSuccess": {"rejectedDataPoints": str(count), "errorMessage": f"not taken: {text}"}}
            )
        answer = ExportMetricsServiceResponse()
        answer.partial_success.rejected_data_points = count
        answer.partial_success.error_message = f"not taken: {text}"
        return bytes(answer.SerializeToString())

    def refusal(self, media: str, refused: RefusedRequest) -> tuple[str, bytes]:
        """Return the content type and the body of a refusal."""
        code = REASONS[refused.reason].grpc
        if media == JSON:
            return JSON, msgspec.json.encode({"code": code, "message": refused.text})
        return PROTOBUF, Status(code=code, message=refused.text).SerializeToString()
