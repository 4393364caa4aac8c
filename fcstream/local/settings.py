"""One TOML file for devices and analyst: what `fcstream local` reads, and what it does with it."""

from __future__ import annotations

import difflib
import json
import logging
import os
import signal
import threading
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ..accounting.filters import BudgetSchedule
from ..accounting.losses import PrivacyLoss
from ..errors import ConfigError, SourceError
from ..noise.samplers import Noise, SeededEntropy
from .analyst.record import INNER, record_of
from .device.device import Component, LocalBudget, LocalFilter
from .device.journal import KEEP, FileJournal, Journal, MemoryJournal
from .spaces import Discrete, Euclidean, GreatCircle, Hamming, Records, Space

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .queries.base import Plan, Query
    from .queries.elimination import Respondents, Rounds
    from .transport.gateway import Gateway

LOG = logging.getLogger("fcstream.local")
T = TypeVar("T")


class Table:
    """A table of a TOML file whose keys are taken one by one; what nobody took is an error."""

    def __init__(self, values: Any, path: str) -> None:
        if not isinstance(values, dict):
            raise ConfigError("must be a table", path)
        self._values, self._path, self._known = dict(values), path, set[str]()

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def take(self, key: str, kind: type[T] | tuple[type[T], ...], default: T | None = None) -> T:
        """A value of one type; required without a default."""
        self._known.add(key)
        value = self._values.pop(key, default)
        if kind is float and type(value) is int:
            value = float(value)
        if value is None:
            raise ConfigError("is required", f"{self._path}.{key}")
        if not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool):
            raise ConfigError(f"must not be of type {type(value).__name__}", f"{self._path}.{key}")
        return value

    def numbers(self, key: str) -> tuple[float, ...]:
        values = self.take(key, list)
        if not values or any(isinstance(x, bool) or not isinstance(x, (int, float)) for x in values):
            raise ConfigError("must be a list of numbers", f"{self._path}.{key}")
        return tuple(float(x) for x in values)

    def tables(self, key: str) -> dict[str, Table]:
        found = self.take(key, dict, {})
        return {name: Table(value, f"{self._path}.{key}.{name}".strip(".")) for name, value in found.items()}

    def table(self, key: str) -> Table | None:
        return Table(self.take(key, dict), f"{self._path}.{key}".strip(".")) if key in self else None

    def finish(self) -> None:
        for key in self._values:
            near = difflib.get_close_matches(key, self._known, 1)
            hint = f", did you mean `{near[0]}`?" if near else ""
            raise ConfigError(f"is not a known key{hint}", f"{self._path}.{key}".strip("."))


def _space(table: Table) -> Space:
    kind = table.take("kind", str)
    if kind == "euclidean":
        found: Space = Euclidean(
            table.numbers("low"),
            table.numbers("high"),
            table.take("step", float),
            table.take("unit", float, 1.0),
            table.numbers("missing") if "missing" in table else None,
        )
    elif kind == "great_circle":
        missing = table.numbers("missing") if "missing" in table else None
        found = GreatCircle(
            step=table.take("step", float, 1.0), unit=table.take("unit", float, 1000.0), missing=missing
        )
    elif kind == "hamming":
        found = Hamming(table.take("bits", int))
    elif kind == "discrete":
        found = Discrete(table.take("categories", int))
    elif kind == "records":
        found = Records(table.take("low", float), table.take("high", float), table.take("step", float, 1.0))
    else:
        raise ConfigError("must be euclidean, great_circle, hamming, discrete or records", f"{table._path}.kind")
    table.finish()
    return found


def _budget(table: Table) -> LocalBudget:
    kind = table.take("kind", str, "concentrated")
    if kind == "geo":
        found = LocalBudget.geo(table.take("epsilon", float))
    elif kind == "concentrated":
        found = LocalBudget.concentrated(table.take("rho", float))
    elif kind == "approximate":
        terms = (table.take(name, float) for name in ("epsilon", "delta", "distance"))
        found = LocalBudget.approximate(*terms)
    else:
        raise ConfigError(f"must be geo, concentrated or approximate, got {kind!r}", f"{table._path}.kind")
    table.finish()
    return found


@dataclass(frozen=True)
class QuerySettings:
    """How a query is asked: the rest of ``[query]``."""

    name: str
    method: str
    rounds: Rounds
    rho: float
    queries: int
    savings: str


