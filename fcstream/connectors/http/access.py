"""Who may send: anyone on this machine, elsewhere those with a token or a certificate."""

from __future__ import annotations

import hmac
import ipaddress
import re
import ssl

from ...errors import ConfigError
from ...runtime.http_hosts import ServedNames
from ...runtime.http_server import Message
from ..tls import CERT, KEY
from ..urls import Address, UrlOption
from .answers import RefusedRequest

TOKEN = UrlOption(
    "token",
    "Secret that senders give as `Authorization: Bearer TOKEN` (or `Token TOKEN`), of 16 characters at least; several "
    "are separated by blanks. Required, unless the host is this machine's own, or `ca` is given.",
    "",
)
SERVER_CERT = UrlOption(CERT.name, "File (PEM) of the certificate of `https://`.", otherwise="required by `https`")
CLIENT_CA = UrlOption("ca", "File (PEM) of the authorities whose certificates senders must have.", "")
ACCESS = (TOKEN, SERVER_CERT, KEY, CLIENT_CA)
_SHORTEST_TOKEN = 16


class Access:
    """What a sender must show.

    Parameters
    ----------
    address : Address
        `ACCESS` is taken from it.

    Attributes
    ----------
    tls : ssl.SSLContext or None

    Raises
    ------
    ConfigError
    """

    def __init__(self, address: Address) -> None:
        host = address.hosts[0][0]
        cert, key, ca, tokens = (address.take(option, "") for option in (SERVER_CERT, KEY, CLIENT_CA, TOKEN))
        self._tokens = [token.encode() for token in tokens.split()]
        if any(len(token) < _SHORTEST_TOKEN or not re.fullmatch(rb"[\x21-\x7e]+", token) for token in self._tokens):
            raise ConfigError(
                f"must have a `token` of at least {_SHORTEST_TOKEN} visible ASCII characters", address.key
            )
        self.tls = _context(address, cert, key, ca)
        if not (self._tokens or ca or is_loopback(host)):
            raise ConfigError(
                f"must have a `token`, or `ca` (certificates of senders), since others can reach {host}",
                address.key,
                remedy="add ?token=${file:PATH}, or listen at 127.0.0.1",
            )
        self.is_open = not (self._tokens or ca)
        self._names = ServedNames(host)
        self.is_plain = self.tls is None and not is_loopback(host)

    @property
    def words(self) -> str:
        """Say what senders must show."""
        if self.is_open:
            return "any program of this machine may send"
        certificate = "a certificate" if self.tls is not None and self.tls.verify_mode == ssl.CERT_REQUIRED else ""
        return f"senders need {' and '.join(filter(None, ['a token' if self._tokens else '', certificate]))}"

    def check(self, scope: Message, headers: dict[bytes, bytes]) -> None:
        """Raise `RefusedRequest` if a request's headers do not show what they must.

        A receiver that asks for nothing refuses pages in browsers, because any website could send from there, also by a
        name of its own that leads here.
        """
        if self.is_open:
            if not self._names.admit(scope):
                raise RefusedRequest("host")
            if b"origin" in headers:
                raise RefusedRequest("cross_site")
            return
        if self._tokens:
            scheme, _, given = headers.get(b"authorization", b"").strip().partition(b" ")
            found = [hmac.compare_digest(given.strip(), token) for token in self._tokens]
            if scheme.lower() not in (b"bearer", b"token") or not any(found):
                raise RefusedRequest("unauthorized")


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host's name or address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _context(address: Address, cert: str, key: str, ca: str) -> ssl.SSLContext | None:
    if address.scheme != "https":
        if cert or key or ca:
            raise ConfigError("must be https:// with `cert`, `key` and `ca`", address.key)
        return None
    if not cert:
        raise ConfigError("must name `cert` and `key` (files) for https://", address.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key or None)
        if ca:
            context.load_verify_locations(cafile=ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except OSError as error:
        raise ConfigError(
            f"names files `ca`, `cert` or `key` that cannot be used: {error.strerror or 'no certificates'}",
            address.key,
        ) from None
    return context
