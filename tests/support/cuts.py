"""A TCP proxy that cuts connections after so many bytes: at the same places on a slow machine as on a fast one."""

import contextlib
import itertools
import socket
import threading


class Proxy:
    """Passes bytes on to a port of this machine, and cuts all connections when it is told, or at a byte it is told."""

    def __init__(self, port):
        self._target = ("127.0.0.1", port)
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = self._door.getsockname()[1]
        self.host = f"127.0.0.1:{self.port}"
        self._pairs, self.cuts = [], 0
        self._lock, self._counts = threading.Lock(), []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_after(self, *counts):
        """Cut after so many more bytes of both directions, then again after so many, and so on; replaces what was told
        before and was not reached."""
        with self._lock:
            self._counts = list(counts)

    def cut(self):
        pairs, self._pairs = self._pairs, []
        self.cuts += len(pairs)
        for end in itertools.chain(*pairs):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self):
        with contextlib.suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        self.cut()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                pair = (self._door.accept()[0], socket.create_connection(self._target))
                for end in pair:
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._pairs.append(pair)
                for one, other in (pair, pair[::-1]):
                    threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one, other):
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 14):
                room = self._room(len(data))
                other.sendall(data[:room])
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
