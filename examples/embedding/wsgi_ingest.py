"""A plain WSGI application: POST readings, GET releases. Any WSGI server with threads in ONE process can run it.

    python examples/embedding/wsgi_ingest.py [PORT]
    curl -d '{"ts_ms": 1767225600000, "temp_c": 21.3}' http://127.0.0.1:8080/readings
    curl http://127.0.0.1:8080/releases

Make the engine after the server has forked. Several worker processes would each see a part of every window: let them
write into a broker instead, and let ``fcstream run`` read it.

A crash forgets the readings of open windows: who posts keeps them until their window is out, or posts into a broker. To
make a repeated POST harmless, readings may carry a number (``seq``) that is theirs for ever: it counts once.
"""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterable
from wsgiref.simple_server import make_server

from fcstream import Config, Engine, FcstreamError, Release

CONFIG = {
    "stream": {"name": "ingest"},
    "lattice": {"step": 0.001},
    "features": [{"name": "temp_c", "min": -40.0, "max": 85.0, "origin": 20.0}],
    "window": {"length": "1s", "lateness": "200ms", "clock": "broker", "start": "now"},
    "release": {"kind": "count", "rho": 1.0},
    "budget": {"rho": 1.0, "delta": 0.0},
    "ledger": {"url": "memory:"},  # "sqlite:ingest.db" for anything real
}
LARGEST_BODY = 1 << 20


class Ingest:
    """The application, and the timer that closes its windows."""

    def __init__(self, config: dict) -> None:
        self.engine = Engine(Config.from_mapping(config))
        self.releases: list[bytes] = []
        self._stop = threading.Event()
        self._timer = threading.Thread(target=self._tick, daemon=True)
        self._timer.start()

    def __call__(self, environ: dict, start_response: Callable) -> Iterable[bytes]:
        where = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if where == ("POST", "/readings"):
            status, body = self.take(environ)
        elif where == ("GET", "/releases"):
            status, body = "200 OK", b"".join(line + b"\n" for line in self.releases)
        else:
            status, body = "404 Not Found", b""
        start_response(status, [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
        return [body]

    def take(self, environ: dict) -> tuple[str, bytes]:
        """Lines of JSON; all of them are read before any is pushed."""
        length = int(environ.get("CONTENT_LENGTH") or 0)
        if length > LARGEST_BODY:
            return "413 Content Too Large", b""
        arrival = int(time.time() * 1000)
        try:
            readings = [json.loads(line) for line in environ["wsgi.input"].read(length).splitlines()]
            columns = [[reading[name] for reading in readings] for name in ("ts_ms", "temp_c")]
        except (ValueError, KeyError, TypeError):
            return "400 Bad Request", b""
        numbers = [reading.get("seq") for reading in readings]
        positions = numbers if readings and None not in numbers else None
        try:
            values = [[value] for value in columns[1]]
            self._publish(self.engine.push(columns[0], values, arrival_ms=arrival, positions=positions))
        except FcstreamError:
            return "503 Service Unavailable", b""  # the ledger cannot be written, or the engine is closed
        return "202 Accepted", b""

    def close(self) -> None:
        self._stop.set()
        self._timer.join()
        self.engine.acknowledge()
        self.engine.abort()

    def _tick(self) -> None:
        while not self._stop.wait(0.1):
            self._publish(self.engine.advance(int(time.time() * 1000)))

    def _publish(self, releases: list[Release]) -> None:
        self.releases += [release.to_bytes() for release in releases]
        del self.releases[:-1000]


if __name__ == "__main__":
    app = Ingest(CONFIG)
    with make_server("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8080, app) as server:
        print("listening on port", server.server_port, flush=True)
        try:
            server.serve_forever()
        finally:
            app.close()
