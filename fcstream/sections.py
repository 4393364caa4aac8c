"""Sections of a configuration as classes, for `fcstream.Stream`: an editor knows their keys.

They are the very classes that a file is read into, so there is no second list of keys. Each kind of ``[release]`` has a
class, which is called by the kind, after the method where that is not the default: `Mean`, `TrackingMean`. A section of
another name is called by what it says.
"""

from __future__ import annotations

from .config.sections import (
    BudgetSection,
    FeatureSection,
    KeyDiscoverySection,
    LatticeSection,
    StreamSection,
    WindowSection,
)
from .releases.clusters.automatic import AutoCentersOptions, AutoMixturesOptions
from .releases.clusters.tree_mixtures import TreeMixturesOptions
from .releases.clusters.tree_release import TreeCentersOptions
from .releases.means.approximate_dp import BasicOptions
from .releases.means.automatic import AutoMeanOptions
from .releases.means.searched import SearchOptions
from .releases.means.tracking import TrackingOptions
from .releases.statistics.clipped import ClippedCovarianceOptions
from .releases.statistics.count import CountOptions
from .releases.statistics.covariance import CovarianceOptions
from .releases.statistics.frequent import FrequentOptions
from .releases.statistics.histogram import HistogramOptions
from .releases.statistics.quantiles import QuantilesOptions
from .releases.statistics.sum import SumOptions
from .releases.statistics.variance import VarianceOptions
from .releases.tables.marginals import MarginalsOptions
from .releases.tables.synthetic import SyntheticOptions
from .releases.totals.total import TotalOptions
from .releases.trees.automatic import AutoPointsOptions
from .releases.trees.drawn import TreePointsOptions
from .releases.trees.release import TreeOptions

Records = StreamSection
KeyDiscovery = KeyDiscoverySection
Lattice = LatticeSection
Feature = FeatureSection
Window = WindowSection
Budget = BudgetSection

Mean = SearchOptions
AutoMean = AutoMeanOptions
TrackingMean = TrackingOptions
BasicMean = BasicOptions
Count = CountOptions
Sum = SumOptions
Histogram = HistogramOptions
Frequent = FrequentOptions
Total = TotalOptions
Quantiles = QuantilesOptions
Variance = VarianceOptions
Covariance = ClippedCovarianceOptions
FriendlyCovariance = CovarianceOptions
Centers = AutoCentersOptions
TreeCenters = TreeCentersOptions
Mixtures = AutoMixturesOptions
TreeMixtures = TreeMixturesOptions
Synthetic = SyntheticOptions
Marginals = MarginalsOptions
Points = AutoPointsOptions
TreePoints = TreePointsOptions
Tree = TreeOptions
