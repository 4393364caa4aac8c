"""A TCP proxy that loses connections or data as a network does, when a test wants it."""

import contextlib
import itertools
import socket
import threading
import time


class Proxy:
    """Passes bytes on to a port of this machine.

    Attributes
    ----------
    is_silent : bool
        Nothing is passed on either way and nothing is closed: what a cut cable looks like to both ends. What was held
        back is passed on afterwards.
    swallows : bool
        What clients send is lost.
    cuts : int
        Connections that were cut.
    """

    def __init__(self, port, context=None, door=0):
        """`context` speaks TLS to clients; `door` is the port to listen at, one that is free by default."""
        self.is_silent = self.swallows = self._is_closed = False
        self.cuts = 0
        self._target, self._context = port, context
        self._pairs, self._lock, self._counts = [], threading.Lock(), []
        self._door = socket.create_server(("127.0.0.1", door), backlog=64)
        self.port = self._door.getsockname()[1]
        self.host = f"127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def cut(self):
        """End every connection."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
            self.cuts += len(pairs)
        for end in itertools.chain(*pairs):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def cut_after(self, *counts):
        """Cut after so many more bytes of both directions, then again after so many, and so on; replaces what was told
        before and was not reached."""
        with self._lock:
            self._counts = list(counts)

    def close(self):
        """Take no connection any more and end those that there are: what a server that was stopped looks like."""
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        self.cut()

    def changed(self, data):
        """What is passed on in place of these bytes."""
        return data

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._join, args=(self._door.accept()[0],), daemon=True).start()

    def _join(self, client):
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            stack.callback(client.close)
            if self._context is not None:
                client = stack.enter_context(self._context.wrap_socket(client, server_side=True))
            server = stack.enter_context(socket.create_connection(("127.0.0.1", self._target)))
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._pairs.append((client, server))
            if self._is_closed:
                return
            back = threading.Thread(target=self._pass, args=(server, client, False), daemon=True)
            back.start()
            self._pass(client, server, True)
            back.join()

    def _pass(self, one, other, is_from_client):
        with contextlib.suppress(OSError):
            data = b"..."
            while data:
                data = one.recv(1 << 16)
                while self.is_silent and not self._is_closed:
                    time.sleep(0.02)
                if not (is_from_client and self.swallows):
                    room = self._room(len(data))
                    other.sendall(self.changed(data[:room]))
                    if room < len(data):
                        self.cut()
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _room(self, wanted):
        """How many of these bytes may pass before the next cut."""
        with self._lock:
            if not self._counts or wanted <= self._counts[0]:
                self._counts[:1] = [count - wanted for count in self._counts[:1]]
                return wanted
            return self._counts.pop(0)
