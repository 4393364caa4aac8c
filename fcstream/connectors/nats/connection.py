"""Connection to a NATS server: its client runs in a thread of its own, and a lost connection is made again."""

from __future__ import annotations

import asyncio
import base64
import datetime
import json
import os
import re
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from ...errors import ConfigError, FcstreamError, Shown, needs_package
from ...runtime.undo import on_error
from ..broker_connection import BrokerConnection
from ..client_loop import ClientLoop, abort
from ..retry import BrokerLost
from ..tls import TLS, tls_context, tls_failure
from ..urls import PATIENCE, Address, UrlOption

T = TypeVar("T")
REQUEST_S = 5.0
LONGEST = 2000
"""Largest number of bytes of a subject; its whole line must stay below the protocol's limit of 4096."""
_LONGEST_NAME = 255  # largest number of bytes of a stream's name
_CONNECT_S = 10.0
_READING_S = 2.0  # for a response
_REFUSALS = (
    *("permissions", "authorization", "authentication", "maxpayload"),
    *("badsubject", "badheader", "invalidkey", "invalidbucket"),
)
_STREAM_REFUSES = 10077  # error code of a stream that is full
_STREAM_UNKNOWN = 10059
_SECRETS = ("user", "password", "token", "user_jwt_cb", "signature_cb")  # options of the client that hold secrets
_TOKEN = UrlOption("token", "Token to log in with.", "")
_CREDS = UrlOption("creds", "File of credentials to log in with.", "")
_TLS = UrlOption("tls", "`yes`: the connection must be encrypted, as it must with `ca`, `cert` or `key`.", "no")
CONNECTION = (_TOKEN, _CREDS, PATIENCE, _TLS, *TLS)


class StoredMessage(NamedTuple):
    """A message of a stream."""

    sequence: int
    subject: str
    timestamp_ms: int
    body: bytes
    header: bytes = b""


