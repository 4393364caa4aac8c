"""Differentially private averages, counts and shapes of streams, per window, with a ledger of what was spent.

Public names are resolved when first used, so importing the package is cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_NAMES = {
    "BasicFilter": "cores",
    "BudgetExhausted": "errors",
    "Config": "config",
    "ConfigError": "errors",
    "Engine": "engine",
    "EngineClosed": "errors",
    "FcstreamError": "errors",
    "FriendCounts": "friends",
    "LedgerDamaged": "errors",
    "LedgerError": "errors",
    "LedgerInUse": "errors",
    "LedgerMismatch": "errors",
    "Noise": "noise",
    "PrivacyFilter": "budgets",
    "PrivacyLoss": "zcdp",
    "Rejection": "records",
    "Release": "releases.base",
    "SeededEntropy": "noise",
    "SinkError": "errors",
    "SourceError": "errors",
    "UnusablePlan": "errors",
    "ZCDPFilter": "cores",
    "friend_counts": "friends",
    "private_mean": "arrays",
}
__all__ = ["__version__", *sorted(_NAMES)]

if TYPE_CHECKING:
    from .arrays import private_mean as private_mean
    from .budgets import PrivacyFilter as PrivacyFilter
    from .config import Config as Config
    from .cores import BasicFilter as BasicFilter
    from .cores import ZCDPFilter as ZCDPFilter
    from .engine import Engine as Engine
    from .errors import BudgetExhausted as BudgetExhausted
    from .errors import ConfigError as ConfigError
    from .errors import EngineClosed as EngineClosed
    from .errors import FcstreamError as FcstreamError
    from .errors import LedgerDamaged as LedgerDamaged
    from .errors import LedgerError as LedgerError
    from .errors import LedgerInUse as LedgerInUse
    from .errors import LedgerMismatch as LedgerMismatch
    from .errors import SinkError as SinkError
    from .errors import SourceError as SourceError
    from .errors import UnusablePlan as UnusablePlan
    from .friends import FriendCounts as FriendCounts
    from .friends import friend_counts as friend_counts
    from .noise import Noise as Noise
    from .noise import SeededEntropy as SeededEntropy
    from .records import Rejection as Rejection
    from .releases.base import Release as Release
    from .zcdp import PrivacyLoss as PrivacyLoss


def __getattr__(name: str) -> Any:
    module = _NAMES.get(name)
    if module is None:
        raise AttributeError(f"module 'fcstream' has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
