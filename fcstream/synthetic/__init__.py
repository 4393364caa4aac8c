"""Tables of made-up records: the arithmetic behind ``kind = "synthetic"``, and k-anonymity.

Here belong the public levels of columns, exact counts of them, public cells, mixtures and the rows drawn of them.
What is private about it, and what it costs, is in `fcstream.releases.tables`; `anonymize` is NOT private in that
sense.
"""

from .microaggregation import Anonymized as Anonymized
from .microaggregation import anonymize as anonymize

__all__ = ["Anonymized", "anonymize"]
