"""What to install where a version of a client lacks what is used: tried out before the first connection."""

from __future__ import annotations

import importlib.metadata
import re

from ..errors import ConfigError


def unsupported_version(package: str, key: str) -> ConfigError:
    """The error for an installed version that is not as it was."""
    wanted = _wanted(package)
    return ConfigError(
        f"needs {wanted}: version {importlib.metadata.version(package)} is installed, which has changed too much; run "
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
