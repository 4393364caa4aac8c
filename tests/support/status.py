"""A stream with counters to show, and a client that asks for a page."""

import urllib.error
import urllib.request

from fcstream.config import Config, ServiceSection
from fcstream.service.context import SessionContext
from fcstream.service.metrics import StreamStatus
from fcstream.service.supervisor import Supervisor
from support.helpers import sample

SENTINEL = "c0nt3nt-of-a-record"
URL = "redis://127.0.0.1:6379/0?stream=k&patience=2"
LIVE = {"url": URL, "name": "n"}


def watched(stream="s", **section):
    service = Supervisor(*[lambda: None] * 3, SessionContext(decoder=None, clock=lambda: 0))
    service.counters.messages, service.counters.records = 71717, 72727
    service.counters.rejected = {"late": 73737}
    service.counters.answers = {(None, None): 3, (None, "too_few"): 2}
    return StreamStatus(stream, service, ServiceSection(**section))


def ask(port, path, host="127.0.0.1", accept=""):
    request = urllib.request.Request(f"http://{host}:{port}{path}", headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def live(**changes):
    mapping = sample(**changes)
    mapping["source"] = {**LIVE, **changes.get("source", {})}
    mapping["window"]["clock"] = "broker"
    mapping.setdefault("sink", {"url": "jsonl:x"})
    return Config.from_mapping(mapping)
