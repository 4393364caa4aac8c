"""``${NAME}`` and ``${file:PATH}`` in URLs: secrets from the environment or from files, not from configurations."""

from __future__ import annotations

import os
import re
import urllib.parse

from .errors import ConfigError

_PLACEHOLDER = re.compile(r"\$\{(file:)?([^}]*)\}")


def fill(url: str, place: str) -> str:
    """A URL with what its placeholders stand for, percent-encoded, so that it is read as it is whatever it holds.

    Raises
    ------
    ConfigError
        A variable or file that is not there. Never quotes what a placeholder stood for.
    """
    return _PLACEHOLDER.sub(lambda found: _quoted(found, place), url)


def _quoted(found: re.Match[str], place: str) -> str:
    name = found[2]
    if found[1]:
        try:
            with open(name, encoding="utf-8") as file:
                return urllib.parse.quote(file.read().strip(), safe="")
        except (OSError, UnicodeDecodeError):
            raise ConfigError(f"names the file {name}, which cannot be read", place) from None
    value = os.environ.get(name)
    if value is None:
        raise ConfigError(f"names the variable {name}, which is not set", place)
    return urllib.parse.quote(value, safe="")
