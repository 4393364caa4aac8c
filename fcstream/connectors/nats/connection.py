"""The connection of `jetstream`: in a thread of its own, made again when it was lost, with the library mended."""

from __future__ import annotations

import asyncio
import base64
import datetime
import inspect
import json
import os
import re
import ssl
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ...errors import ConfigError, FcstreamError
from ..libraries import unsupported_version
from ..retry import with_patience
from ..tls import tls_context, tls_failure
from ..urls import missing_library

if TYPE_CHECKING:
    from ..urls import Address

T = TypeVar("T")
REQUEST_S = 5.0
LONGEST = 2000
"""Bytes of a subject; with the rest of its line it must stay below the 4096 that the protocol has."""
_LONGEST_NAME = 255  # bytes of a stream's name
_CONNECT_S = 10.0
_REFUSALS = (
    *("permissions", "authorization", "authentication", "maxpayload"),
    *("badsubject", "badheader", "invalidkey", "invalidbucket"),
)
_STREAM_REFUSES = 10077  # an error code: the stream is full
_STREAM_UNKNOWN = 10059


class StoredMessage(NamedTuple):
    """A message of a stream."""

    sequence: int
    subject: str
    timestamp_ms: int  # to the second
    body: bytes


class NatsConnection:
    """A connection in a thread of its own, which is made again when it was lost, and whose errors tell no secrets."""

    def __init__(self, address: Address, patience_s: float, error: type[FcstreamError]) -> None:
        try:
            import nats.aio.client  # noqa: F401
        except ImportError:
            raise missing_library("nats-py", "nats", address.key) from None
        self._error = error
        self._where = address.masked
        self._patience_s = address.take_number("patience", patience_s)
        self._wants_tls, self._options = _options(address)
        address.finish()
        self.client: Any = None
        self.js: Any = None
        self.is_awaited = False
        """Whether a stream that does not exist is about to be made anew."""
        self._trouble: BaseException | None = None
        self._unfit = unsupported_version("nats-py", address.key)
        self._is_tried = False
        self._closed = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fcstream-nats", daemon=True)
        self._thread.start()

    def first(self, action: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The first thing to do: one try, so that a wrong address is reported at once; closes if it fails."""
        try:
            return self.run(action, 0.0)
        except BaseException:
            self.close()
            raise

    def run(self, action: Callable[[], Coroutine[Any, Any, T]], patience_s: float | None = None) -> T:
        """Do something that is safe to repeat when the connection is lost: for so long, or as the address says."""
        if self._loop.is_closed():
            raise self._error(f"{self._where} was closed: open it again")

        def lost(error: BaseException) -> FcstreamError:
            return self._error(f"{self._where} cannot be reached: {error}; start the server, or correct the address")

        patience_s = self._patience_s if patience_s is None else patience_s
        return with_patience(lambda: self.once(action), lambda: None, (NatsLost,), patience_s, lost)

    def once(self, action: Callable[[], Coroutine[Any, Any, T]]) -> T:
        future = asyncio.run_coroutine_threadsafe(self._guarded(action), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self, farewell: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Let go; with a last thing to do, if there is a connection: none is made for it."""
        if self._loop.is_closed():
            return
        with suppress(Exception):
            asyncio.run_coroutine_threadsafe(self._end(farewell), self._loop).result(2 * REQUEST_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self, farewell: Callable[[], Coroutine[Any, Any, None]] | None) -> None:
        if farewell is not None and self.client is not None and not self.client.is_closed:
            with suppress(Exception):
                await farewell()
        await self._disconnect()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def extent(self, stream: str) -> tuple[str, int, int]:
        """When a stream was made, its first sequence, and the one after its last; of one that keeps what was read."""
        info = await self.info(stream)
        if (policy := info["config"].get("retention", "limits")) != "limits":
            raise self._error(
                f"stream {stream} must have the retention policy 'limits', not {policy!r}, under which it drops "
                "messages that are read again after a restart: give it that policy, or read another stream"
            )
        return info["created"], max(1, info["state"]["first_seq"]), info["state"]["last_seq"] + 1

    async def info(self, stream: str) -> Any:
        """What the server that leads a stream tells of it."""
        return await self._api(f"STREAM.INFO.{stream}")

    async def clock(self, stream: str) -> tuple[int, int] | None:
        """The server's time, and the timestamp of a stream's last message, in Unix milliseconds; None if it tells
        none."""
        from nats.js.errors import APIError

        info = await self.info(stream)
        now = info.get("ts")
        if now is None:  # servers before 2.10 tell it only of what they have just made, and drop again by themselves
            config = {"deliver_policy": "new", "ack_policy": "none", "inactive_threshold": 10**9, "mem_storage": True}
            try:
                now = (await self._api(f"CONSUMER.CREATE.{stream}", stream_name=stream, config=config))["created"]
            except APIError:
                return None
        return unix_ms(now), unix_ms(info["state"]["last_ts"])

    async def message(self, stream: str, **which: Any) -> StoredMessage | None:
        """One message, None if there is none. The library would read its headers, which may be anything."""
        from nats.js.errors import NotFoundError

        try:
            found = (await self._api(f"STREAM.MSG.GET.{stream}", **which))["message"]
        except NotFoundError as error:
            if error.err_code == _STREAM_UNKNOWN:
                raise
            return None
        timestamp = datetime.datetime.fromisoformat(found["time"][:19] + "+00:00")
        body = base64.b64decode(found.get("data") or b"")
        return StoredMessage(int(found["seq"]), found["subject"], int(timestamp.timestamp()) * 1000, body)

    async def _api(self, what: str, **request: Any) -> Any:
        """An answer of the server's, as it is: the library knows parts of it only."""
        from nats.js.errors import APIError

        body = json.dumps(request).encode() if request else b""
        answer = await self.client.request(f"$JS.API.{what}", body, timeout=REQUEST_S)
        found = json.loads(answer.data)
        if "error" in found:
            APIError.from_error(found["error"])
        return found

    async def _guarded(self, action: Callable[[], Awaitable[T]]) -> T:
        """Connect if need be, and act; what goes wrong is either `NatsLost` or an error of ours."""
        import nats.errors
        import nats.js.errors

        try:
            if self.client is None or self.client.is_closed:
                await self._connect()
            return await self._unless_closed(action)
        except (FcstreamError, NatsLost):
            raise
        except nats.js.errors.APIError as error:
            if error.code == 503 and error.err_code != _STREAM_REFUSES:
                raise NatsLost("JetStream is not available") from None
            if error.err_code == _STREAM_UNKNOWN and self.is_awaited:
                raise NatsLost("the stream does not exist") from None
            raise self._refused(error.description or type(error).__name__) from None
        except (nats.errors.Error, OSError) as error:
            trouble, self._trouble = self._trouble, None
            said = f"{error!r} {trouble}".lower()
            if why := next((word for word in _REFUSALS if word in said), None):
                raise self._refused(why) from None
            if isinstance(error, nats.errors.TimeoutError):
                await self._disconnect()  # whatever it is, a new connection may help
            raise NatsLost(
                _error_text(trouble if trouble and isinstance(error, nats.errors.NoServersError) else error)
            ) from None
        except Exception as error:  # the library was surprised, by an answer perhaps: its words may hold some of it
            await self._disconnect()
            raise NatsLost(type(error).__name__) from None

    async def _unless_closed(self, action: Callable[[], Awaitable[T]]) -> T:
        """Act, but no longer than the connection lives."""
        acting = asyncio.ensure_future(action())
        closed = asyncio.ensure_future(self._closed.wait())
        try:
            await asyncio.wait((acting, closed), return_when=asyncio.FIRST_COMPLETED)
            if acting.done():
                return acting.result()
            raise NatsLost("the connection was closed")
        finally:
            for task in (acting, closed):
                task.cancel()

    async def _connect(self) -> None:
        closed = self._closed = asyncio.Event()
        self._trouble = None

        async def on_close() -> None:
            closed.set()

        async def on_error(error: Exception) -> None:
            self._trouble = error

        await self._disconnect()
        self._is_tried = self._is_tried or await _has_client_internals()
        if not self._is_tried:
            raise self._unfit
        client = _patched_client(self._wants_tls, self._refused("the file of credentials cannot be used"))
        try:
            await asyncio.wait_for(client.connect(closed_cb=on_close, error_cb=on_error, **self._options), _CONNECT_S)
        except BaseException:
            await _close(client)
            raise
        self.client = client
        self.js = client.jetstream(timeout=REQUEST_S)

    async def _disconnect(self) -> None:
        client, self.client = self.client, None
        if client is not None:
            await _close(client)

    def _refused(self, why: str) -> FcstreamError:
        return self._error(f"{self._where} refuses: {why}; correct the address, or the server's rules")


def unix_ms(text: str) -> int:
    """Unix milliseconds of ``2026-01-01T00:00:00.123456789Z``."""
    whole = datetime.datetime.fromisoformat(text[:19] + "+00:00")
    return int(whole.timestamp()) * 1000 + int(f"{text[19:].strip('.Z')}000"[:3] or 0)


class NatsLost(Exception):
    """The connection, the consumer, or a server that is about to come back."""


async def _close(client: Any) -> None:
    """Let go; the library waits for ever for a connection whose handshake failed."""
    with suppress(Exception):
        await asyncio.wait_for(client.close(), 1.0)


def _patched_client(wants_tls: bool, useless: FcstreamError) -> Any:
    """The library's client, mended in three places; raises `useless` where credentials are."""
    from nats.aio.client import Client
    from nats.errors import SecureConnRequiredError

    class PatchedClient(Client):
        def __init__(self) -> None:
            super().__init__()
            self._ps = _patched_parser(self)

        async def _process_msg(self, sid: Any, subject: Any, reply: Any, data: Any, headers: Any) -> None:
            # A subject or headers that it cannot parse end its reading for good: any publisher could do that.
            try:
                await super()._process_msg(sid, subject, reply, data, headers)
            except Exception:
                await super()._process_msg(sid, b"unreadable", reply, data, b"")

        def _connect_command(self) -> Any:
            # It encrypts when the server asks for it; who stands between could leave that out and get the password.
            if wants_tls and not self._server_info.get("tls_required"):
                raise SecureConnRequiredError
            try:
                return super()._connect_command()
            except Exception:  # of any kind: it looks into the file of credentials now
                raise useless from None

    return PatchedClient()


def _patched_parser(client: Any) -> Any:
    """The library's parser, of which any white space ends a field. For the server only a blank does: a subject may hold
    other white space, and would end the library's reading for good."""
    from nats.protocol import parser

    fields = rb" +([^ \r\n]+) +([0-9]+) +(([^ \r\n]+) +)?"
    mended = {
        **vars(parser),
        "MSG_RE": re.compile(rb"\AMSG" + fields + rb"([0-9]+)\r\n"),
        "HMSG_RE": re.compile(rb"\AHMSG" + fields + rb"([0-9]+) +([0-9]+)\r\n"),
    }

    class PatchedParser(parser.Parser):
        # The same code with other expressions, for this client only.
        parse = FunctionType(parser.Parser.parse.__code__, mended, "parse", parser.Parser.parse.__defaults__)

    return PatchedParser(client)


async def _has_client_internals() -> bool:
    """Whether the library's insides, some of which are exchanged, are there and do what they did."""
    from nats.aio.client import Client

    taken: list[tuple[Any, ...]] = []

    class Taker:
        async def _process_msg(self, *message: Any) -> None:
            taken.append(message)

    head = b"NATS/1.0\r\n\r\n"
    wire = b"MSG a\tb 1 r 2\r\nhi\r\nHMSG s 2 %d %d\r\n%sok\r\n" % (len(head), len(head) + 2, head)
    try:
        await _patched_parser(Taker()).parse(wire)
        client: Any = Client()
        inspect.signature(client._process_msg).bind(1, b"s", b"", b"", b"")
        inspect.signature(client._connect_command).bind()
        is_same = inspect.iscoroutinefunction(client._process_msg) and {"_ps", "_server_info"} <= vars(client).keys()
    except Exception:  # of any kind: whatever it became
        return False
    return is_same and taken == [(1, b"a\tb", b"r", b"hi", None), (2, b"s", b"", b"ok", head)]


def _error_text(error: BaseException) -> str:
    """What is safe to tell: the system's words, or the class."""
    if why := tls_failure(error):
        return why
    if isinstance(error, ssl.SSLError):
        return error.reason or "TLS"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return str(error)[:200].removeprefix("nats: ") if type(error).__name__ == "Error" else type(error).__name__


def stream_of(address: Address) -> str:
    """The stream that an address names."""
    if address.user and not address.password:  # a token, perhaps: not to be shown
        raise ConfigError("must have a password after the user; a token goes into ?token=...", address.key)
    if not re.fullmatch(r"[^\s.*>/\\]+", address.path):
        raise ConfigError(f"must be nats://host/STREAM, got {address.masked}", address.key)
    return checked_name(address.path, "a stream's name", _LONGEST_NAME, address)


def checked_name(name: str, what: str, max_bytes: int, address: Address) -> str:
    """A name that the protocol can carry."""
    if (length := len(name.encode())) > max_bytes:
        raise ConfigError(
            f"must have at most {max_bytes} bytes as {what}, got {length}: choose a shorter one", address.key
        )
    return name


def _options(address: Address) -> tuple[bool, dict[str, Any]]:
    """Whether the connection must be encrypted, and the options of the client."""
    options: dict[str, Any] = {"name": "fcstream", "connect_timeout": REQUEST_S, "ping_interval": 10}
    # It would be patient for ever; patience is ours.
    options |= {"allow_reconnect": False, "max_reconnect_attempts": 1, "reconnect_time_wait": 0}
    options["servers"] = [
        f"nats://{f'[{name}]' if ':' in name else name}:{port or 4222}" for name, port in address.hosts
    ]
    options |= {"user": address.user, "password": address.password, "token": address.take("token", "") or None}
    if creds := address.take("creds", ""):
        try:
            import nkeys  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: F401
        except ImportError:
            raise missing_library("nkeys", "nats", address.key) from None
        if not os.access(creds, os.R_OK):
            raise ConfigError(f"names the file {creds}, which cannot be read", address.key)
        options["user_credentials"] = creds
    wants_tls = address.take("tls", "no") == "yes" or not {"ca", "cert", "key"}.isdisjoint(address.options)
    if wants_tls:
        options["tls"] = tls_context(address)
    return wants_tls, options
