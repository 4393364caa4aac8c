"""Configurations: what may be written (`sections`), how it is read (`loading`), and what it means (`job`)."""

from .durations import duration_ms
from .job import Job
from .loading import Config
from .sections import DeadLetterSection, ServiceSection, SourceSection, SparkSection, UrlSection

__all__ = [
    "Config",
    "DeadLetterSection",
    "Job",
    "ServiceSection",
    "SourceSection",
    "SparkSection",
    "UrlSection",
    "duration_ms",
]
