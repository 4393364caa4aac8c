"""Differentially private averages, counts and shapes of streams, per window, with a ledger of what was spent.

Public names are resolved when first used, so importing the package is cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_NAMES = {
    "AdvancedDPFilter": "accounting.filters",
    "BasicFilter": "cores.filters",
    "BlockCounts": "counting.sampled",
    "BudgetExhausted": "errors",
    "BudgetSchedule": "accounting.filters",
    "Config": "config",
    "ConfigError": "errors",
    "DPLoss": "accounting.losses",
    "Engine": "engine.engine",
    "EngineClosed": "errors",
    "FcstreamError": "errors",
    "FriendCounts": "counting.exact",
    "HammingBits": "predicates",
    "HiddenCoinFilter": "cores.sampled_filters",
    "HiddenCounts": "counting.sampled",
    "KeyedEngine": "engine.keyed",
    "LadderCounts": "counting.multi_radius",
    "LedgerDamaged": "errors",
    "LedgerError": "errors",
    "LedgerInUse": "errors",
    "LedgerMismatch": "errors",
    "MatchTuples": "predicates",
    "MatchWithin": "predicates",
    "MatrixDistance": "predicates",
    "Noise": "noise.samplers",
    "OrderedTuples": "predicates",
    "PredicateCounts": "predicates",
    "PrivacyFilter": "accounting.filters",
    "PrivacyLoss": "accounting.losses",
    "PrivacyOdometer": "accounting.filters",
    "Rejection": "formats.batch",
    "Release": "releases.base",
    "SeededEntropy": "noise.samplers",
    "SinkError": "errors",
    "SourceError": "errors",
    "SparseZCDPFilter": "cores.sampled_filters",
    "UnusablePlan": "errors",
    "UserPredicate": "predicates",
    "ZCDPFilter": "cores.filters",
    "estimate_average": "arrays.approximate_dp",
    "friend_counts": "counting.exact",
    "geo_epsilon": "accounting.losses",
    "geo_rho_cap": "accounting.losses",
    "private_histogram": "arrays.statistics",
    "private_centers": "arrays.clusters",
    "private_covariance": "arrays.approximate_dp",
    "private_dp_mean": "arrays.approximate_dp",
    "private_marginals": "arrays.statistics",
    "private_mean": "arrays.statistics",
    "private_mixture": "arrays.clusters",
    "private_quantiles": "arrays.statistics",
    "private_synthetic": "arrays.statistics",
    "private_variance": "arrays.statistics",
    "register_release": "releases.registry",
    "set_threads": "counting.threads",
    "synthetic_rows": "releases.tables.documents",
    "warm_up": "planning.warmup",
    "zcdp_of_dp": "accounting.losses",
    "zcdp_of_geo": "accounting.losses",
    "zcdp_of_laplace": "accounting.losses",
}
__all__ = ["__version__", *sorted(_NAMES)]

if TYPE_CHECKING:
    from .accounting.filters import AdvancedDPFilter as AdvancedDPFilter
    from .accounting.filters import BudgetSchedule as BudgetSchedule
    from .accounting.filters import PrivacyFilter as PrivacyFilter
    from .accounting.filters import PrivacyOdometer as PrivacyOdometer
    from .accounting.losses import DPLoss as DPLoss
    from .accounting.losses import PrivacyLoss as PrivacyLoss
    from .accounting.losses import geo_epsilon as geo_epsilon
    from .accounting.losses import geo_rho_cap as geo_rho_cap
    from .accounting.losses import zcdp_of_dp as zcdp_of_dp
    from .accounting.losses import zcdp_of_geo as zcdp_of_geo
    from .accounting.losses import zcdp_of_laplace as zcdp_of_laplace
    from .arrays.approximate_dp import estimate_average as estimate_average
    from .arrays.approximate_dp import private_covariance as private_covariance
    from .arrays.approximate_dp import private_dp_mean as private_dp_mean
    from .arrays.clusters import private_centers as private_centers
    from .arrays.clusters import private_mixture as private_mixture
    from .arrays.statistics import private_histogram as private_histogram
    from .arrays.statistics import private_marginals as private_marginals
    from .arrays.statistics import private_mean as private_mean
    from .arrays.statistics import private_quantiles as private_quantiles
    from .arrays.statistics import private_synthetic as private_synthetic
    from .arrays.statistics import private_variance as private_variance
    from .config import Config as Config
    from .cores.filters import BasicFilter as BasicFilter
    from .cores.filters import ZCDPFilter as ZCDPFilter
    from .cores.sampled_filters import HiddenCoinFilter as HiddenCoinFilter
    from .cores.sampled_filters import SparseZCDPFilter as SparseZCDPFilter
    from .counting.exact import FriendCounts as FriendCounts
    from .counting.exact import friend_counts as friend_counts
    from .counting.multi_radius import LadderCounts as LadderCounts
    from .counting.sampled import BlockCounts as BlockCounts
    from .counting.sampled import HiddenCounts as HiddenCounts
    from .counting.threads import set_threads as set_threads
    from .engine.engine import Engine as Engine
    from .engine.keyed import KeyedEngine as KeyedEngine
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
    from .formats.batch import Rejection as Rejection
    from .noise.samplers import Noise as Noise
    from .noise.samplers import SeededEntropy as SeededEntropy
    from .planning.warmup import warm_up as warm_up
    from .predicates import HammingBits as HammingBits
    from .predicates import MatchTuples as MatchTuples
    from .predicates import MatchWithin as MatchWithin
    from .predicates import MatrixDistance as MatrixDistance
    from .predicates import OrderedTuples as OrderedTuples
    from .predicates import PredicateCounts as PredicateCounts
    from .predicates import UserPredicate as UserPredicate
    from .releases.base import Release as Release
    from .releases.registry import register_release as register_release
    from .releases.tables.documents import synthetic_rows as synthetic_rows


def __getattr__(name: str) -> Any:
    module = _NAMES.get(name)
    if module is None:
        raise AttributeError(f"module 'fcstream' has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
