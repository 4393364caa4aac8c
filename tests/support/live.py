"""A stream on a real broker."""

import json
import secrets
import threading
import time
from collections import Counter

from fcstream import Engine
from fcstream.config import Config
from fcstream.connectors import open_live
from fcstream.formats.payloads import decoder_for
from fcstream.service.context import SessionContext
from fcstream.service.supervisor import Supervisor
from fcstream.testing import ListSink
from support.helpers import sample
from support.memory_log import WINDOW


class Live:
    """A service on a real broker whose clock is this machine's; the reader's own may differ."""

    def __init__(self, folder, url, ahead_ms, lateness="2s", start_ms=None):
        self.start_ms = start_ms or time.time_ns() // 10**6 // 1000 * 1000
        start = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.start_ms // 1000))
        config = Config.from_mapping(
            sample(
                window={**WINDOW, "length": "1s", "slide": "1s", "lateness": lateness, "start": start, "end": None},
                release={"kind": "count", "method": None, "spread": None, "radius": None, "rho": 50.0, "delta": None},
                budget={"rho": 50.0},
                ledger={"url": f"sqlite:{folder / 'l.db'}"},
            )
        )
        self.sink, self.sent = ListSink(), Counter()
        self.service = Supervisor(
            lambda keys: Engine(config),
            url if callable(url) else lambda: open_live(url, f"test-{secrets.token_hex(6)}"),
            lambda: self.sink,
            SessionContext(decoder_for("json", config.job.schema), lambda: time.time_ns() // 10**6 + ahead_ms),
        )
        self._thread = threading.Thread(target=self.service.run, daemon=True)

    @property
    def thread(self):
        return self._thread.ident

    def begin(self):
        self._thread.start()

    def feed(self, put, seconds):
        """For so long, and two hundred messages for each second at least: on a machine with other work it is longer."""
        self.begin()
        until, number = time.monotonic() + seconds, 0
        while time.monotonic() < until or number < 200 * seconds:
            number += 1
            now = time.time_ns() // 10**6
            put(json.dumps({"ts_ms": now, "a": 20.0, "b": 50.0}).encode())
            self.sent[now // 1000 * 1000] += 1
            time.sleep(0.005)

    def end(self):
        self.service.stop()
        self._thread.join(120)
        assert not self._thread.is_alive()

    def check(self):
        found = {r.window_open_ms: round(r.count) for r in self.sink.releases}
        assert sum(found.values()) > 100
        for opened, count in found.items():
            assert abs(count - self.sent[opened]) <= 2, (opened, count, self.sent)
