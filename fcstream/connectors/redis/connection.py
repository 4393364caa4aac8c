"""Connection to a Redis server, which is made again after it was lost; its errors hold no secrets."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ...errors import ConfigError, FcstreamError, Shown, needs_package
from ..broker_connection import BrokerConnection
from ..retry import BrokerLost, close_quietly
from ..tls import TLS, tls_context, tls_failure
from ..urls import Address

T = TypeVar("T")
_SOCKET_S = 15.0
_CONNECT_S = 5.0
_UNREADY = {"BUSY", "CLUSTERDOWN", "MASTERDOWN", "MISCONF", "NOREPLICAS", "READONLY", "TRYAGAIN", "UNBLOCKED"}
"""Error codes of a server that will soon accept the command, or hand over to another one."""


class RedisConnection(BrokerConnection):
    """A client that connects again after its connection was lost, and whose errors hold no secrets."""

    trouble, remedy = "cannot be reached", "start the server"

    def __init__(self, address: Address, patience_s: float, error: type[FcstreamError]) -> None:
        with needs_package("redis", "redis", address.key):
            import redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry
        super().__init__(address, patience_s, error)
        options = _options(address)
        # The client would read the files at every connection, when it is too late to report a wrong address.
        context = tls_context(address) if address.scheme == "rediss" else None
        address.finish()
        self._client: Any = redis.Redis(
            **options,
            decode_responses=False,
            protocol=2,  # responses are lists, which are three times as fast to read
            retry=Retry(NoBackoff(), 0),
            socket_timeout=_SOCKET_S,
            socket_connect_timeout=_CONNECT_S,
            socket_keepalive=True,
        )
        if context is not None:
            self._client.connection_pool.connection_class = _secured(context)
        self._client.set_response_callback("XREAD", lambda reply, **_: reply)

    def open(self, action: Callable[[Any], T]) -> T:
        """Do the first thing with the connection, in one attempt, so that a wrong address is reported at once."""
        return self.repeat(lambda: self._once(action), 0.0)

    def run(self, action: Callable[[Any], T]) -> T:
        """Do something that is safe to repeat."""
        return self.repeat(lambda: self._once(action))

    def close(self) -> None:
        close_quietly(self._client.close)

    def unreachable(self, last: BaseException) -> FcstreamError:
        if str(last) in _UNREADY:
            return self._error(
                f"{self.location} cannot serve now: {last}", remedy="repair the server or its replication"
            )
        return super().unreachable(last)

    def _once(self, action: Callable[[Any], T]) -> T:
        errors = redis_errors()
        try:
            return action(self._client)
        except (errors.AuthenticationError, errors.AuthorizationError) as error:
            raise self.refused(error_text(error)) from None
        except (errors.ConnectionError, errors.TimeoutError, OSError) as error:
            self._drop()
            raise BrokerLost(error_text(error)) from None
        except (errors.RedisError, ValueError) as error:  # ValueError: a response that the client cannot read
            code = _code(error)
            if code in _UNREADY or isinstance(error, ValueError):
                self._drop()
            if code in _UNREADY:
                raise BrokerLost(code) from None
            raise self.refused(error_text(error)) from None

    def _drop(self) -> None:
        """Close the connections; the next one may lead to another server, after a failover behind a name."""
        close_quietly(self._client.connection_pool.disconnect)


def error_text(error: BaseException) -> str:
    """Return what is safe to show: the server's error code, the system's words, or the error's class."""
    if why := tls_failure(error):
        return why
    cause: Any = error if isinstance(error, OSError) else error.__context__
    words = cause.strerror if isinstance(cause, OSError) else None
    return _code(error) or words or type(error).__name__


def _code(error: BaseException) -> str | None:
    """Return the server's error code, also where the client removes it and has a class of errors for it."""
    errors = redis_errors()
    for known, code in (
        (errors.ReadOnlyError, "READONLY"),
        (errors.MasterDownError, "MASTERDOWN"),
        (errors.TryAgainError, "TRYAGAIN"),
        (errors.ClusterDownError, "CLUSTERDOWN"),
    ):
        if isinstance(error, known):
            return code
    before = "Transaction discarded because of: " if isinstance(error, errors.ExecAbortError) else ""
    found = re.match(rf"{before}([A-Z]{{3,20}})\b", str(error))
    return found[1] if found else None


def redis_errors() -> Any:
    import redis.exceptions

    return redis.exceptions


def _options(address: Address) -> dict[str, Any]:
    """Return the client's options."""
    if len(address.hosts) > 1 or not re.fullmatch(r"\d{0,4}", address.path):
        raise ConfigError("must be redis://host:port/number", address.key, got=Shown(address.masked))
    host, port = address.host(6379)
    options: dict[str, Any] = {"host": host, "port": port, "db": int(address.path or 0)}
    options |= {"username": address.user, "password": address.password}
    if address.scheme == "rediss":
        files = {option.name: address.options.get(option.name) or None for option in TLS}
        options |= {"ssl": True, "ssl_ca_certs": files["ca"]}
        options |= {"ssl_certfile": files["cert"], "ssl_keyfile": files["key"]}
    return options


def _secured(context: ssl.SSLContext) -> type[Any]:
    """Make a class of connections that trust what the context trusts.

    The client's own class trusts the system's authorities too, whatever `ca` names.
    """
    from redis import SSLConnection

    class Secured(SSLConnection):
        def _wrap_socket_with_ssl(self, sock: Any) -> Any:
            return context.wrap_socket(sock, server_hostname=self.host)

    return Secured


def raise_first(answers: Sequence[Any]) -> None:
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer


def answers_of(pipe: Any) -> list[Any]:
    """Return the responses to a pipeline, or raise the first error as the server reported it.

    The client would put the command in front of the error, which hides the error's code.
    """
    answers: list[Any] = pipe.execute(raise_on_error=False)
    raise_first(answers)
    return answers
