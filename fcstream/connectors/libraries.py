"""What to install where an installed client library lacks what is used; connectors try that before the first
connection.
"""

from __future__ import annotations

import importlib.metadata
import re

from ..errors import ConfigError


def unsupported_version(package: str, key: str) -> ConfigError:
    """Make the error for an installed version that lacks what is used."""
    wanted = _wanted(package)
    return ConfigError(
        f"needs {wanted}: version {importlib.metadata.version(package)} is installed, which has changed too much",
        key,
        remedy=f"run pip install '{wanted}'",
    )


def _wanted(package: str) -> str:
    """Return the requirement that this package states for another one, as pip takes it."""
    for requirement in importlib.metadata.requires("fcstream") or []:
        name = requirement.partition(";")[0].strip()
        if re.match(rf"{re.escape(package)}(?![A-Za-z0-9_.-])", name):
            return name
    return package
