"""What the commands of ``fcstream local`` do with a file: serve its devices, or ask, plan and simulate its query."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..accounting.filters import BudgetSchedule
from ..accounting.losses import PrivacyLoss
from ..connectors.registry import speaks
from ..errors import ConfigError
from ..noise.samplers import Noise, SeededEntropy
from ..runtime.undo import on_error
from .analyst.record import INNER, record_of
from .device.budget import LocalBudget
from .device.components import Component
from .device.device import LocalFilter
from .device.journal import FileJournal, Journal, MemoryJournal
from .device.values import DeviceValues
from .queries.base import Plan, Query
from .queries.elimination import Respondents
from .spaces import Euclidean, GreatCircle, Records, Space

if TYPE_CHECKING:
    from .settings import QuerySection, Settings
    from .transport.gateway import Gateway


def open_devices(settings: Settings) -> tuple[list[LocalFilter], Journal]:
    """The devices of ``[devices]``, with their journal."""
    if settings.budget is None or not settings.devices.values:
        raise ConfigError("and [budget] are required here", "devices.values")
    values = DeviceValues(settings.devices.values, settings.spaces)
    path = settings.devices.journal
    if not path:
        raise ConfigError("is required: without it a restart would forget what was spent", "devices.journal")
    journal = FileJournal(path, keep=settings.devices.keep)
    with on_error(journal.close):
        return [LocalFilter(settings.budget, values.of(name), journal, name=name) for name in values.known], journal


def serve(settings: Settings, report: Callable[[str], None]) -> None:
    """Answer for the devices until SIGTERM or SIGINT."""
    from ..runtime.garbage import without_garbage_collection
    from .transport.gateway import Gateway

    listen = settings.devices.listen
    is_mqtt = speaks(listen, "mqtt")
    if not is_mqtt and listen.partition("://")[0] != "http":
        raise ConfigError("must be mqtt://HOST/PREFIX, mqtts:// or http://HOST:PORT", "devices.listen")
    stop = threading.Event()
    with ExitStack() as stack:
        stack.enter_context(_until_signals(stop))
        held, journal = open_devices(settings)
        stack.enter_context(without_garbage_collection())
        stack.callback(journal.close)
        gateway = Gateway(held)
        if is_mqtt:
            _serve_mqtt(listen, settings.devices.gateway, gateway, stop, report)
        else:
            _serve_http(listen, settings.devices.hosts, gateway, stop, report)


@contextmanager
def _until_signals(stop: threading.Event) -> Iterator[None]:
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _serve_http(
    listen: str, hosts: Sequence[str], gateway: Gateway, stop: threading.Event, report: Callable[[str], None]
) -> None:
    from ..connectors.urls import parse
    from .transport.web import open_server, serve

    host, port = parse(listen, "devices.listen").host(8080)
    server = open_server(gateway, host, port, hosts)
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


def _addresses(path: str) -> Iterator[tuple[str, str]]:
    """Gateway and name of each device, from a file of JSON lines."""
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
    """Ask real devices the query, or the next one of its series, and report the answer.

    If the ledger has an answer that was never reported, because the process died, it is reported now and no device is
    asked.
    """
    from .transport.gateway import Remote, Transport
    from .transport.mqtt import MqttTransport
    from .transport.web import HttpTransport

    query, asking = settings.require_query()
    analyst = settings.analyst
    if not analyst.devices:
        raise ConfigError("is required here", "analyst.devices")
    is_mqtt = speaks(analyst.url, "mqtt")
    if analyst.url and not is_mqtt:
        raise ConfigError("must be mqtt:// or mqtts://, or left out if gateways are http:// addresses", "analyst.url")
    devices = list(_addresses(analyst.devices))
    transport: Transport = MqttTransport(analyst.url) if is_mqtt else HttpTransport()
    try:
        remote = Remote(transport, devices, batch=analyst.batch, timeout_s=analyst.timeout_s, tries=analyst.tries)
        _run(query, asking, remote, settings.ledger, report)
    finally:
        transport.close()


def _run(
    query: Query, asking: QuerySection, respondents: Respondents, ledger: str, report: Callable[[dict[str, Any]], None]
) -> None:
    if asking.queries > 1 and not ledger:
        raise ConfigError("is required for a series of queries", "ledger.url")
    capacity = PrivacyLoss.cap(asking.rho).rho_nano
    if not ledger:
        budgets = np.full(respondents.count, capacity, np.int64)
        answer = query.run(respondents, asking.name, budgets, asking.method, asking.elimination())
        report(_printed(record_of(asking.name, query, answer, asking.elimination())))
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
            series.run(query, asking.method, asking.elimination())
        for record in series.unpublished():
            report(_printed(record))
        series.acknowledge()


def _printed(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in INNER}


def plan(settings: Settings, devices: int) -> Plan:
    """How precise the query can be expected to be, from public numbers."""
    query, asking = settings.require_query()
    rho = asking.rho / asking.queries
    numbers = (rho,) if isinstance(query.space, Records) else (devices, rho)
    found: Plan = query.plan(*numbers, asking.method, asking.elimination())  # type: ignore[attr-defined]
    if isinstance(query.space, Euclidean):
        found.notes.append(_about_missing(query, query.space))
    held = settings.budget
    if held is not None and held.kind == "concentrated" and held.terms["rho"] < asking.rho:
        found.notes.append(
            f"devices hold rho {held.terms['rho']:g} and may be asked for {asking.rho:g}: a device without budget "
            "drops out; lower query.rho"
        )
    return found


def _about_missing(query: Query, space: Euclidean) -> str:
    """From which point devices without a value answer, and what that does to the answer."""
    from .queries.counting import RangeCount

    outside = "outside the sphere" if isinstance(space, GreatCircle) else "outside the public box"
    where = outside if space.missing is None else f"at {list(space.missing)}"
    note = f"devices without a value answer as if they were {where}"
    if isinstance(query, RangeCount) and query.box.evaluate(space.nowhere)[0] < 0:
        return f"warning: {note}, which is in the box that is counted: they count as inside; give another `missing`"
    if space.missing is not None:
        return (
            f"warning: {note}: the answer takes them for devices that are there; without `missing` they are {outside}"
        )
    return f"{note}: they are in no box within it, and that they have no value is not hidden"


def simulate(settings: Settings, devices: int, seed: int) -> dict[str, Any]:
    """Ask made-up devices the first query of the series; the true answer is reported too."""
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
        points = _synthetic_values(query.space, devices, uniform)
        crowd = Simulation({query.component: (query.space, points)}, capacity, Noise(SeededEntropy(seed + 1)))
        truth = query.exact(points)  # type: ignore[attr-defined]
    answer = query.run(crowd, asking.name, budgets, asking.method, asking.elimination())
    found = _printed(record_of(asking.name, query, answer, asking.elimination()))
    return found | {"truth": truth.tolist() if isinstance(truth, np.ndarray) else truth, "private": False}


def _uniform(seed: int) -> Callable[[int, int], NDArray[np.float64]]:
    entropy = SeededEntropy(seed)
    return lambda n, k: (entropy.words(n * k) >> np.uint64(11)).astype(np.float64).reshape(n, k) * 2.0**-53


def _synthetic_values(
    space: Space, devices: int, uniform: Callable[[int, int], NDArray[np.float64]]
) -> NDArray[np.int64]:
    """Devices that gather around the middle of the public box (for great circles: spread over the sphere)."""
    if isinstance(space, GreatCircle):
        raw = uniform(devices, 2)
        return space.encode_all(np.stack([360 * raw[:, 0] - 180, np.degrees(np.arcsin(2 * raw[:, 1] - 1))], axis=1))
    assert isinstance(space, Euclidean)
    d = space.dimension
    heap = uniform(devices, 3 * d).reshape(devices, 3, d).mean(axis=1)
    low, high = np.array(space.low), np.array(space.high)
    return space.encode_all(low + (high - low) * heap)
