"""Addresses of brokers: parsed, with secrets from the environment or files, and without them in messages."""

from __future__ import annotations

import re
import urllib.parse
from dataclasses import dataclass, field

from ..errors import ConfigError
from ..placeholders import fill


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed URL ``scheme://[user[:password]@]host[:port][,host...]/path?option=value``.

    Attributes
    ----------
    scheme : str
    hosts : tuple of (str, int or None)
    path : str
        Without the leading slash, decoded.
    options : dict
        Of the query; `take` removes one.
    user, password : str or None
        Decoded; the password is not part of the representation.
    masked : str
        For messages: the password and every option that sounds like a secret replaced by ``***``.
    place : str
        The configuration key it came from.
    """

    scheme: str
    hosts: tuple[tuple[str, int | None], ...]
    path: str
    options: dict[str, str]
    user: str | None
    password: str | None = field(repr=False)
    masked: str
    place: str

    def take(self, name: str, default: str | None = None) -> str:
        """Remove and return an option.

        Raises
        ------
        ConfigError
            It is missing and has no default.
        """
        value = self.options.pop(name, default)
        if value is None:
            raise ConfigError(f"must name `{name}` (as ...?{name}=...), got {self.masked}", self.place)
        return value

    def take_number(self, name: str, default: float) -> float:
        """Remove and return a positive number."""
        text = self.take(name, str(default))
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 < value < 1e12:
            raise ConfigError(f"must have a positive number as `{name}`, got {text!r}", self.place)
        return value

    def finish(self) -> None:
        """Refuse options that nobody took."""
        if self.options:
            raise ConfigError(f"has an unknown option {sorted(self.options)[0]!r}: {self.masked}", self.place)

    def host(self, port: int) -> tuple[str, int]:
        """The first host."""
        name, given = self.hosts[0]
        return name, given or port

    def listing(self, port: int) -> str:
        """``host:port,host:port``."""
        return ",".join(f"{name}:{given or port}" for name, given in self.hosts)


def parse(url: str, place: str) -> Address:
    """Parse a URL whose ``${NAME}`` come from the environment and ``${file:PATH}`` from files.

    Raises
    ------
    ConfigError
        A variable or file that is not there, or no URL. Never quotes what a placeholder stood for.
    """
    masked = mask(url)
    parts = urllib.parse.urlsplit(fill(url, place))
    options = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
    credentials, _, listing = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    hosts = []
    for entry in listing.split(","):
        found = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]*)(?::(\d{1,5}))?", entry)
        if found is None or not _is_name(found[1]):
            raise ConfigError(f"must have a host, got {masked}", place)
        hosts.append((found[1].strip("[]"), int(found[2]) if found[2] else None))
    unquote = urllib.parse.unquote
    return Address(
        scheme=parts.scheme,
        hosts=tuple(hosts),
        path=unquote(parts.path.removeprefix("/")),
        options=options,
        user=unquote(user) or None,
        password=unquote(password) or None,
        masked=masked,
        place=place,
    )


def _is_name(host: str) -> bool:
    """Whether a host's name could be looked up at all: no part of it is empty or very long."""
    try:
        return bool(host.encode("idna"))
    except UnicodeError:
        return False


def mask(url: str) -> str:
    """A URL without its secrets; placeholders may stay, they tell nothing."""
    # A password may hold anything: what follows a user's colon, unless it is a port, and all up to the last @.
    url = re.sub(r"://[^/?#@]*:(?!\d+([/?#]|$))[^@]*@", "://***@", url)
    url = re.sub(r"://[^?#]*@", "://***@", url)
    return re.sub(r"(?i)([?&][^=&]*(?:password|secret|token|key|bearer|authorization)[^=&]*=)[^&]*", r"\1***", url)


def need(module: str, extra: str, place: str) -> ConfigError:
    """The error for a client library that is not installed."""
    return ConfigError(f"needs the package {module}: pip install 'fcstream[{extra}]'", place)
