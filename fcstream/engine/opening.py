"""Opening of the engine that a configuration needs."""

from __future__ import annotations

from collections.abc import Collection

from ..config import Config
from ..errors import ConfigError
from ..noise.samplers import Noise
from ..runtime.wall_clock import WallClock
from .discovering import DiscoveringEngine
from .engine import Engine
from .intake import OnRejection
from .keyed import KeyedEngine
from .records import CounterFactory, default_counters


def open_engine(
    config: Config,
    *,
    keys: Collection[str] | None = None,
    noise: Noise | None = None,
    on_rejection: OnRejection | None = None,
    stores: CounterFactory = default_counters,
    clock: WallClock | None = None,
) -> Engine | KeyedEngine:
    """Make the engine of a configuration: without keys, with declared ones, or with keys that it finds."""
    if config.job.finder is not None:
        if keys is not None or stores is not default_counters:
            raise ConfigError("must be declared here, where several processes count records", "stream.keys")
        return DiscoveringEngine(config, noise=noise, on_rejection=on_rejection, clock=clock)
    if config.stream.key is None:
        return Engine(config, noise=noise, on_rejection=on_rejection, stores=stores, clock=clock)
    return KeyedEngine(config, keys=keys, noise=noise, on_rejection=on_rejection, stores=stores, clock=clock)
