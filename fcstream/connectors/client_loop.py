"""An event loop in a thread of its own, for asynchronous client libraries."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


class _Loop(asyncio.SelectorEventLoop):
    """Event loop that knows the transports of the connections that its client made."""

    def __init__(self) -> None:
        self.transports: list[Any] = []
        super().__init__()

    async def create_connection(self, *arguments: Any, **options: Any) -> Any:
        made = await super().create_connection(*arguments, **options)
        self.transports.append(made[0])
        return made

    async def start_tls(self, *arguments: Any, **options: Any) -> Any:
        encrypted = await super().start_tls(*arguments, **options)
        self.transports.append(encrypted)
        return encrypted


class ClientLoop:
    """Runs an asynchronous client, and closes the sockets that the client leaves open.

    Parameters
    ----------
    name : str
        Of the thread.
    """

    def __init__(self, name: str) -> None:
        self.loop = _Loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        return self.loop.is_closed()

    @property
    def is_encrypted(self) -> bool:
        """Return whether the newest connection is encrypted."""
        return bool(self.loop.transports) and self.loop.transports[-1].get_extra_info("ssl_object") is not None

    def take_transports(self) -> list[Any]:
        """Return the transports of the connections made since the last call, so that the caller can `abort` them."""
        taken, self.loop.transports = self.loop.transports, []
        return taken

    def run(self, work: Coroutine[Any, Any, T], seconds: float | None = None) -> T:
        """Run a coroutine in the loop, and wait at most so many seconds for its result."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result(seconds)
        except BaseException:  # a signal too: nothing waits for the result any more
            future.cancel()
            raise

    def close(self, farewell: Coroutine[Any, Any, None], seconds: float | None = None) -> None:
        """Run a last coroutine, cancel everything that is still running, and stop the loop; may be called again."""
        if self.is_closed:
            farewell.close()
            return
        with suppress(Exception):
            self.run(self._finish(farewell), seconds)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    async def _finish(self, farewell: Coroutine[Any, Any, None]) -> None:
        with suppress(Exception):
            await farewell
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        abort(self.take_transports())
        await asyncio.sleep(0)  # the sockets are closed by then


def abort(transports: list[Any]) -> None:
    """Close connections at once, and discard what they had still to write."""
    for transport in transports:
        transport.abort()
