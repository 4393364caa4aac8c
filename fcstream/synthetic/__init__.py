"""Tables of records made up from what is known of others: the parts of ``kind = "synthetic"``, and k-anonymity.

Here stand the public levels of records, exact counts of them, public cells, mixtures and their rows. What is private
about it is said in `fcstream.releases.tables.synthetic`; `anonymize` is NOT private in that sense.
"""

from .microaggregation import Anonymized as Anonymized
from .microaggregation import anonymize as anonymize

__all__ = ["Anonymized", "anonymize"]
