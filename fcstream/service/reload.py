"""Reload of a configuration while a service runs (SIGHUP): what may change, and how.

A configuration that differs in anything else is refused as a whole, and the service continues with the one it has.

========================  ==============================================================================================
`[service]`               everything: at once
`[sink]`, `[dead_letter]`  everything
`source.url`              how to connect: hosts, login, options; not what is read (path, stream, subject, group, ...)
`source.spool_bytes`      any size
`window.end`              later, or never; not with savings, which are divided among the windows left
========================  ==============================================================================================

`window.lateness` and `window.ahead` are not in the specification that a ledger is bound to, and a restart may change
them. A reload may not: they decide which records count, so those who read the releases should know, and processes that
share a stream must agree on them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from ..accounting.losses import PrivacyLoss
from ..config import Config, ServiceSection
from ..connectors.urls import parse
from ..engine.engine import Engine
from ..engine.keyed import KeyedEngine
from ..errors import BudgetExhausted, ConfigError, FcstreamError, LedgerDamaged, SinkError, SourceError
from ..ledgers.terms_check import check_caps, check_keys_named, check_terms
from ..planning.plan import quick_warnings
from ..runtime.waiting import without_retry
from .metrics import StreamStatus

T = TypeVar("T")
LOG = logging.getLogger("fcstream.service")
_SAFE = ("service", "sink", "dead_letter", "source.spool_bytes")
_WHAT_IS_READ = ("stream", "subject", "group", "field", "bucket", "client_id", "delivery_id", "arrival", "queue")
"""Options of a source's URL that determine what is read, and as which consumer."""
_SECURED = {"rediss": "redis", "mqtts": "mqtt", "amqps": "amqp", "rabbitmq-stream+tls": "rabbitmq-stream"}


def needs_restart(old: Config, new: Config) -> list[str]:
    """List the keys in which two configurations differ and which a running service cannot change."""
    keys = [key for key in _differences(_plain(old), _plain(new)) if not key.startswith(_SAFE)]
    return [key for key in keys if not _may_change(key, old, new)]


def _may_change(key: str, old: Config, new: Config) -> bool:
    if key == "window.end":
        ends = [each.job.schedule.end_ms for each in (old, new)]
        is_later = ends[1] is None or (ends[0] is not None and ends[1] > ends[0])
        return is_later and new.budget.savings == "none"
    if key == "source.url" and old.source is not None and new.source is not None:
        return what_is_read(old.source.url) == what_is_read(new.source.url)
    return False


def what_a_restart_does(old: Config, new: Config, keys: list[str], engines: Iterable[Engine]) -> str:
    """Say what becomes of changes that a running service cannot take: whether a restart would take them.

    Only what is known of the ledger here decides: its terms, its keys and what is spent.
    """
    listed = ", ".join(keys)
    if new.ledger != old.ledger or new.stream.name != old.stream.name:
        whose = "a new ledger" if new.ledger != old.ledger else "a new stream of the ledger"
        return f"needs a restart to change: {listed}; that makes {whose}, with a whole budget of its own"
    wanted, running = new.job.terms, list(engines)
    try:
        quick_warnings(new)
        check_terms("the ledger", old.job.terms, wanted)
        check_keys_named("the ledger", [each.job.terms.stream for each in running if each.job.key], wanted)
        for each in running:
            total = PrivacyLoss() if each.job.terms.total is None else each.spent_total
            check_caps("the ledger", replace(wanted, stream=each.job.terms.stream), each.spent, total)
    except FcstreamError as error:
        return f"cannot be changed here, and a restart with it would be refused too: {listed}: {error}"
    return f"needs a restart to change: {listed}"


def what_is_read(url: str) -> tuple[Any, ...]:
    """Return what a source's URL says besides how to connect: scheme, path, and the options that name what is read."""
    address = parse(url, "source.url")
    options = {name: value for name, value in address.options.items() if name in _WHAT_IS_READ}
    return _SECURED.get(address.scheme, address.scheme), address.path, options


def _plain(config: Config) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.to_builtins(config)
    return values


def _differences(old: Any, new: Any, prefix: str = "") -> list[str]:
    """List dotted keys; a section that is absent in one of the configurations counts as a whole."""
    if old == new:
        return []
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        names = list(dict.fromkeys([*old, *new]))
        return [
            key
            for name in names
            for key in _differences(old.get(name), new.get(name), f"{prefix}.{name}" if prefix else name)
        ]
    return [prefix]