@dataclass(frozen=True)
class Settings:
    """A file of `fcstream local`: every section is checked, also those that a command does not need."""

    spaces: Mapping[str, Space]
    budget: LocalBudget | None
    devices: Mapping[str, Any]
    query: Query | None
    asking: QuerySettings | None
    analyst: Mapping[str, Any]
    ledger: str

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Settings:
        """Read and check a file.

        Raises
        ------
        ConfigError
        """
        try:
            with open(path, "rb") as file:
                return cls.of(tomllib.load(file))
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} is not TOML: {error}") from None

    @classmethod
    def of(cls, mapping: Mapping[str, Any]) -> Settings:
        top = Table(mapping, "")
        spaces = {name: _space(table) for name, table in top.tables("components").items()}
        if not spaces:
            raise ConfigError("must declare at least one component", "components")
        names = ("budget", "devices", "query", "analyst", "ledger")
        budget, devices, query, analyst, ledger = (top.table(name) for name in names)
        top.finish()
        asked, asking = (None, None) if query is None else _query(query, spaces)
        here = {"values": "", "journal": "", "keep": KEEP, "gateway": "here", "listen": ""}
        there = {"url": "", "devices": "", "batch": 500, "timeout_s": 10.0, "tries": 3}
        return cls(
            spaces,
            None if budget is None else _budget(budget),
            {} if devices is None else _plain(devices, here),
            asked,
            asking,
            {} if analyst is None else _plain(analyst, there),
            "" if ledger is None else _plain(ledger, {"url": ""})["url"],
        )

    def require_query(self) -> tuple[Query, QuerySettings]:
        if self.query is None or self.asking is None:
            raise ConfigError("is required here", "query")
        return self.query, self.asking


def _plain(table: Table, defaults: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: table.take(key, type(default), default) for key, default in defaults.items()}
    table.finish()
    return found


def _query(table: Table, spaces: Mapping[str, Space]) -> tuple[Query, QuerySettings]:
    from .queries.counting import RangeCount
    from .queries.density import KernelDensity
    from .queries.elimination import Rounds
    from .queries.neighbors import Nearest
    from .queries.threshold import ShareBelow

    kind, component = table.take("kind", str), table.take("component", str)
    space = spaces.get(component.partition("@")[0])
    if space is None:
        raise ConfigError(f"must be one of {sorted(spaces)}, also with @ and a time", "query.component")
    found: Query
    if kind == "share":
        found = ShareBelow(component, space, table.take("at", float), table.take("share", str))
    elif not isinstance(space, Euclidean):
        raise ConfigError("must be euclidean or great_circle for this kind of query", "query.component")
    elif kind == "count":
        threshold = table.take("threshold", str, "balanced")
        found = RangeCount.around(
            component, space, table.numbers("center"), table.numbers("sides"), threshold=threshold
        )
    elif kind == "density":
        kernel = table.take("kernel", str, "auto")
        found = KernelDensity.at(component, space, table.numbers("at"), table.take("bandwidth", float), kernel)
    elif kind == "nearest":
        found = Nearest.at(component, space, table.numbers("at"), table.take("k", int))
    else:
        raise ConfigError(f"must be count, density, nearest or share, got {kind!r}", "query.kind")
    rounds = Rounds(
        table.take("rounds", int, 10), table.take("split", str, "doubling"), table.take("beta", float, 0.05)
    )
    asking = QuerySettings(
        table.take("name", str),
        table.take("method", str, "PM1"),
        rounds,
        table.take("rho", float),
        table.take("queries", int, 1),
        table.take("savings", str, "paper"),
    )
    found.triple(asking.method)
    table.finish()
    return found, asking


# -- devices ---------------------------------------------------------------------------------------------------------


class DeviceValues:
    """What devices know, from a file of JSON lines ``{"device": NAME, COMPONENT: VALUE, ...}``.

    Read again when it has changed and something is asked for that was not there: new values come as new components,
    named like ``place@10:00``. What is missing is answered like a public value, so that its absence does not show.
    """

    def __init__(self, path: str, spaces: Mapping[str, Space]) -> None:
        self._path, self._spaces, self._changed = path, spaces, 0
        self.known: dict[str, dict[str, Any]] = {}
        self._read()

    def _read(self) -> None:
        try:
            changed = os.stat(self._path).st_mtime_ns
            if changed == self._changed:
                return
            self._changed = changed
            with open(self._path, "rb") as file:
                for number, line in enumerate(file, 1):
                    self._take(number, line)
        except OSError as error:
            raise SourceError(f"{self._path} cannot be read: {error.strerror}") from None

    def _take(self, number: int, line: bytes) -> None:
        try:
            found = json.loads(line)
            name = found.pop("device")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            found = name = None
        if not isinstance(name, str):
            raise SourceError(f"{self._path}: line {number} must be an object with a `device`")
        self.known.setdefault(name, {}).update(found)

    def of(self, device: str) -> Callable[[str], Component | None]:
        def introduce(component: str) -> Component | None:
            space = self._spaces.get(component.partition("@")[0])
            if space is None:
                return None
            if component not in self.known.get(device, {}):
                try:
                    self._read()
                except SourceError as error:  # half written, perhaps: a value that is missing must not show
                    LOG.warning("%s", error)
            return Component(space, self.known.get(device, {}).get(component))

        return introduce