class NatsConnection(BrokerConnection):
    """Connection in a thread of its own, which is made again when it was lost, and whose errors hold no secrets."""

    trouble, remedy = "cannot be reached", "start the server"

    def __init__(self, address: Address, patience_s: float, error: type[FcstreamError]) -> None:
        with needs_package("nats-py", "nats", address.key):
            import nats.aio.client  # noqa: F401
        super().__init__(address, patience_s, error)
        self._wants_tls, self._options = _options(address)
        address.finish()
        self.client: Any = None
        self.js: Any = None
        self.is_awaited = False
        """Whether a stream that does not exist is about to be made anew."""
        self._trouble: BaseException | None = None
        self._closed = asyncio.Event()
        self._loop = ClientLoop("fcstream-nats")

    def first(self, action: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do the first thing with the connection, in one attempt, so that a wrong address is reported at once; closes
        on failure.
        """
        with on_error(self.close):
            return self.run(action, 0.0)

    def run(self, action: Callable[[], Coroutine[Any, Any, T]], patience_s: float | None = None) -> T:
        """Do something that is safe to repeat when the connection is lost, for `patience_s` or as long as the address
        says.
        """
        if self._loop.is_closed:
            raise self._error(f"{self.location} was closed: open it again")
        return self.repeat(lambda: self.once(action), patience_s)

    def once(self, action: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return self._loop.run(self._guarded(action))

    def close(self, farewell: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Close the connection, after a last action if it is still there; it is not made again for that."""
        self._loop.close(self._end(farewell), 2 * REQUEST_S)

    async def _end(self, farewell: Callable[[], Coroutine[Any, Any, None]] | None) -> None:
        if farewell is not None and self.client is not None and not self.client.is_closed:
            with suppress(Exception):
                await farewell()
        await self._disconnect()

    async def extent(self, stream: str) -> tuple[str, int, int]:
        """Return when a stream was made, its first sequence, and the one after its last.

        Raises an error if the stream does not keep messages that were read.
        """
        info = await self.info(stream)
        if (policy := info["config"].get("retention", "limits")) != "limits":
            raise self._error(
                f"stream {stream} must have the retention policy 'limits', not {policy!r}, under which it drops "
                "messages that are read again after a restart: give it that policy, or read another stream"
            )
        return info["created"], max(1, info["state"]["first_seq"]), info["state"]["last_seq"] + 1

    async def info(self, stream: str) -> Any:
        """Ask the server that leads a stream for the stream's state."""
        return await self._api(f"STREAM.INFO.{stream}")

    async def check_reading(self, stream: str) -> None:
        """Lose the connection if nothing is read from it any more: the client stops at what it cannot parse, without an
        error.
        """
        try:
            await asyncio.wait_for(self.info(stream), _READING_S)
        except TimeoutError:
            await self._disconnect()
            raise BrokerLost("the client stopped reading") from None

    async def clock(self, stream: str) -> tuple[int, int] | None:
        """Return the server's time and the timestamp of a stream's last message, in Unix milliseconds; None if it
        reports none.
        """
        from nats.js.errors import APIError

        info = await self.info(stream)
        now = info.get("ts")
        if now is None:  # servers before 2.10 report it only with a new consumer, which they drop by themselves
            config = {"deliver_policy": "new", "ack_policy": "none", "inactive_threshold": 10**9, "mem_storage": True}
            try:
                now = (await self._api(f"CONSUMER.CREATE.{stream}", stream_name=stream, config=config))["created"]
            except APIError:
                return None
        return unix_ms(now), unix_ms(info["state"]["last_ts"])

    async def message(self, stream: str, **which: Any) -> StoredMessage | None:
        """Return one message, None if there is none. The library would read its headers, which may hold anything."""
        from nats.js.errors import NotFoundError

        try:
            found = (await self._api(f"STREAM.MSG.GET.{stream}", **which))["message"]
        except NotFoundError as error:
            if error.err_code == _STREAM_UNKNOWN:
                raise
            return None
        body = base64.b64decode(found.get("data") or b"")
        header = base64.b64decode(found.get("hdrs") or b"")
        return StoredMessage(int(found["seq"]), found["subject"], unix_ms(found["time"]), body, header)

    async def _api(self, what: str, **request: Any) -> Any:
        """Return a response of the server's as it is, because the library knows only parts of it."""
        from nats.js.errors import APIError

        body = json.dumps(request).encode() if request else b""
        answer = await self.client.request(f"$JS.API.{what}", body, timeout=REQUEST_S)
        found = json.loads(answer.data)
        if "error" in found:
            APIError.from_error(found["error"])
        return found

    async def _guarded(self, action: Callable[[], Awaitable[T]]) -> T:
        """Connect if necessary, and act; any failure becomes `BrokerLost` or an error of this package."""
        import nats.errors
        import nats.js.errors

        try:
            if self.client is None or self.client.is_closed:
                await self._connect()
            return await self._unless_closed(action)
        except (FcstreamError, BrokerLost):
            raise
        except nats.js.errors.APIError as error:
            if error.code == 503 and error.err_code != _STREAM_REFUSES:
                raise BrokerLost("JetStream is not available") from None
            if error.err_code == _STREAM_UNKNOWN and self.is_awaited:
                raise BrokerLost("the stream does not exist") from None
            raise self.refused(error.description or type(error).__name__) from None
        except (nats.errors.Error, OSError) as error:
            trouble, self._trouble = self._trouble, None
            said = f"{error!r} {trouble}".lower()
            if why := next((word for word in _REFUSALS if word in said), None):
                raise self.refused(why) from None
            if isinstance(error, nats.errors.TimeoutError):
                await self._disconnect()  # whatever the cause, a new connection may help
            raise BrokerLost(
                _error_text(trouble if trouble and isinstance(error, nats.errors.NoServersError) else error)
            ) from None
        except Exception as error:  # an unexpected error of the library, whose text may hold part of a message
            await self._disconnect()
            raise BrokerLost(type(error).__name__) from None

    async def _unless_closed(self, action: Callable[[], Awaitable[T]]) -> T:
        """Run an action, but no longer than the connection lives."""
        acting = asyncio.ensure_future(action())
        closed = asyncio.ensure_future(self._closed.wait())
        try:
            await asyncio.wait((acting, closed), return_when=asyncio.FIRST_COMPLETED)
            if acting.done():
                return acting.result()
            raise BrokerLost("the connection was closed")
        finally:
            for task in (acting, closed):
                task.cancel()

    async def _connect(self) -> None:
        from nats.aio.client import Client

        closed = self._closed = asyncio.Event()
        self._trouble = None

        async def on_close() -> None:
            closed.set()

        async def on_error(error: Exception) -> None:
            self._trouble = error

        await self._disconnect()
        client = Client()
        options = {name: self._guard(given) if name in _SECRETS else given for name, given in self._options.items()}
        try:
            await asyncio.wait_for(client.connect(closed_cb=on_close, error_cb=on_error, **options), _CONNECT_S)
            self._check_encryption()
        except BaseException:  # the time is over or the action was cancelled: the client must not try any longer
            await _close(client)
            raise
        self.client = client
        self.js = client.jetstream(timeout=REQUEST_S)

    def _check_encryption(self) -> None:
        """Refuse a connection that is not encrypted.

        The client encrypts only if the server asks for it, and somebody between could remove that request.
        """
        import nats.errors

        if self._wants_tls and not self._loop.is_encrypted:
            raise nats.errors.SecureConnRequiredError

    def _guard(self, secret: Any) -> Any:
        """Wrap a secret in a function that the client calls when it is about to send the secret.

        It refuses over a connection that must be encrypted and is not.
        """
        if secret is None:
            return None

        def checked(*arguments: Any) -> Any:
            self._check_encryption()
            try:
                return secret(*arguments) if callable(secret) else secret
            except (OSError, ValueError):
                raise self.refused("the file of credentials cannot be used") from None

        return checked

    async def _disconnect(self) -> None:
        client, self.client = self.client, None
        if client is not None:
            await _close(client)
        abort(self._loop.take_transports())


def unix_ms(text: str) -> int:
    """Convert ``2026-01-01T00:00:00.123456789Z`` to Unix milliseconds."""
    whole = datetime.datetime.fromisoformat(text[:19] + "+00:00")
    return int(whole.timestamp()) * 1000 + int(f"{text[19:].strip('.Z')}000"[:3] or 0)


async def _close(client: Any) -> None:
    """Close a client; the library would wait for ever for a connection whose handshake failed."""
    with suppress(Exception):
        await asyncio.wait_for(client.close(), 1.0)


def _credentials(path: str) -> dict[str, Callable[..., bytes]]:
    """Return the client's options that read a file of credentials at every connection.

    The file's first part is sent as it is, and the key in its second part signs the server's challenge.
    """
    import nkeys  # type: ignore[import-not-found, import-untyped, unused-ignore]

    def part(title: bytes) -> bytes:
        with open(path, "rb") as file:
            found = re.search(rb"-BEGIN " + title + rb"-+\s+(\S+)", file.read())
        if found is None:
            raise ValueError(title)
        return bytes(found[1])

    def sign(challenge: str) -> bytes:
        try:
            keys = nkeys.from_seed(bytearray(part(b"USER NKEY SEED")))
            return base64.b64encode(bytes(keys.sign(challenge.encode())))
        except nkeys.NkeysError:
            raise ValueError(path) from None

    return {"user_jwt_cb": lambda: part(b"NATS USER JWT"), "signature_cb": sign}


def _error_text(error: BaseException) -> str:
    """Return what is safe to show: the system's words, or the error's class."""
    if why := tls_failure(error):
        return why
    if isinstance(error, ssl.SSLError):
        return error.reason or "TLS"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return str(error)[:200].removeprefix("nats: ") if type(error).__name__ == "Error" else type(error).__name__


def stream_of(address: Address) -> str:
    """Return the stream that an address names."""
    if address.user and not address.password:  # it may be a token, so it is not shown
        raise ConfigError("must have a password after the user; a token goes into ?token=...", address.key)
    if not re.fullmatch(r"[^\s.*>/\\]+", address.path):
        raise ConfigError("must be nats://host/STREAM", address.key, got=Shown(address.masked))
    return checked_name(address.path, "a stream's name", _LONGEST_NAME, address)


def checked_name(name: str, what: str, max_bytes: int, address: Address) -> str:
    """Return a name after checking that the protocol can carry it."""
    if (length := len(name.encode())) > max_bytes:
        raise ConfigError(
            f"must have at most {max_bytes} bytes as {what}", address.key, got=length, remedy="choose a shorter one"
        )
    return name


def _options(address: Address) -> tuple[bool, dict[str, Any]]:
    """Return whether the connection must be encrypted, and the options of the client."""
    options: dict[str, Any] = {"name": "fcstream", "connect_timeout": REQUEST_S, "ping_interval": 10}
    # The client would retry for ever; retries are made by this class instead.
    options |= {"allow_reconnect": False, "max_reconnect_attempts": 1, "reconnect_time_wait": 0}
    options["servers"] = [
        f"nats://{f'[{name}]' if ':' in name else name}:{port or 4222}" for name, port in address.hosts
    ]
    options |= {"user": address.user, "password": address.password, "token": address.take(_TOKEN) or None}
    if creds := address.take(_CREDS):
        with needs_package("nkeys", "nats", address.key):
            import nkeys  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: F401
        if not os.access(creds, os.R_OK):
            raise ConfigError(f"names the file {creds}, which cannot be read", address.key)
        options |= _credentials(creds)
    wants_tls = address.take(_TLS) == "yes" or any(option.name in address.options for option in TLS)
    if wants_tls:
        options["tls"] = tls_context(address)
    return wants_tls, options
