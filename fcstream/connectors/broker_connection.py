"""What connections to brokers share: where they lead, how long they are tried again, and what is said in the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..errors import FcstreamError
from .retry import with_patience
from .urls import PATIENCE, Address

T = TypeVar("T")


class BrokerConnection:
    """A connection that is made again after it was lost, and whose errors tell no secrets."""

    trouble = "cannot be used"
    remedy = "start the broker"

    def __init__(self, address: Address, patience_s: float, error: type[FcstreamError]) -> None:
        self.location, self._key, self._error = address.masked, address.key, error
        self.patience_s = address.take_number(PATIENCE, patience_s)

    def reconnect(self) -> None:
        """Connect again; nothing where each action connects if it must. May raise `BrokerLost`."""

    def repeat(self, action: Callable[[], T], patience_s: float | None = None) -> T:
        """Do something that is safe to repeat when it raises `BrokerLost`: for so long, or as the address says."""
        patience_s = self.patience_s if patience_s is None else patience_s
        return with_patience(action, self.reconnect, patience_s, self.unreachable)

    def unreachable(self, last: BaseException) -> FcstreamError:
        """The error after the last try."""
        return self._error(f"{self.location} {self.trouble}: {last}", remedy=f"{self.remedy}, or correct the address")

    def refused(self, why: str) -> FcstreamError:
        """The error for what the server will not do, however often it is asked."""
        return self._error(f"{self.location} refuses: {why}", remedy="correct the address, or the server's rules")
