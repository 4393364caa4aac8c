"""Pictures. The only package that imports matplotlib, and only when a picture is drawn."""

from .budget import plot
from .marginals import plot_marginals
from .releases import plot_releases

__all__ = ["plot", "plot_marginals", "plot_releases"]
