"""Parsing of texts of the configuration that mean times."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from ..errors import ConfigError
from ..formats.batch import UnusableRecord, parse_iso8601

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_MILLIS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

NOW = "now"
"""Value of ``window.start``: the first run's first window; windows open at multiples of their slide since 1970."""


def duration_ms(text: str, key: str) -> int:
    """Convert ``500ms``, ``30s``, ``10m``, ``1h`` or ``7d`` to milliseconds.

    Raises
    ------
    ConfigError
    """
    match = _DURATION.fullmatch(text.strip())
    millis = float(match[1]) * _MILLIS[match[2]] if match else 0.5
    if millis > 2**52 or millis != int(millis):
        raise ConfigError("must be a number with a unit ms, s, m, h or d (like '10m')", key, got=text)
    return int(millis)


def instant_ms(text: str, key: str) -> int:
    try:
        millis = parse_iso8601(text)
        datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=millis)  # a time zone may move it out of all years
        return millis
    except (ValueError, OverflowError, UnusableRecord):
        raise ConfigError("must be ISO 8601 (like '2016-03-15T00:00:00Z')", key, got=text) from None
