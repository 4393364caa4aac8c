"""Clients whose insides are relied upon: tried out before the first connection, as only some versions fit."""

from __future__ import annotations

import importlib.metadata
import re

from ..errors import ConfigError


def unsupported_version(package: str, key: str) -> ConfigError:
    """The error for an installed version whose insides are not as they were."""
    wanted = _wanted(package)
    return ConfigError(
        f"needs {wanted}: version {importlib.metadata.version(package)} is installed, whose insides have changed; run "
        f"pip install '{wanted}'",
        key,
    )


def _wanted(package: str) -> str:
    """What this package asks for, as pip takes it."""
    for requirement in importlib.metadata.requires("fcstream") or []:
        name = requirement.partition(";")[0].strip()
        if re.match(rf"{re.escape(package)}(?![A-Za-z0-9_.-])", name):
            return name
    return package
