"""Schemas by the ids that messages carry, from a registry that speaks Confluent's HTTP interface.

There is a client in confluent-kafka, which brings an HTTP client, OAuth and caches of its own for what is one request
here, and which Avro from other brokers would need as well. So the standard library's client is used.

An id that the registry does not know may be so new that it has not reached every server of it: it is asked again for
`UNKNOWN_S` seconds after the first time. Whoever may send messages can make up ids, so that takes a tenth of the time
at most, and few questions: ids beyond them are not known. A registry that does not answer at all is waited for.

Source
------
https://docs.confluent.io/platform/current/schema-registry/develop/api.html
"""

from __future__ import annotations

import http.client
import re
import ssl
import time
from collections import OrderedDict
from collections.abc import Collection
from contextlib import closing
from typing import ClassVar

import msgspec

from ..errors import ConfigError, SchemasUnreachable, Shown
from ..formats.schemas import FoundSchema
from ..runtime.waiting import calling, is_over, pause
from .posting import authorization, error_text
from .retry import BrokerLost, close_quietly, deadline, pauses, with_patience
from .tls import CA, CERT, KEY, tls_context, tls_failure
from .urls import PATIENCE, Address, UrlOption

UNKNOWN_S = 10.0
"""For how many seconds an id that the registry does not know is asked again."""
QUESTIONS, QUESTIONS_PER_S = 64, 1.0
"""How often the registry is asked for what it does not know: so often, and again as time goes by."""
_REST = 9.0  # times as long as was waited for unknown ids none is waited for
_TIMEOUT_S = 10.0
_MAX_BYTES = 2**24  # of an answer
_MAX_UNKNOWN = 2**14  # ids of which is remembered when they were first asked for
_MAX_REFERENCES = 256  # schemas that one schema refers to
_NOT_FOUND = {40401, 40402, 40403}  # subject, version, schema
_LOST = (OSError, http.client.HTTPException, ValueError)
_TOKEN = UrlOption("token", "Token for `Authorization: Bearer`; user and password are sent as `Basic`.", "")


class _Named(msgspec.Struct):
    """A schema that another one refers to."""

    subject: str
    version: int


class _Answer(msgspec.Struct, rename={"kind": "schemaType"}):
    """What the registry tells about a schema."""

    schema: str
    kind: str = "AVRO"
    references: list[_Named] | None = None


class _Refusal(msgspec.Struct):
    """What the registry says of a request that it cannot answer."""

    error_code: int = 0


