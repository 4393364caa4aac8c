"""A stream with counters to show, and a client that asks for a page."""

import urllib.error
import urllib.request

from fcstream.config import ServiceSection
from fcstream.service.context import SessionContext
from fcstream.service.metrics import StreamStatus
from fcstream.service.supervisor import Supervisor


def watched(stream="s", **section):
    service = Supervisor(*[lambda: None] * 3, SessionContext(decoder=None, clock=lambda: 0))
    service.counters.messages, service.counters.records, service.counters.released = 71717, 72727, 3
    service.counters.rejected = {"late": 73737}
    service.counters.refused = {"too_few": 2}
    return StreamStatus(stream, service, ServiceSection(**section))


def ask(port, path, host="127.0.0.1", accept=""):
    request = urllib.request.Request(f"http://{host}:{port}{path}", headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
