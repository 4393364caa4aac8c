"""Connection to Kafka's brokers for source and sink: where they are, how to log in, and since when they are
unreachable.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ...errors import ConfigError, FcstreamError, Shown, needs_package
from ...runtime.waiting import is_over, note_failure
from ..broker_connection import BrokerConnection
from ..retry import BrokerLost
from ..tls import CA, CERT, KEY, TLS, TRUST
from ..urls import PATIENCE, Address, UrlOption

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

T = TypeVar("T")
LOG = logging.getLogger("fcstream.connectors.kafka")
ASK_S = 3.0  # for one response of a broker
_LAST_S = 3.0  # for a last commit, when the stream is to stop
FINAL = {
    *("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED"),
    *("CLUSTER_AUTHORIZATION_FAILED", "UNSUPPORTED_SASL_MECHANISM", "ILLEGAL_SASL_STATE", "INVALID_GROUP_ID"),
    *("_FATAL", "FENCED_INSTANCE_ID", "UNSUPPORTED_VERSION", "_UNSUPPORTED_FEATURE", "INCONSISTENT_GROUP_PROTOCOL"),
}
"""Errors that do not go away by waiting."""
_SECURITY = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_SASL = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_REMEDY = "correct the login, or what it is allowed to do"
_SECURITY_OF = UrlOption(
    "security",
    f"One of {', '.join(f'`{one}`' for one in _SECURITY)}.",
    otherwise="`sasl_ssl` with a user, else `ssl` with a `ca`, else `plaintext`",
)
_SASL_OF = UrlOption("sasl", f"How to log in: {', '.join(f'`{one}`' for one in _SASL)}.", "PLAIN")
CONNECTION = (PATIENCE, _SECURITY_OF, _SASL_OF, *TLS)


class KafkaConnection(BrokerConnection):
    """Where the brokers are and how to log in, which errors their clients reported, and since when.

    Takes the connection's options from an address; `error` is the type that it raises.
    """

    def __init__(self, address: Address, name: str, patience_s: float, error: type[FcstreamError]) -> None:
        with needs_package("confluent-kafka", "kafka", address.key):
            import confluent_kafka
            import confluent_kafka.admin
        self.kafka: Any = confluent_kafka
        super().__init__(address, patience_s, error)
        self.down_since: float | None = None
        self._password = address.password
        self._why = self._final = ""
        self.topics = tuple(dict.fromkeys(address.path.split(",")))
        if not all(re.fullmatch(r"[A-Za-z0-9._-]{1,249}", topic) for topic in self.topics):
            raise ConfigError("must name a topic after the host", self._key, got=Shown(self.location))
        self.settings = {
            "bootstrap.servers": address.listing(9092),
            "client.id": name,
            "socket.timeout.ms": int(1000 * max(2.0, min(self.patience_s, 20.0))),
            "log_level": 0,  # errors are reported by `on_client_event`
            **_login(address),
        }
        # Asks for ends on a connection of its own: on the consumer's, every request would wait behind its long polls.
        self._specs: Any = vars(confluent_kafka.admin)["OffsetSpec"]
        self.admin = self.make(
            confluent_kafka.admin.AdminClient, {"error_cb": partial(self.on_client_event, is_idle=True)}
        )

    def make(self, client: Callable[[dict[str, Any]], T], extra: Mapping[str, Any]) -> T:
        """Make a client with further settings."""
        try:
            return client({**self.settings, "error_cb": self.on_client_event, **extra})
        except self.kafka.KafkaException as error:
            raise ConfigError(
                f"cannot be used: {self.error_text(error.args[0])}", self._key, got=Shown(self.location)
            ) from None

    def error_text(self, error: KafkaError) -> str:
        """Format a client's error on one line, without secrets."""
        text = " ".join(error.str().split())[:300] or error.name()
        return text.replace(self._password, "***") if self._password else text

    def on_client_event(self, error: KafkaError, is_idle: bool = False) -> None:
        """Note what happens in a client's background; the client calls this during calls of ours."""
        if error.name() in FINAL or error.fatal():
            self._final = self.error_text(error)
        elif error.name() != "_ALL_BROKERS_DOWN":
            self._why = self.error_text(error)
        elif not is_idle:  # an idle client may lose its connections
            self.is_down("")

    def is_down(self, why: str) -> None:
        self._why = why or self._why
        if self.down_since is None:
            self.down_since = time.monotonic()
            LOG.warning("%s does not answer; trying again", self.location)

    def is_up(self) -> None:
        if self.down_since is not None:
            self.down_since = None
            LOG.warning("%s answers again", self.location)

    def check_brokers(self, client: Any) -> None:
        """Ask brokers that are away whether they are back; raise what waiting does not mend, or lasted too long."""
        since = self.down_since
        if since is not None:
            with suppress(BrokerLost, self.kafka.KafkaException):
                self.partitions(client, 1.0)
        self.check()
        if since is not None and self.down_since is not None and time.monotonic() - since > self.patience_s:
            self.down_since = time.monotonic()  # the next call tries again
            raise self.unreachable(BrokerLost())

    def reconnect(self) -> None:
        self.check()

    def on_read_error(self, error: KafkaError) -> None:
        """What a consumer got instead of a message: the brokers refuse, or are away."""
        if error.name() in FINAL or error.fatal():
            self.on_client_event(error)
        else:
            self.is_down(self.error_text(error))

    def check(self) -> None:
        """Raise, once, an error that does not go away by waiting."""
        final, self._final = self._final, ""
        if final:
            raise self._error(f"{self.location} refuses: {final}; {_REMEDY}")

    def unreachable(self, last: BaseException) -> FcstreamError:
        """Make the error to be raised when patience has ended."""
        why = self._why or str(last) or "no answer"
        long = f"{self.location} did not answer for {self.patience_s:g} s"
        is_distrusted = "certificate verify failed" in why
        return self._error(
            f"{long}: {why}; {TRUST if is_distrusted else 'check that the brokers run and can be reached'}"
        )

    def expiry(self, more_s: float = 0.0) -> Callable[[], bool]:
        """Return a function that tells whether patience plus some seconds has ended since now; sooner if the stream is
        to stop.
        """
        start = time.monotonic()

        def expired() -> bool:
            if (why := self._why) and self.down_since is not None:
                note_failure(why)
            return time.monotonic() > start + (min(_LAST_S, self.patience_s) if is_over() else self.patience_s + more_s)

        return expired

    def retry(self, action: Callable[[], T]) -> T:
        """Call an action until it succeeds; it raises `BrokerLost` or the client's errors."""

        def act() -> T:
            try:
                return action()
            except self.kafka.KafkaException as error:
                raise self.classify(error.args[0]) from None
            except TimeoutError:
                raise BrokerLost from None
            finally:
                self.admin.poll(0)

        return self.repeat(act)

    def classify(self, error: KafkaError) -> Exception:
        """Return an error of the client as one to be waited out, or raise one that does not go away by waiting."""
        if error.name() in FINAL or error.fatal():
            return self._error(f"{self.location} refuses: {self.error_text(error)}; {_REMEDY}")
        return BrokerLost(self.error_text(error))

    def partitions_of_topics(self, client: Any) -> dict[str, list[int]]:
        """List each topic's partitions once the brokers respond; a producer's request may make a missing topic."""
        until = time.monotonic() + min(5.0, self.patience_s / 2)  # for a topic that was made just now
        waits = iter((0.5, 1.0, 2.0))  # short at first, because a refused login does not respond at all

        def ask() -> dict[str, list[int]]:
            found = self.partitions(client, next(waits, ASK_S))
            if not all(found.values()):
                if time.monotonic() > until:
                    raise self._error(f"{self.location} has no such topic: create it, or correct `{self._key}`")
                raise BrokerLost
            return found

        return self.retry(ask)

    def partitions(self, client: Any, seconds: float) -> dict[str, list[int]]:
        """List a topic's partitions; none for an unknown topic."""
        found = {}
        for topic in self.topics:
            data = client.list_topics(topic, timeout=min(seconds, self.patience_s)).topics[topic]
            if data.error is not None and "UNKNOWN_TOPIC" not in data.error.name():
                raise self.classify(data.error)
            found[topic] = sorted(data.partitions)
        if all(found.values()):
            self.is_up()
        return found

    def spans(self, partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
        """Find the first offset that each partition still has, and the one after its last committed message."""
        if not partitions:
            return {}
        seconds, level = min(ASK_S, self.patience_s), self.kafka.IsolationLevel.READ_COMMITTED
        asked = [self.kafka.TopicPartition(*partition) for partition in partitions]
        answers = [
            self.admin.list_offsets(dict.fromkeys(asked, kind()), isolation_level=level, request_timeout=seconds)
            for kind in (self._specs.earliest, self._specs.latest)
        ]
        lows, highs = (
            {(each.topic, each.partition): int(found.result(seconds + 1).offset) for each, found in answer.items()}
            for answer in answers
        )
        self.is_up()
        return {partition: (lows[partition], highs[partition]) for partition in partitions}


def _login(address: Address) -> dict[str, Any]:
    """Make the client's settings for how to connect."""
    user, password, ca = address.user, address.password, address.take(CA, "")
    security = address.take(_SECURITY_OF, "sasl_ssl" if user else "ssl" if ca else "plaintext").lower()
    sasl = address.take(_SASL_OF).upper()
    files = {"ca": ca, "certificate": address.take(CERT), "key": address.take(KEY, "")}
    for name, value, known in (("security", security, _SECURITY), ("sasl", sasl, _SASL)):
        if value not in known:
            raise ConfigError(f"must have one of {', '.join(known)} as `{name}`", address.key, got=value)
    settings: dict[str, Any] = {"security.protocol": security}
    if security.startswith("sasl") != (user is not None) or (user is None) != (password is None):
        wrong = "must have a user and a password with security 'sasl_...', and only then"
        raise ConfigError(wrong, address.key, got=Shown(address.masked))
    if any(files.values()) and not security.endswith("ssl"):
        raise ConfigError("must have security 'ssl' or 'sasl_ssl' with certificates", address.key, got=security)
    if user is not None:
        settings |= {"sasl.mechanism": sasl, "sasl.username": user, "sasl.password": password}
    return settings | {f"ssl.{name}.location": path for name, path in files.items() if path}
