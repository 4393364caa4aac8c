"""Differentially private averages, counts and shapes of streams, per window, with a ledger of what was spent.

Public names are resolved when first used, so importing the package is cheap.
"""

from .runtime.lazy_names import lazy_names

__version__ = "0.1.0"

__getattr__, _names = lazy_names(__name__, __file__)
__all__ = ["__version__", *_names]


def __dir__() -> list[str]:
    return list(__all__)
