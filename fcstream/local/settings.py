"""What may be written in the TOML file of ``fcstream local``, for devices and analyst: one structure a section."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from ..config.conversion import check_keys, converted, read_toml
from ..config.sections import UrlSection
from ..errors import ConfigError, Shown
from .device.budget import LocalBudget
from .device.journal import KEEP
from .queries.base import Query
from .queries.counting import RangeCount
from .queries.density import KernelDensity
from .queries.elimination import Rounds
from .queries.neighbors import Nearest
from .queries.threshold import ShareBelow
from .spaces import Discrete, Euclidean, GreatCircle, Hamming, Records, Space


class EuclideanSection(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[components.NAME]`` of kind ``euclidean``: a public box with a lattice."""

    low: tuple[float, ...]
    """Public box: its lower corner."""
    high: tuple[float, ...]
    """Its upper corner."""
    step: float
    """Width of the grid that values are rounded to, in the units of the values."""
    unit: float = 1.0
    """Which distance is 1 for the budget."""
    missing: tuple[float, ...] | None = None
    """Where devices without a value answer from: a public place. Left out: one width of the box below its lower
    corner."""


class GreatCircleSection(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[components.NAME]`` of kind ``great_circle``: longitude and latitude, with step and unit in meters."""

    step: float = 1.0
    """Width of the grid, in meters."""
    unit: float = 1000.0
    """Which distance is 1 for the budget, in meters."""
    missing: tuple[float, ...] | None = None
    """Where devices without a value answer from: a public place. Left out: far outside of the sphere."""


class HammingSection(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[components.NAME]`` of kind ``hamming``: strings of bits."""

    bits: int
    """Number of bits; the distance is how many differ."""


class DiscreteSection(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[components.NAME]`` of kind ``discrete``: categories."""

    categories: int
    """Number of categories."""


class RecordsSection(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[components.NAME]`` of kind ``records``: a table of numbers in a public range."""

    low: float
    """Lower end of the public range of a number."""
    high: float
    """Its upper end."""
    step: float = 1.0
    """Width of the grid that numbers are rounded to."""


class GeoSection(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[budget]`` of kind ``geo``: pure geo-privacy."""

    epsilon: float
    """What each device can lose for ever, for each unit of distance."""


class ConcentratedSection(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[budget]`` of kind ``concentrated``, the default: concentrated geo-privacy."""

    rho: float
    """What each device can lose for ever, for each squared unit of distance."""


class ApproximateSection(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[budget]`` of kind ``approximate``: concentrated geo-privacy with the largest rho that implies these three."""

    epsilon: float
    """What each device can lose for ever, between values that are `distance` apart."""
    delta: float
    """The probability with which that may fail."""
    distance: float
    """In the units of the budget."""


class QuerySection(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[query]``: the keys that all kinds of queries share."""

    name: str
    """Name of the series; with the number of a query it is the id that devices keep."""
    component: str
    """What is asked for: a component's name, also with ``@`` and a time."""
    rho: float
    """What all queries of the series together may take from each device."""
    method: str = "PM1"
    """Ask everybody once (``BM0``, ``BM1``) or in rounds (``PM0``, ``PM1``); 0 for noisy points, 1 for noisy
    distances."""
    rounds: int = 10
    """Number of rounds of ``PM0`` and ``PM1``."""
    split: str = "doubling"
    """How the budget is divided among rounds: ``even``, ``doubling`` or ``steep``."""
    beta: float = 0.05
    """Probability that any device is left alone wrongly."""
    queries: int = 1
    """Number of queries in the series; each begins with what earlier ones saved."""
    savings: str = "paper"
    """Which part of what earlier queries saved a query is offered: three quarters and more (``paper``), as much as
    each that is left (``even``), or ``none``."""

    def elimination(self) -> Rounds:
        """The rounds in which devices are asked, checked."""
        return Rounds(self.rounds, self.split, self.beta)

    def query(self, space: Space) -> Query:
        """The query about a component in this space."""
        raise NotImplementedError


class ShareQuery(QuerySection, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Kind ``share``: whether less than a share of the records is at most `at`."""

    at: float
    """The number that is compared with."""
    share: str
    """The share, such as ``1/2``."""

    def query(self, space: Space) -> Query:
        return ShareBelow(self.component, space, self.at, self.share)


class CountQuery(QuerySection, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Kind ``count``: how many devices are in a box."""

    center: tuple[float, ...]
    """Center of the box."""
    sides: tuple[float, ...]
    """Lengths of its sides."""
    threshold: str = "balanced"
    """Below which noisy distance a device counts as inside, with ``BM1`` and ``PM1``: ``balanced`` (as many wrongly
    inside as outside), ``paper`` (as printed) or ``none``."""

    def query(self, space: Space) -> Query:
        return RangeCount.around(self.component, _euclidean(space), self.center, self.sides, threshold=self.threshold)


class DensityQuery(QuerySection, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Kind ``density``: how dense the devices are at a point."""

    at: tuple[float, ...]
    """Point at which density is asked for."""
    bandwidth: float
    """Width of the kernel, in the units of the values."""
    kernel: str = "auto"
    """How density is computed with ``BM0`` and ``PM0``: of the noisy values as printed (``plain``), by a narrower
    kernel whose mean over the noise is right (``unbiased``), or by predicted error (``auto``)."""

    def query(self, space: Space) -> Query:
        return KernelDensity.at(self.component, _euclidean(space), self.at, self.bandwidth, self.kernel)


class NearestQuery(QuerySection, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Kind ``nearest``: the k devices nearest to a point."""

    at: tuple[float, ...]
    """Point whose neighbors are asked for."""
    k: int
    """How many of them."""

    def query(self, space: Space) -> Query:
        return Nearest.at(self.component, _euclidean(space), self.at, self.k)


def _euclidean(space: Space) -> Euclidean:
    if not isinstance(space, Euclidean):
        raise ConfigError("must be euclidean or great_circle for this kind of query", "query.component")
    return space


class DevicesSection(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[devices]``: what `fcstream local device` serves, and where."""

    values: str = ""
    """File of JSON lines with the values of devices: ``{"device": "scooter-1", "place": [512.0, 9810.0]}``."""
    journal: str = ""
    """File in which all these devices keep what they spent and answered. An older copy is refused, so keep it where
    it is."""
    keep: int = KEEP
    """Answers of so many queries can be given again; older ones are dropped."""
    gateway: str = "here"
    """Name under which these devices are asked."""
    listen: str = ""
    """Where questions come in: ``mqtt://HOST/PREFIX`` (the extra ``mqtt``) or ``http://HOST:PORT`` (``local``)."""
    hosts: list[str] = []
    """Names, besides addresses, this machine's own and that of ``listen``, by which it may be asked over HTTP."""


class AnalystSection(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[analyst]``: which devices `fcstream local query` asks, and how long it waits for them."""

    url: str = ""
    """The broker: ``mqtt://HOST/PREFIX``. Left out: gateways are ``http://`` addresses."""
    devices: str = ""
    """File of JSON lines that says whom to ask: ``{"gateway": "north", "device": "scooter-1"}``."""
    batch: int = 500
    """Devices in one message."""
    timeout_s: float = 10.0
    """Seconds to wait for an answer."""
    tries: int = 3
    """How often a batch is asked before its devices count as missing."""


class DeviceSections(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All sections of a file; those that have kinds are read by their kind."""

    components: dict[str, Any]
    budget: Any = None
    devices: DevicesSection = DevicesSection()
    query: Any = None
    analyst: AnalystSection = AnalystSection()
    ledger: UrlSection | None = None


Kinds = Mapping[str, tuple[type[Struct], Callable[..., Any]]]
SPACES: Kinds = {
    "euclidean": (EuclideanSection, Euclidean),
    "great_circle": (GreatCircleSection, GreatCircle),
    "hamming": (HammingSection, Hamming),
    "discrete": (DiscreteSection, Discrete),
    "records": (RecordsSection, Records),
}
BUDGETS: Kinds = {
    "concentrated": (ConcentratedSection, LocalBudget.concentrated),
    "geo": (GeoSection, LocalBudget.geo),
    "approximate": (ApproximateSection, LocalBudget.approximate),
}
QUERIES = {"count": CountQuery, "density": DensityQuery, "nearest": NearestQuery, "share": ShareQuery}


@dataclass(frozen=True)
class Settings:
    """A file of `fcstream local`. Every section is checked, also those that a command does not need."""

    spaces: Mapping[str, Space]
    budget: LocalBudget | None
    devices: DevicesSection
    query: Query | None
    asking: QuerySection | None
    analyst: AnalystSection
    ledger: str

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Settings:
        """Read and check a file.

        Raises
        ------
        ConfigError
        """
        return cls.of(read_toml(os.fspath(path)))

    @classmethod
    def of(cls, mapping: Mapping[str, Any]) -> Settings:
        """Check nested dictionaries of the same shape as the file."""
        check_keys(DeviceSections, mapping, "")
        top = converted(mapping, DeviceSections)
        spaces = {name: _made(SPACES, values, f"components.{name}") for name, values in top.components.items()}
        if not spaces:
            raise ConfigError("must declare at least one component", "components")
        budget = None if top.budget is None else _made(BUDGETS, top.budget, "budget", "concentrated")
        asking = None if top.query is None else _asking(top.query)
        query = None if asking is None else _query(asking, spaces)
        return cls(spaces, budget, top.devices, query, asking, top.analyst, top.ledger.url if top.ledger else "")

    def require_query(self) -> tuple[Query, QuerySection]:
        if self.query is None or self.asking is None:
            raise ConfigError("is required here", "query")
        return self.query, self.asking


def _by_kind(kinds: Mapping[str, Any], values: Any, key: str, default: str | None = None) -> tuple[Any, dict[str, Any]]:
    """What the kind of a section stands for, and the section's other keys."""
    if not isinstance(values, Mapping):
        raise ConfigError("must be a section of keys", key, got=Shown(type(values).__name__))
    rest = dict(values)
    kind = rest.pop("kind", default)
    if kind not in list(kinds):
        *names, last = map(repr, kinds)
        got = "" if kind is None else f", got {kind!r}"
        raise ConfigError(f"must be {', '.join(names)} or {last}{got}", f"{key}.kind")
    return kinds[kind], rest


def _made(kinds: Kinds, values: Any, key: str, default: str | None = None) -> Any:
    """A space or a budget, by the kind of its section."""
    (section, maker), rest = _by_kind(kinds, values, key, default)
    check_keys(section, rest, key)
    with _named_in_full(section, key):
        return maker(**asdict(converted(rest, section, key)))


@contextmanager
def _named_in_full(section: type[Struct], key: str) -> Iterator[None]:
    """Errors about a key of a section name it as it is found in the file."""
    try:
        yield
    except ConfigError as error:
        if error.key in section.__struct_fields__:
            error.key = f"{key}.{error.key}"
        raise


def _asking(values: Any) -> QuerySection:
    section, rest = _by_kind(QUERIES, values, "query")
    check_keys(section, rest, "query")
    found: QuerySection = converted(rest, section, "query")
    return found


def _query(asking: QuerySection, spaces: Mapping[str, Space]) -> Query:
    space = spaces.get(asking.component.partition("@")[0])
    if space is None:
        raise ConfigError(f"must be one of {sorted(spaces)}, also with @ and a time", "query.component")
    with _named_in_full(type(asking), "query"):
        found = asking.query(space)
        found.triple(asking.method)  # refuses an unknown method
        asking.elimination()  # refuses rounds that cannot be asked
    return found
