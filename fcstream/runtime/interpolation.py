"""``${NAME}`` and ``${file:PATH}`` in URLs: secrets from the environment or from files, not from configurations."""

from __future__ import annotations

import os
import re
import urllib.parse

from ..errors import ConfigError

# A name has no character that separates parts of a URL: else, after a forgotten brace, a password would be read as one.
PLACEHOLDER = re.compile(r"\$\{(file:)?([^}@?&=#:$]+)\}")


def interpolate(url: str, key: str, *, kept: str = "") -> str:
    """Replace the placeholders of a URL by their values, percent-encoded except for the characters in `kept`.

    Raises
    ------
    ConfigError
        A variable or a file does not exist. The message never quotes the value of a placeholder.
    """
    return PLACEHOLDER.sub(lambda found: urllib.parse.quote(_value(found, key), safe=kept), url)


def _value(found: re.Match[str], key: str) -> str:
    name = found[2]
    if found[1]:
        try:
            with open(name, encoding="utf-8") as file:
                return file.read().strip()
        except (OSError, UnicodeDecodeError):
            raise ConfigError(f"names the file {name}, which cannot be read", key) from None
    value = os.environ.get(name)
    if value is None:
        raise ConfigError(f"names the variable {name}, which is not set", key)
    return value


def is_url(key: str) -> bool:
    """Return whether a text that should be a path is a URL, or the end of one; no message may show the login in it.


    ``///data/x.csv`` is a path, unless it has an ``@``.
    """
    key = key.strip()
    return "://" in key or (key.startswith("//") and (not key.startswith("///") or "@" in key))
