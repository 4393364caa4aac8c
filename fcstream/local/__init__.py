"""Devices that hold their own budget and reply with noise, and the analyst who asks them: no service sees raw values.

Here belong questions and replies, the spaces of values, the device with its journal, the answers computed from many
replies, and simulations. Streams, whose records one service collects, are in the other packages. The device's side
needs numpy only, so public names are imported when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

_NAMES = {
    "Account": "analyst.series",
    "Answer": "queries.base",
    "Ask": "protocol",
    "Box": "functions",
    "Component": "device.components",
    "Discrete": "spaces",
    "Distance": "functions",
    "Euclidean": "spaces",
    "FileJournal": "device.journal",
    "Fleet": "simulation",
    "GreatCircle": "spaces",
    "Hamming": "spaces",
    "KernelDensity": "queries.density",
    "LocalBudget": "device.budget",
    "LocalFilter": "device.device",
    "Mismatches": "functions",
    "Named": "functions",
    "Nearest": "queries.neighbors",
    "Outside": "functions",
    "Plan": "queries.base",
    "Point": "functions",
    "RangeCount": "queries.counting",
    "Records": "spaces",
    "Rounds": "queries.elimination",
    "Series": "analyst.series",
    "Share": "functions",
    "ShareBelow": "queries.threshold",
    "Simulation": "simulation",
    "answer_all": "device.device",
    "turned": "functions",
}
__all__ = sorted(_NAMES)

if TYPE_CHECKING:
    from .analyst.series import Account as Account
    from .analyst.series import Series as Series
    from .device.budget import LocalBudget as LocalBudget
    from .device.components import Component as Component
    from .device.device import LocalFilter as LocalFilter
    from .device.device import answer_all as answer_all
    from .device.journal import FileJournal as FileJournal
    from .functions import Box as Box
    from .functions import Distance as Distance
    from .functions import Mismatches as Mismatches
    from .functions import Named as Named
    from .functions import Outside as Outside
    from .functions import Point as Point
    from .functions import Share as Share
    from .functions import turned as turned
    from .protocol import Ask as Ask
    from .queries.base import Answer as Answer
    from .queries.base import Plan as Plan
    from .queries.counting import RangeCount as RangeCount
    from .queries.density import KernelDensity as KernelDensity
    from .queries.elimination import Rounds as Rounds
    from .queries.neighbors import Nearest as Nearest
    from .queries.threshold import ShareBelow as ShareBelow
    from .simulation import Fleet as Fleet
    from .simulation import Simulation as Simulation
    from .spaces import Discrete as Discrete
    from .spaces import Euclidean as Euclidean
    from .spaces import GreatCircle as GreatCircle
    from .spaces import Hamming as Hamming
    from .spaces import Records as Records


def __getattr__(name: str) -> Any:
    module = _NAMES.get(name)
    if module is None:
        raise AttributeError(f"module 'fcstream.local' has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
