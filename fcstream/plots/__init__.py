"""Pictures of releases and budgets.

Here belongs whatever draws; it is the only package that imports matplotlib, and only when a picture is drawn. Reading
and checking what is drawn is in `fcstream.reporting`.

Files: `releases` (the picture of one series), `multiples` (one picture of several), `panels` (what a series looks like
there), `curves` (features, quantiles and totals over time), `tables` (histograms, marginals, frequent texts, made-up
rows), `centers` (clusters, paths and points in the plane), `matrices` (covariances), `trees`, `planes` (maps),
`marginals` (scores of synthetic tables), `budget`, `deployment` (a report's, as parts of an HTML page), and what they
share: `drawing`, `base`.
"""

from .budget import plot
from .marginals import plot_marginals
from .multiples import plot_all
from .releases import plot_releases

__all__ = ["plot", "plot_all", "plot_marginals", "plot_releases"]
