"""Addresses of brokers: parsed, with secrets filled in from the environment or files, and masked in messages."""

from __future__ import annotations

import itertools
import re
import urllib.parse
from dataclasses import dataclass, field

from ..errors import ConfigError, Shown
from ..formats.envelopes import NO_FIELDS, AskedFields
from ..runtime.interpolation import PLACEHOLDER, interpolate, is_url

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]@/?#=]*)(?::(\d{1,5}))?")
_PLAIN = re.compile(r"[A-Za-z0-9_.,:/*>\x00-]*")
_FILES = ("jsonl:", "csv:", "stdin:", "influx:", "sqlite:", "csv-tables:", "jsonl-tables:", "parquet-tables:")
_OPTION = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,60}")
# fmt: off
_HARMLESS = frozenset((
    "arrival", "body_s", "bucket", "ca", "cert", "client_id", "connections", "credit", "creds", "delivery_id",
    "exchange", "fcstream.batch", "fcstream.ca", "fcstream.patience", "fcstream.timeout", "group", "host", "inflight",
    "instance", "k", "max_bytes", "max_poll_s", "numbers", "org", "patience", "prefetch", "queue", "replicas",
    "retain", "routing_key", "sasl", "schema", "security", "session", "session_s", "sslmode", "sslrootcert", "stream",
    "subject", "table", "timeout", "tls", "unsafe",
))
# fmt: on
"""Options of connectors and ledgers whose values are not secret."""
_SECRET = frozenset(("password", "token", "key", "fcstream.bearer", "sasl.password"))


@dataclass(frozen=True, slots=True)
class UrlOption:
    """An option of a connector's URL, as it is taken and as the reference tells it.

    Attributes
    ----------
    name : str
    meaning : str
        In Markdown.
    default : str or float or None
        A number if the option is one. None: it is required, or `otherwise` says what holds.
    otherwise : str
        What is taken by default, in words, where that is no constant.
    """

    name: str
    meaning: str
    default: str | float | None = None
    otherwise: str = ""


PATIENCE = UrlOption("patience", "Seconds for which the server may be away before an error is raised.", 60)


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
        Options of the query; `take` removes one.
    user, password : str or None
        Decoded; the password is not part of the representation.
    target : str
        Path and query as they were given, with placeholders filled in; not part of the representation.
    masked : str
        The URL as messages may show it, see `mask`.
    key : str
        The configuration key that holds the URL.
    asked : AskedFields
        What a source is to give of messages besides their bodies.
    """

    scheme: str
    hosts: tuple[tuple[str, int | None], ...]
    path: str
    options: dict[str, str] = field(repr=False)
    user: str | None
    password: str | None = field(repr=False)
    target: str = field(repr=False)
    masked: str
    key: str
    asked: AskedFields = NO_FIELDS

    def take(self, option: UrlOption | str, default: str | None = None) -> str:
        """Remove and return an option; `default` goes before the option's own.

        Raises
        ------
        ConfigError
            It is missing and has no default.
        """
        name, own = (option, None) if isinstance(option, str) else (option.name, option.default)
        value = self.options.pop(name, default if default is not None or own is None else str(own))
        if value is None:
            raise ConfigError(f"must name `{name}` (as ...?{name}=...)", self.key, got=Shown(self.masked))
        return value

    def take_number(self, option: UrlOption | str, default: float | None = None) -> float:
        """Remove and return a positive number; see `take`."""
        text = self.take(option, None if default is None else str(default))
        name = option if isinstance(option, str) else option.name
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 < value < 1e12:
            raise ConfigError(f"must have a positive number as `{name}`", self.key, got=text)
        return value

    def finish(self) -> None:
        """Refuse options that nothing has taken."""
        if self.options:
            # The rest of a secret with an '&' in it looks like an option, so only what the mask shows is named.
            names = [repr(name) for name in sorted(self.options) if f"{name}=" in self.masked]
            raise ConfigError(f"has an unknown option {''.join(names[:1]) or '***'}: {self.masked}", self.key)

    def host(self, port: int) -> tuple[str, int]:
        """Return the first host and its port."""
        name, given = self.hosts[0]
        return name, given or port

    def listing(self, port: int) -> str:
        """Format the hosts as ``host:port,host:port``."""
        return ",".join(f"{name}:{given or port}" for name, given in self.hosts)


def parse(url: str, key: str) -> Address:
    """Parse a URL whose ``${NAME}`` come from the environment and ``${file:PATH}`` from files.

    Raises
    ------
    ConfigError
        A variable or file that is not there, or no URL. Never quotes what a placeholder stood for.
    """
    masked = mask(url)
    if url.endswith(":") and _SCHEME.fullmatch(url[:-1]):  # nothing but a scheme: what it names is this process's own
        return Address(url[:-1], (), "", {}, None, None, "", masked, key)
    scheme, _, rest = interpolate(url, key).partition("://")
    if "#" in rest:
        raise ConfigError("must have special characters percent-encoded", key, remedy=f"write %23 for #, got {masked}")
    base, _, query = rest.partition("?")
    netloc, _, path = base.partition("/")
    credentials, _, listing = netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    hosts = []
    for entry in listing.split(","):
        found = _HOST.fullmatch(entry)
        if found is None or not _is_name(found[1]):
            raise ConfigError("must have a host", key, got=Shown(masked))
        hosts.append((found[1].strip("[]"), int(found[2]) if found[2] else None))
    unquote = urllib.parse.unquote
    return Address(
        scheme=scheme,
        hosts=tuple(hosts),
        path=unquote(path),
        options=dict(urllib.parse.parse_qsl(query, keep_blank_values=True)),
        user=unquote(user) or None,
        password=unquote(password) or None,
        target=_target(url, key) + (f"?{query}" if query else ""),
        masked=masked,
        key=key,
    )


def _is_name(host: str) -> bool:
    """Return whether a host's name can be looked up at all: no part of it is empty or very long."""
    try:
        return bool(host.encode("idna"))
    except UnicodeError:
        return False