class ActiveConfig:
    """The configuration in use, and the former one until a session has worked with the new one.

    Attributes
    ----------
    config : Config
    on_undone : callable
        Called when the former configuration is in use again.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self._engine: Engine | KeyedEngine | None = None
        self.on_undone: Callable[[], object] = lambda: None
        self._former: Config | None = None
        self._opened: Config | None = None

    def take(self, config: Config) -> None:
        """Use another configuration from the next session on."""
        self._former = self._former or self.config
        self.config = config
        self._opened = None

    def engine(self, open_engine: Callable[[Config], Engine | KeyedEngine]) -> Engine | KeyedEngine:
        """Open the engine of a session."""
        config = self._opened = self._opened or self.config
        engine = self._guard(lambda: open_engine(config), "ledger", "dead_letter")
        self._engine = engine
        return engine

    @property
    def engines(self) -> dict[str, Engine]:
        """Engines of the present session, by stream."""
        return {} if self._engine is None else {part.job.terms.stream: part for part in self._engine.parts}

    def open(self, opener: Callable[[Config], T], section: str) -> T:
        """Open what a section names, by the same configuration as the rest of the session."""
        config = self._opened = self._opened or self.config
        return self._guard(lambda: opener(config), section)

    def confirm(self) -> None:
        """Note that a session with this configuration has completed a step."""
        if self._opened is self.config:
            self._former = None

    def undo(self, error: FcstreamError) -> bool:
        """Return to the former configuration after an error that would end the service, if there is one to return to.

        It is no help against a budget that is used up, or a ledger that is damaged.
        """
        if self._former is None or isinstance(error, (BudgetExhausted, LedgerDamaged)):
            return False
        LOG.warning("%s: %s", self._revert(), error)
        return True

    def _revert(self) -> str:
        assert self._former is not None
        self.config, self._former, self._opened = self._former, None, None
        self.on_undone()
        return "the new configuration cannot be used, the former one stays in use"

    def _guard(self, opener: Callable[[], T], *sections: str) -> T:
        """Return to the former configuration if something in a changed section cannot be opened.

        What has not changed may be unreachable for other reasons.
        """
        if self._former is None:
            return opener()
        is_new = any(getattr(self._former, name) != getattr(self.config, name) for name in sections)
        try:
            with without_retry() if is_new else nullcontext():
                return opener()
        except (ConfigError, SinkError, SourceError) as error:
            if not (is_new or isinstance(error, ConfigError)):
                raise
            raise _ConfigReverted(f"{self._revert()}: {error}") from None


class _ConfigReverted(FcstreamError):
    """The next session uses the former configuration again."""


class Reloader:
    """Reads a configuration again, and has the service continue with it.

    Parameters
    ----------
    load : callable
        Reads the configuration.
    current : ActiveConfig
    watched : StreamStatus
    apply : callable
        Puts a new ``[service]`` section into effect; raises ConfigError if that cannot be.
    """

    def __init__(
        self,
        load: Callable[[], Config],
        current: ActiveConfig,
        watched: StreamStatus,
        apply: Callable[[ServiceSection], object],
    ) -> None:
        self._load, self._current, self._watched, self._apply = load, current, watched, apply
        current.on_undone = self._undone

    def _undone(self) -> None:
        self._watched.reloads["undone"] += 1

    def __call__(self) -> None:
        """Read the configuration and apply it; never raises what a file can cause."""
        service, old = self._watched.service, self._current.config
        try:
            new = self._load()
            keys = needs_restart(old, new)
            if keys:
                raise ConfigError(what_a_restart_does(old, new, keys, self._current.engines.values()))
            if new.sink is None:
                raise ConfigError("is required for a live stream", "sink.url")
            self._apply(new.service or ServiceSection())
        except FcstreamError as error:
            self._watched.reloads["refused"] += 1
            LOG.warning("the configuration was read again and is refused: %s", error)
            return
        self._watched.reloads["taken"] += 1
        self._watched.section = new.service or ServiceSection()
        if _opens_alike(old, new):
            LOG.info("the configuration was read again")
        else:
            LOG.info("the configuration was read again: a new session begins")
            self._current.take(new)
            service.renew()


def _opens_alike(old: Config, new: Config) -> bool:
    """Return whether nothing changed with which a session is opened; a file that a URL names may have changed."""
    before, after = (msgspec.structs.replace(config, service=None) for config in (old, new))
    sections = (new.source, new.sink, new.ledger, new.dead_letter)
    return before == after and not any(section is not None and "${file:" in section.url for section in sections)