def open_devices(settings: Settings) -> tuple[list[LocalFilter], Journal]:
    """The devices of ``[devices]``, with their journal."""
    if settings.budget is None or not settings.devices.get("values"):
        raise ConfigError("and [budget] are required here", "devices.values")
    values = DeviceValues(settings.devices["values"], settings.spaces)
    path = settings.devices["journal"]
    if not path:
        raise ConfigError("is required: without it a restart would forget what was spent", "devices.journal")
    journal = FileJournal(path, keep=settings.devices["keep"])
    try:
        found = [LocalFilter(settings.budget, values.of(name), journal, name=name) for name in values.known]
    except BaseException:
        journal.close()
        raise
    return found, journal


def serve(settings: Settings, report: Callable[[str], None]) -> None:
    """Answer for the devices until SIGTERM or SIGINT."""
    from ..runtime.garbage import without_garbage_collection
    from .transport.gateway import Gateway

    listen = settings.devices.get("listen", "")
    scheme = listen.partition("://")[0]
    if scheme not in ("mqtt", "mqtts", "http"):
        raise ConfigError("must be mqtt://HOST/PREFIX, mqtts:// or http://HOST:PORT", "devices.listen")
    stop = threading.Event()
    with ExitStack() as stack:
        stack.enter_context(_until_signals(stop))
        held, journal = open_devices(settings)
        stack.enter_context(without_garbage_collection())
        stack.callback(journal.close)
        gateway = Gateway(held)
        if scheme == "http":
            _serve_http(listen, gateway, stop, report)
        else:
            _serve_mqtt(listen, settings.devices["gateway"], gateway, stop, report)


@contextmanager
def _until_signals(stop: threading.Event) -> Iterator[None]:
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _serve_http(listen: str, gateway: Gateway, stop: threading.Event, report: Callable[[str], None]) -> None:
    from ..connectors.urls import parse
    from .transport.web import open_server, serve

    host, port = parse(listen, "devices.listen").host(8080)
    server = open_server(gateway, host, port)
    report(f"{len(gateway.names)} devices answer at http://{host}:{port}")
    serve(gateway, server, stop)


def _serve_mqtt(listen: str, name: str, gateway: Gateway, stop: threading.Event, report: Callable[[str], None]) -> None:
    from .transport.mqtt import MqttGateway

    served = MqttGateway(listen, name, gateway)
    try:
        report(f"{len(gateway.names)} devices answer as gateway {name!r}")
        served.wait(stop)
    finally:
        served.close()


# -- analyst ---------------------------------------------------------------------------------------------------------


def _lines(path: str) -> Iterator[tuple[str, str]]:
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    found = json.loads(line)
                    yield str(found["gateway"]), str(found["device"])
                except (ValueError, KeyError, TypeError):
                    raise ConfigError(f"line {number} must have a `gateway` and a `device`", path) from None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", path) from None


def ask(settings: Settings, report: Callable[[dict[str, Any]], None]) -> None:
    """Ask real devices the query, or the next one of its series, and tell the answer.

    If the ledger has an answer that was never printed, because the process died, it is printed now and no device is
    asked.
    """
    from .transport.gateway import Remote, Transport
    from .transport.mqtt import MqttTransport
    from .transport.web import HttpTransport

    query, asking = settings.require_query()
    analyst = settings.analyst
    if not analyst.get("devices"):
        raise ConfigError("is required here", "analyst.devices")
    is_mqtt = analyst["url"].startswith(("mqtt://", "mqtts://"))
    if analyst["url"] and not is_mqtt:
        raise ConfigError("must be mqtt:// or mqtts://, or left out if gateways are http:// addresses", "analyst.url")
    devices = list(_lines(analyst["devices"]))
    transport: Transport = MqttTransport(analyst["url"]) if is_mqtt else HttpTransport()
    try:
        remote = Remote(
            transport, devices, batch=analyst["batch"], timeout_s=analyst["timeout_s"], tries=analyst["tries"]
        )
        _run(query, asking, remote, settings.ledger, report)
    finally:
        transport.close()


