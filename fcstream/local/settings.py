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
from ..errors import ConfigError
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
    high: tuple[float, ...]
    step: float
    unit: float = 1.0
    missing: tuple[float, ...] | None = None


class GreatCircleSection(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[components.NAME]`` of kind ``great_circle``: longitude and latitude, with step and unit in meters."""

    step: float = 1.0
    unit: float = 1000.0
    missing: tuple[float, ...] | None = None


class HammingSection(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[components.NAME]`` of kind ``hamming``: strings of bits."""

    bits: int


class DiscreteSection(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[components.NAME]`` of kind ``discrete``: categories."""

    categories: int


class RecordsSection(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[components.NAME]`` of kind ``records``: a table of numbers in a public range."""

    low: float
    high: float
    step: float = 1.0


class GeoSection(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[budget]`` of kind ``geo``: pure geo-privacy."""

    epsilon: float


class ConcentratedSection(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[budget]`` of kind ``concentrated``, the default: concentrated geo-privacy."""

    rho: float


class ApproximateSection(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[budget]`` of kind ``approximate``: concentrated geo-privacy with the largest rho that implies these three."""

    epsilon: float
    delta: float
    distance: float


class QuerySection(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[query]``: the keys that all kinds of queries share."""

    name: str
    component: str
    rho: float
    method: str = "PM1"
    rounds: int = 10
    split: str = "doubling"
    beta: float = 0.05
    queries: int = 1
    savings: str = "paper"

    def elimination(self) -> Rounds:
        """The rounds in which devices are asked, checked."""
        return Rounds(self.rounds, self.split, self.beta)

    def query(self, space: Space) -> Query:
        """The query about a component in this space."""
        raise NotImplementedError


class ShareQuery(QuerySection, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Kind ``share``: whether less than a share of the records is at most `at`."""

    at: float
    share: str

    def query(self, space: Space) -> Query:
        return ShareBelow(self.component, space, self.at, self.share)


class CountQuery(QuerySection, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Kind ``count``: how many devices are in a box."""

    center: tuple[float, ...]
    sides: tuple[float, ...]
    threshold: str = "balanced"

    def query(self, space: Space) -> Query:
        return RangeCount.around(self.component, _euclidean(space), self.center, self.sides, threshold=self.threshold)


class DensityQuery(QuerySection, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Kind ``density``: how dense the devices are at a point."""

    at: tuple[float, ...]
    bandwidth: float
    kernel: str = "auto"

    def query(self, space: Space) -> Query:
        return KernelDensity.at(self.component, _euclidean(space), self.at, self.bandwidth, self.kernel)


class NearestQuery(QuerySection, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Kind ``nearest``: the k devices nearest to a point."""

    at: tuple[float, ...]
    k: int

    def query(self, space: Space) -> Query:
        return Nearest.at(self.component, _euclidean(space), self.at, self.k)


def _euclidean(space: Space) -> Euclidean:
    if not isinstance(space, Euclidean):
        raise ConfigError("must be euclidean or great_circle for this kind of query", "query.component")
    return space


class DevicesSection(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[devices]``: what `fcstream local device` serves, and where."""

    values: str = ""
    journal: str = ""
    keep: int = KEEP
    gateway: str = "here"
    listen: str = ""


class AnalystSection(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[analyst]``: which devices `fcstream local query` asks, and how long it waits for them."""

    url: str = ""
    devices: str = ""
    batch: int = 500
    timeout_s: float = 10.0
    tries: int = 3


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
        raise ConfigError(f"must be a section of keys, got {type(values).__name__}", key)
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
            raise ConfigError(error.message, f"{key}.{error.key}") from None
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