def mask(url: str) -> str:
    """Return a URL as messages may show it: what is known to be harmless, and ``***`` for the rest.

    A login is hidden whole, and so is the value of every option that is not known to be harmless: a misspelled
    ``passwrd=`` holds a password too. Where the parts cannot be separated, because special characters were not
    percent-encoded, only the scheme is left. Placeholders may stay, because they reveal nothing.
    """
    if url == "memory:":
        return url
    if url.startswith(_FILES):
        kind, _, location = url.partition(":")
        if not is_url(location):
            return url
        if not location.strip().startswith("//"):
            return f"{kind}:{mask(location.strip())}"
        url = f"{kind}:{location.strip()}"
    scheme, separator, rest = url.partition("://")
    if not separator or not _SCHEME.fullmatch(scheme):
        is_file = not any(sign in url for sign in ":@=")
        return url if is_file else f"{scheme_of(url)}:***".removeprefix(":")
    hidden = f"{scheme}://***"
    base, question, query = _without_placeholders(rest).partition("?")
    _, at, location = base.rpartition("@")
    listing, slash, path = location.partition("/")
    if "#" in rest or not all(_HOST.fullmatch(entry) for entry in listing.split(",")):
        return hidden
    options: list[str] = []
    for pair in filter(None, query.split("&")):
        name, equals, value = pair.partition("=")
        if not equals and "@" in pair:
            return hidden
        is_known = equals and name in _HARMLESS | _SECRET
        # After a hidden option it may be the rest of a secret with an '&'.
        if is_known or (equals and _OPTION.fullmatch(name) and not any(one.endswith("***") for one in options)):
            options.append(f"{name}={value if name in _HARMLESS and _PLAIN.fullmatch(value) else '***'}")
        else:
            options.append("***")
    masked = f"{scheme}://{'***@' if at else ''}{listing}{slash}{'***' if '=' in path else path}"
    return _with_placeholders(masked + (question + "&".join(options) if options else ""), rest)


def _target(url: str, key: str) -> str:
    """Return path and query as they were given; a placeholder in the path may stand for several steps."""
    rest = url.partition("://")[2]
    base = _without_placeholders(rest).partition("?")[0]
    _, slash, path = base.partition("/")
    return slash + interpolate(_with_placeholders(path, rest), key, kept="/")


_KEPT = re.compile(r"\x00(\d+)\x00")


def _without_placeholders(text: str) -> str:
    """Replace placeholders, which may hold any character, by numbers between zero bytes."""
    numbers = itertools.count()
    return PLACEHOLDER.sub(lambda _: f"\x00{next(numbers)}\x00", text)


def _with_placeholders(text: str, original: str) -> str:
    given = PLACEHOLDER.findall(original)
    return _KEPT.sub(lambda found: "${" + "".join(given[int(found[1])]) + "}", text)


def scheme_of(url: str) -> str:
    """Return what a URL begins with, for messages; nothing of it if that is not a scheme."""
    scheme, colon, _ = url.partition(":")
    return scheme if colon and _SCHEME.fullmatch(scheme) else ""
