"""Names by which a server may be asked for.

A page of another site can give its own name the address of this machine, and its browser then takes this server for
that site and shows the page what it answers. So a request must name an address, this machine, or a listed name.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Sequence

from .http_server import Message, Screen

MISDIRECTED = 421
_PORT = re.compile(r":\d*\Z")


class ServedNames:
    """The names of a server: addresses, this machine's own, where it listens, and those that are listed.

    Parameters
    ----------
    bound : str
        Host at which it listens.
    listed : sequence of str
    """

    def __init__(self, bound: str, listed: Sequence[str] = ()) -> None:
        self._names = {name.lower().rstrip(".") for name in ("localhost", socket.gethostname(), bound, *listed)}

    def admit(self, scope: Message) -> bool:
        """Return whether a request asks for one of them; one without a name (HTTP/1.0) comes from no browser."""
        return all(self._is_served(value.decode("latin-1")) for name, value in scope["headers"] if name == b"host")

    def _is_served(self, host: str) -> bool:
        name = _PORT.sub("", host.strip().lower()).rstrip(".")
        if name in self._names or name.endswith(".localhost"):
            return True
        try:
            ipaddress.ip_address(name[1:-1] if name[:1] == "[" else name)
        except ValueError:
            return False
        return True


class NamesOnly(Screen):
    """Answers 421 to a request that asks for another name.

    Parameters
    ----------
    names : ServedNames
    setting : str
        The setting that lists names.
    """

    def __init__(self, names: ServedNames, setting: str) -> None:
        self._names, self._setting = names, setting

    def refuse(self, scope: Message) -> int:
        return 0 if self._names.admit(scope) else MISDIRECTED

    def answer(self, scope: Message, status: int) -> tuple[bytes, list[tuple[bytes, bytes]]]:
        text, headers = super().answer(scope, status)
        if status == MISDIRECTED:
            text = f"this server has no such name: use its address, or list the name in {self._setting}\n".encode()
        return text, headers
