"""Tables of made-up records: the arithmetic behind ``kind = "synthetic"``, and k-anonymity.

Here belong the public levels of columns, exact counts of them, public cells, mixtures, and the rows drawn from
mixtures. Which of it is private, and what that costs, is decided in `fcstream.releases.tables`. `anonymize` and
`microaggregate` are NOT differentially private.
"""

from .microaggregation import Anonymized as Anonymized
from .microaggregation import anonymize as anonymize
from .microaggregation import microaggregate as microaggregate

__all__ = ["Anonymized", "anonymize", "microaggregate"]
