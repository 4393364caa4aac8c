"""Parameters with which ledgers and sinks connect through libpq, PostgreSQL's client.

Connections to another machine are encrypted, and the server must prove who it is.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
from collections.abc import Mapping
from typing import Any

_DEFAULTS = {
    "application_name": "fcstream",
    "connect_timeout": "5",
    # A server that vanishes is noticed within half a minute.
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
# Texts are UTF-8, whatever an option or PGCLIENTENCODING says: others cannot hold every name.
_FORCED = {"client_encoding": "UTF8"}
_CHECKED = "verify-full"
_REQUIRE_AUTH = 160000  # libpq's version that can refuse to send a password in clear
_REMEDY = (
    "a server on another host must prove who it is (sslmode=verify-full): give it a certificate and name its authority "
    "as sslrootcert=FILE, or choose another `sslmode` where the network is trusted"
)


def parameters(given: Mapping[str, str], version: int) -> dict[str, str]:
    """Return the parameters for libpq: the given ones, and our defaults for the others.

    Parameters
    ----------
    given : mapping
        libpq's own parameters, as the URL has them.
    version : int
        libpq's, as ``psycopg.pq.version()`` returns it.

    Notes
    -----
    A server that is reached over a network must prove who it is, unless ``sslmode`` (or the variable PGSSLMODE) says
    otherwise. Whatever it says, no password is sent in clear without encryption where libpq (16 or later) can refuse.
    """
    found = {**_DEFAULTS, **given, **_FORCED}
    if not _is_remote(found):
        return found
    mode = found.get("sslmode") or os.environ.get("PGSSLMODE") or _CHECKED
    found["sslmode"] = mode
    if mode in ("verify-ca", _CHECKED):
        authorities = ssl.get_default_verify_paths().cafile
        home = os.path.expanduser("~/.postgresql/root.crt")
        if authorities and "PGSSLROOTCERT" not in os.environ and not os.path.exists(home):
            found.setdefault("sslrootcert", authorities)
    elif mode != "require" and version >= _REQUIRE_AUTH and "PGREQUIREAUTH" not in os.environ:
        found.setdefault("require_auth", "!password")
    return found


def trust_remedy(text: str) -> str | None:
    """Return a remedy if libpq's error means that the server cannot be trusted, so that a retry would not help."""
    words = ("SSL", "certificate", "authentication method requirement")
    return _REMEDY if any(word in text for word in words) and "no pg_hba.conf entry" not in text else None


def known(client: Any) -> set[str]:
    """Names of libpq's parameters."""
    return {option.keyword.decode() for option in client.pq.Conninfo.get_defaults()}


def _is_remote(given: Mapping[str, str]) -> bool:
    """Tell whether a server may be another machine; a server that a service file names may be."""
    hosts = given.get("host") or given.get("hostaddr") or os.environ.get("PGHOST") or os.environ.get("PGHOSTADDR") or ""
    if not hosts:
        return bool(given.get("service") or os.environ.get("PGSERVICE"))
    return not all(map(_is_here, hosts.split(",")))


def _is_here(host: str) -> bool:
    if host in ("", "localhost") or host.startswith(("/", "@")):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
