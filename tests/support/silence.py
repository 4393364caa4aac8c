"""A TCP proxy that can stop forwarding without closing anything: what a cut cable looks like to both ends."""

import select
import socket
import threading


class Proxy:
    """Forwards to a port of this machine while ``is_silent`` is false; connections stay open all the time."""

    def __init__(self, port):
        self._target = port
        self.is_silent = False
        self._door = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._door.getsockname()[1]
        self._over = threading.Event()
        self._sockets = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._over.set()
        for each in [self._door, *self._sockets]:
            each.close()

    def refuse(self):
        """No connection is taken any more, and those that there are end: what a server that was stopped looks like."""
        self._over.set()
        self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        self.drop()

    def drop(self):
        """End every connection."""
        sockets, self._sockets = self._sockets, []
        for each in sockets:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def _accept(self):
        while not self._over.is_set():
            try:
                client, _ = self._door.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                continue
            self._sockets += [client, server]
            threading.Thread(target=self._forward, args=(client, server), daemon=True).start()

    def _forward(self, one, two):
        other = {one: two, two: one}
        try:
            while not self._over.is_set():
                if self.is_silent:
                    self._over.wait(0.02)
                    continue
                for ready in select.select([one, two], [], [], 0.02)[0]:
                    data = ready.recv(1 << 16)
                    if not data:
                        return
                    while self.is_silent and not self._over.wait(0.02):
                        pass
                    other[ready].sendall(data)
        except (OSError, ValueError):
            pass
        finally:
            one.close()
            two.close()
