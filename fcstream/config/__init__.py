"""Configurations: what may be written (`sections`), how it is read (`loading`), and what it means (`job`).

Here belong the keys of a configuration file, their checks and messages, and the `Job` that is made of them once and
handed on. The hash that a ledger keeps of a configuration is made in `specification`. What a key does is done
elsewhere; the keys of a kind of release stand with that kind, in `fcstream.releases`.
"""

from .durations import duration_ms
from .job import Job
from .loading import Config
from .sections import DeadLetterSection, LedgerSection, ServiceSection, SourceSection, SparkSection, UrlSection

__all__ = [
    "Config",
    "DeadLetterSection",
    "Job",
    "LedgerSection",
    "ServiceSection",
    "SourceSection",
    "SparkSection",
    "UrlSection",
    "duration_ms",
]