def _run(
    query: Query, asking: QuerySettings, respondents: Respondents, ledger: str, report: Callable[[dict[str, Any]], None]
) -> None:
    if asking.queries > 1 and not ledger:
        raise ConfigError("is required for a series of queries", "ledger.url")
    capacity = PrivacyLoss.cap(asking.rho).rho_nano
    if not ledger:
        budgets = np.full(respondents.count, capacity, np.int64)
        answer = query.run(respondents, asking.name, budgets, asking.method, asking.rounds)
        report(_outer(record_of(asking.name, query, answer, asking.rounds)))
        return
    from .analyst.series import Series

    schedule = BudgetSchedule(capacity, asking.queries, asking.savings)
    with Series(respondents, schedule, asking.name, ledger) as series:
        if not series.unpublished():
            if series.step > asking.queries:
                raise ConfigError(
                    f"must be more: series {asking.name!r} has had its {asking.queries} queries; a new one has a new "
                    "name",
                    "query.queries",
                )
            series.run(query, asking.method, asking.rounds)
        for record in series.unpublished():
            report(_outer(record))
        series.acknowledge()


def _outer(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in INNER}


def plan(settings: Settings, devices: int) -> Plan:
    """What the query can be expected to give, from public numbers."""
    query, asking = settings.require_query()
    rho = asking.rho / asking.queries
    numbers = (rho,) if isinstance(query.space, Records) else (devices, rho)
    found: Plan = query.plan(*numbers, asking.method, asking.rounds)  # type: ignore[attr-defined]
    if isinstance(query.space, Euclidean):
        found.notes.append(_about_missing(query, query.space))
    held = settings.budget
    if held is not None and held.kind == "concentrated" and held.terms["rho"] < asking.rho:
        found.notes.append(
            f"devices hold rho {held.terms['rho']:g} and may be asked for {asking.rho:g}: who has no more drops out; "
            "lower query.rho"
        )
    return found


def _about_missing(query: Query, space: Euclidean) -> str:
    """From where devices without a value answer, and what that does to the answer."""
    from .queries.counting import RangeCount

    outside = "outside the sphere" if isinstance(space, GreatCircle) else "outside the public box"
    where = outside if space.missing is None else f"at {list(space.missing)}"
    statement = f"devices without a value answer as if they were {where}"
    if isinstance(query, RangeCount) and query.box.evaluate(space.nowhere)[0] < 0:
        return (
            f"warning: {statement}, which is in the box that is counted: they count as inside; give another `missing`"
        )
    if space.missing is not None:
        return (
            f"warning: {statement}: the answer takes them for devices that are there; without `missing` they are "
            f"{outside}"
        )
    return f"{statement}: they are in no box within it, and that they have no value is not hidden"


def simulate(settings: Settings, devices: int, seed: int) -> dict[str, Any]:
    """Ask made-up devices the first query of the series, and tell the truth beside the answer."""
    from .simulation import Fleet, Simulation

    query, asking = settings.require_query()
    uniform = _uniform(seed)
    capacity = PrivacyLoss.cap(asking.rho / asking.queries)
    budgets = np.full(1 if isinstance(query.space, Records) else devices, capacity.rho_nano, np.int64)
    crowd: Respondents
    if isinstance(query.space, Records):
        width = query.space.high - query.space.low
        table = query.space.low + width * uniform(devices, 3).mean(axis=1)
        holder = LocalFilter(
            LocalBudget.concentrated(asking.rho),
            {query.component: Component(query.space, table)},
            MemoryJournal(),
            noise=Noise(SeededEntropy(seed + 1)),
        )
        crowd, truth = Fleet([holder]), query.exact(table)  # type: ignore[attr-defined]
    else:
        points = _made_up(query.space, devices, uniform)
        crowd = Simulation({query.component: (query.space, points)}, capacity, Noise(SeededEntropy(seed + 1)))
        truth = query.exact(points)  # type: ignore[attr-defined]
    answer = query.run(crowd, asking.name, budgets, asking.method, asking.rounds)
    found = _outer(record_of(asking.name, query, answer, asking.rounds))
    return found | {"truth": truth.tolist() if isinstance(truth, np.ndarray) else truth, "private": False}


def _uniform(seed: int) -> Callable[[int, int], NDArray[np.float64]]:
    entropy = SeededEntropy(seed)
    return lambda n, k: (entropy.words(n * k) >> np.uint64(11)).astype(np.float64).reshape(n, k) * 2.0**-53


def _made_up(space: Space, devices: int, uniform: Callable[[int, int], NDArray[np.float64]]) -> NDArray[np.int64]:
    """Devices heaped around the middle of the public box (for great circles: all over the sphere)."""
    if isinstance(space, GreatCircle):
        raw = uniform(devices, 2)
        return space.encode_all(np.stack([360 * raw[:, 0] - 180, np.degrees(np.arcsin(2 * raw[:, 1] - 1))], axis=1))
    assert isinstance(space, Euclidean)
    d = space.dimension
    heap = uniform(devices, 3 * d).reshape(devices, 3, d).mean(axis=1)
    low, high = np.array(space.low), np.array(space.high)
    return space.encode_all(low + (high - low) * heap)
