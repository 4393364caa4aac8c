"""Devices that hold their own budget, and the analyst who asks them.

The device side needs numpy only. Public names are resolved when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

_NAMES = {
    "Account": "series",
    "Answer": "queries",
    "Ask": "questions",
    "Box": "functions",
    "Component": "device",
    "Discrete": "spaces",
    "Distance": "functions",
    "Euclidean": "spaces",
    "FileJournal": "journal",
    "Fleet": "simulation",
    "GreatCircle": "spaces",
    "Hamming": "spaces",
    "KernelDensity": "density",
    "LocalBudget": "device",
    "LocalFilter": "device",
    "Mismatches": "functions",
    "Named": "functions",
    "Nearest": "neighbors",
    "Outside": "functions",
    "Plan": "queries",
    "Point": "functions",
    "RangeCount": "counting",
    "Records": "spaces",
    "Rounds": "elimination",
    "Series": "series",
    "Share": "functions",
    "ShareBelow": "threshold",
    "Simulation": "simulation",
    "answer_all": "device",
    "turned": "functions",
}
__all__ = sorted(_NAMES)

if TYPE_CHECKING:
    from .counting import RangeCount as RangeCount
    from .density import KernelDensity as KernelDensity
    from .device import Component as Component
    from .device import LocalBudget as LocalBudget
    from .device import LocalFilter as LocalFilter
    from .device import answer_all as answer_all
    from .elimination import Rounds as Rounds
    from .functions import Box as Box
    from .functions import Distance as Distance
    from .functions import Mismatches as Mismatches
    from .functions import Named as Named
    from .functions import Outside as Outside
    from .functions import Point as Point
    from .functions import Share as Share
    from .functions import turned as turned
    from .journal import FileJournal as FileJournal
    from .neighbors import Nearest as Nearest
    from .queries import Answer as Answer
    from .queries import Plan as Plan
    from .questions import Ask as Ask
    from .series import Account as Account
    from .series import Series as Series
    from .simulation import Fleet as Fleet
    from .simulation import Simulation as Simulation
    from .spaces import Discrete as Discrete
    from .spaces import Euclidean as Euclidean
    from .spaces import GreatCircle as GreatCircle
    from .spaces import Hamming as Hamming
    from .spaces import Records as Records
    from .threshold import ShareBelow as ShareBelow


def __getattr__(name: str) -> Any:
    module = _NAMES.get(name)
    if module is None:
        raise AttributeError(f"module 'fcstream.local' has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
