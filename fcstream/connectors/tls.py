"""TLS settings of an address, and what to do when the other side's certificate is refused."""

from __future__ import annotations

import ssl

from ..errors import ConfigError
from .urls import Address, UrlOption

TRUST = "name the file of its authority as `ca`, or its host as the certificate does"
_DEPTH = 10  # largest depth of errors within errors
CA = UrlOption("ca", "File (PEM) of the authorities to trust.", otherwise="the system's")
CERT = UrlOption("cert", "File (PEM) of our own certificate, if the server asks for one.", "")
KEY = UrlOption("key", "File (PEM) of that certificate's key.", otherwise="in the certificate's file")
TLS = (CA, CERT, KEY)
_DEPTH = 10  # of errors within errors


def tls_context(address: Address) -> ssl.SSLContext:
    """Make a TLS context from the options ``ca``, ``cert`` and ``key``; the system's authorities are trusted without
    ``ca``.

    Raises
    ------
    ConfigError
    """
    ca, cert, key = (address.take(option, "") or None for option in TLS)
    try:
        context = ssl.create_default_context(cafile=ca)
        if cert:
            context.load_cert_chain(cert, key)
    except OSError as error:
        raise ConfigError(
            f"names files `ca`, `cert` or `key` that cannot be used: {error.strerror or 'no certificates'}",
            address.key,
        ) from None
    return context


def tls_failure(error: BaseException) -> str | None:
    """Describe why TLS failed, with a remedy, if certificates are the cause of an error; holds no secrets.

    Parameters
    ----------
    error : BaseException
        A client's error; errors that it holds, its cause and its context are searched too.
    """
    found: list[BaseException | None] = [error]
    for one in found:
        if isinstance(one, ssl.SSLCertVerificationError):
            return f"its certificate is refused ({one.verify_message.rstrip('.')}): {TRUST}"
        if isinstance(one, ssl.SSLError) and "CERTIFICATE_REQUIRED" in (one.reason or ""):
            return "it asks for a certificate of ours: name the files `cert` and `key`"
        if one is not None and len(found) < _DEPTH:
            found += [one.__cause__, one.__context__, *(arg for arg in one.args if isinstance(arg, BaseException))]
    return None