class SchemaRegistry:
    """Asks a registry for schemas; see the module.

    Parameters
    ----------
    address : Address

    Raises
    ------
    ConfigError
        The registry is first asked by `find` or `check`.
    """

    url: ClassVar = "http[s]://[user:password@]host[:port][/path]"
    url_options: ClassVar = (_TOKEN, PATIENCE, CA, CERT, KEY)

    def __init__(self, address: Address) -> None:
        if address.scheme not in ("http", "https") or len(address.hosts) != 1:
            raise ConfigError("must be http:// or https:// and one host", address.key, got=Shown(address.masked))
        self._key, self._shown = address.key, address.masked.partition("?")[0]
        self._patience_s = address.take_number(PATIENCE)
        self._headers = _headers(address)
        self._path = address.target.partition("?")[0].rstrip("/")
        is_tls = address.scheme == "https"
        name, port = address.host(443 if is_tls else 80)
        if is_tls:
            context = tls_context(address)
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                name, port, timeout=_TIMEOUT_S, context=context
            )
        else:
            self._connection = http.client.HTTPConnection(name, port, timeout=_TIMEOUT_S)
        address.finish()
        self._first_asked: OrderedDict[str, float] = OrderedDict()
        self._left, self._counted = float(QUESTIONS), time.monotonic()
        self._rests_until = self._counted

    def find(self, names: Collection[str]) -> dict[str, FoundSchema | None]:
        """Ask for schemas by ``ids/NUMBER`` or ``guids/UUID``; None for those that the registry does not know.

        Raises
        ------
        SchemasUnreachable
            The registry did not answer within the option `patience`, or the stream ends.
        """
        with closing(self), calling("source"):  # new schemas are too rare to keep a connection for them
            return self._find(names)

    def _find(self, names: Collection[str]) -> dict[str, FoundSchema | None]:
        found: dict[str, FoundSchema | None] = {}
        waits, start = pauses(), time.monotonic()
        may_wait = start >= self._rests_until
        while True:
            for name in names:
                if found.get(name) is None:
                    found[name] = self._with_patience(name) if self._may_ask() else None
                    self._left -= found[name] is None
            now, until = time.monotonic(), 0.0
            for name in names:
                if found[name] is None:
                    until = max(until, self._first_asked.setdefault(name, now) + UNKNOWN_S)
                else:
                    self._first_asked.pop(name, None)
            while len(self._first_asked) > _MAX_UNKNOWN:
                self._first_asked.popitem(last=False)
            if now >= until or not may_wait:
                return found
            if is_over():  # what is not known yet is read again after the next start
                raise SchemasUnreachable("the stream ends while it waits for a schema that is not known yet")
            pause(min(next(waits), max(0.0, until - now)))
            now = time.monotonic()
            self._rests_until = now + _REST * (now - start)

    def _may_ask(self) -> bool:
        """Return whether the registry may be asked for what it perhaps does not know."""
        now = time.monotonic()
        self._left = min(float(QUESTIONS), max(0.0, self._left) + (now - self._counted) * QUESTIONS_PER_S)
        self._counted = now
        return self._left >= 1

    def check(self) -> str:
        """Ask which kinds of schemas there are; returns what a person should read.

        Raises
        ------
        ConfigError, SchemasUnreachable
        """
        try:
            with closing(self):
                status, _ = self._get("/schemas/types")
        except BrokerLost as lost:
            raise SchemasUnreachable(f"the schema registry {self._shown} cannot be reached: {lost}") from None
        if status != 200:
            raise SchemasUnreachable(
                f"the schema registry {self._shown} answers with status {status}", remedy=self._remedy
            )
        return f"the schema registry {self._shown} answers"

    def close(self) -> None:
        close_quietly(self._connection.close)

    @property
    def _remedy(self) -> str:
        return f"correct `{self._key}`, or start the registry"

    def _with_patience(self, name: str) -> FoundSchema | None:
        return with_patience(
            lambda: self._schema(name),
            self.close,
            self._patience_s,
            lambda error: SchemasUnreachable(
                f"the schema registry {self._shown} did not answer within "
                f"{self._patience_s:g} s: {error}; messages wait for it",
                remedy=self._remedy,
            ),
        )

    def _schema(self, name: str) -> FoundSchema | None:
        """Ask for a schema and all that it refers to."""
        answer = self._ask(f"/schemas/{name}", is_new=name.startswith("guids/"))
        if answer is None:
            return None
        parts: dict[tuple[str, int], str] = {}
        if not self._collect(answer.references or (), parts, frozenset()):
            return None
        return FoundSchema(answer.schema, answer.kind, tuple(parts.values()))

    def _collect(
        self, references: Collection[_Named], parts: dict[tuple[str, int], str], above: frozenset[tuple[str, int]]
    ) -> bool:
        """Add the schemas that are referred to, each after those that it refers to itself."""
        for each in references:
            place = (each.subject, each.version)
            if place in parts:
                continue
            if place in above or len(parts) + len(above) >= _MAX_REFERENCES:
                return False
            subject = re.sub(
                r"[^A-Za-z0-9_.~-]", lambda found: "".join(f"%{b:02X}" for b in found[0].encode()), each.subject
            )
            answer = self._ask(f"/subjects/{subject}/versions/{each.version}")
            if answer is None or not self._collect(answer.references or (), parts, above | {place}):
                return False
            parts[place] = answer.schema
        return True

    def _ask(self, path: str, is_new: bool = False) -> _Answer | None:
        """Return the answer to a request, None if there is no such schema.

        Registries that know no GUIDs do not know the path `is_new` either, and say so with a 404 of their server.
        """
        status, body = self._get(path)
        try:
            if status == 200:
                return msgspec.json.decode(body, type=_Answer)
            if status == 404 and (is_new or msgspec.json.decode(body, type=_Refusal).error_code in _NOT_FOUND):
                return None
        except msgspec.DecodeError:
            raise BrokerLost(f"status {status} without an answer of a schema registry") from None
        raise BrokerLost(f"status {status}")

    def _get(self, path: str) -> tuple[int, bytes]:
        try:
            if self._connection.sock is None:
                self._connection.connect()
            with deadline(self._connection.sock.fileno(), _TIMEOUT_S):
                self._connection.request("GET", self._path + path, headers=self._headers)
                answer = self._connection.getresponse()
                body = answer.read(_MAX_BYTES)
            if not answer.isclosed():
                self.close()
                raise BrokerLost("an answer that is too long")
            return answer.status, body
        except _LOST as error:
            self.close()
            if isinstance(error, ssl.SSLError) and (why := tls_failure(error)):
                raise BrokerLost(why) from None
            raise BrokerLost(error_text(error)) from None


def _headers(address: Address) -> dict[str, str]:
    headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json", "User-Agent": "fcstream"}
    return headers | authorization(address, address.take(_TOKEN), _TOKEN.name)
