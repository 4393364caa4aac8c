"""Releases that are posted to a web server: what counts as written, what is tried again, what is believed of it."""

import base64
import contextlib
import dataclasses
import email.utils
import hashlib
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import types

import pytest
from support.helpers import service
from support.hook import Hook
from support.sources import SECRET

from fcstream.connectors import open_sink
from fcstream.connectors.http.sink import WebhookSink
from fcstream.connectors.posting import Poster, _retry_after
from fcstream.connectors.retry import PendingMessages
from fcstream.connectors.urls import parse
from fcstream.errors import ConfigError, SinkError
from fcstream.releases.base import Release
from fcstream.testing import SinkContract, sample_release

ONE = sample_release(0)
OPEN = []


def reset(handler):
    """Break off without a farewell."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.close_connection = True
    handler.rfile.close()
    handler.connection.close()


def reset_in_status(handler):
    handler.wfile.write(b"HTTP/1.1 20")
    handler.wfile.flush()
    reset(handler)


def reset_in_body(handler):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nabc")
    handler.wfile.flush()
    time.sleep(0.1)
    reset(handler)


def silent(handler):
    handler.rfile.read(1)  # until the client leaves
    handler.close_connection = True


def endless(handler):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
    with contextlib.suppress(OSError):
        for _ in range(3000):
            handler.wfile.write(b"x" * 4096)
            time.sleep(0.02)
    handler.close_connection = True


def chunked(handler):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")


def garbage(handler):
    handler.wfile.write(f"{SECRET}\r\n\r\n".encode())
    handler.close_connection = True


def after(*interim, status):
    """Interim answers come before the one that counts."""

    def step(handler):
        for each in interim:
            handler.wfile.write(f"HTTP/1.1 {each} Interim\r\nLink: </x>\r\n\r\n".encode())
            time.sleep(0.05)
        handler.wfile.write(f"HTTP/1.1 {status} Final\r\nContent-Length: 0\r\n\r\n".encode())

    return step


def switching(handler):
    handler.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\n\r\n")


def negative_chunk(handler):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nabc\r\n0\r\n\r\n")


def chunk_without_end(handler):
    handler.close_connection = True
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n")
    with contextlib.suppress(OSError):
        for _ in range(400):
            handler.wfile.write(b"x" * 65536)
        handler.server.seen.add("all of it")


def two_lengths(handler):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 3\r\n\r\nabc")


def dripping(head, drop):
    """Never silent, and never done."""

    def step(handler):
        handler.close_connection = True
        with contextlib.suppress(OSError):
            handler.wfile.write(head)
            for _ in range(600):
                handler.wfile.write(drop)
                time.sleep(0.1)

    return step


@pytest.fixture
def hook():
    hook = Hook()
    yield hook
    while OPEN:
        OPEN.pop().close()
    hook.shutdown()
    hook.server_close()


def sink_of(url, patience_s=60.0):
    OPEN.append(WebhookSink(parse(url, "sink.url"), patience_s))
    return OPEN[-1]


class TestWebhookSink(SinkContract):
    @pytest.fixture(autouse=True)
    def _place(self, hook):
        self.hook = hook

    def make(self, tmp_path):
        return sink_of(self.hook.url)

    def read(self, tmp_path):
        return [Release.from_bytes(body) for _, _, body in self.hook.asked]


def test_a_request(hook, monkeypatch):
    monkeypatch.setenv("HOOK_TOKEN", "tökén")
    address = hook.url.replace("//", "//me:pass%20word@")
    query = "a=1&fcstream.timeout=3&a=%32+x&flag&empty=&token=${HOOK_TOKEN}&fcstream.header.X-Tenant=t%201&sig=%2B%2f"
    sink = open_sink(f"{address}/a%2Fb/c d?{query}")
    sink.write([dataclasses.replace(sample_release(i), stream="my/ström") for i in range(2)])
    assert [path for path, _, _ in hook.asked] == [
        "/a%2Fb/c%20d?a=1&a=%32+x&flag&empty=&token=t%C3%B6k%C3%A9n&sig=%2B%2f"
    ] * 2
    keys = [headers["Idempotency-Key"] for _, headers, _ in hook.asked]
    assert keys == ["my%2Fstr%C3%B6m/0/60000", "my%2Fstr%C3%B6m/60000/120000"]
    headers = hook.asked[0][1]
    assert headers["Authorization"] == f"Basic {base64.b64encode(b'me:pass word').decode()}"
    assert headers["Content-Type"] == "application/json"
    assert headers["X-Tenant"] == "t 1"
    assert hook.connections == 1  # used again
    assert sink.last() is None
    assert sink.missing([ONE]) == [ONE]
    sink.close()
    sink.close()


def test_a_batch_has_one_key_for_the_same_bytes(hook):
    sink = sink_of(f"{hook.url}?fcstream.batch=yes&fcstream.bearer=abc")
    sent = [sample_release(i) for i in range(3)]
    for releases in (sent, sent, sent[:1] + sent[2:], []):
        sink.write(releases)
    assert [body for _, _, body in hook.asked[1:]] == [
        b"[%s]" % b",".join(release.to_bytes() for release in group) for group in (sent, sent[:1] + sent[2:])
    ]
    keys = [headers["Idempotency-Key"] for _, headers, _ in hook.asked]
    assert keys[0] == f"sample/0/180000/{hashlib.sha256(hook.asked[0][2]).hexdigest()[:16]}"
    assert keys[0] == keys[1] != keys[2]
    assert hook.asked[0][0] == "/"
    assert hook.asked[0][1]["Authorization"] == "Bearer abc"
    sink.close()


@pytest.mark.parametrize(
    ("given", "called"),
    [
        ("", "/"),
        ("/", "/"),
        ("?a=b", "/?a=b"),
        ("/@me/x@y?to=a@b", "/@me/x@y?to=a@b"),
        ("/x//../y;z=1", "/x//../y;z=1"),
        ("/${HOOK}/x", "/a%20/b/x"),
    ],
)
def test_paths_stay_as_they_are(hook, monkeypatch, given, called):
    monkeypatch.setenv("HOOK", "a /b")
    sink_of(hook.url + given).write([ONE])
    assert hook.asked[0][0] == called


@pytest.mark.parametrize("status", [200, 201, 202, 204, 409])
def test_statuses_that_count_as_written(hook, status):
    hook.script = [status]
    sink = sink_of(hook.url)
    sink.write([ONE])
    assert len(hook.asked) == 1
    sink.close()


@pytest.mark.parametrize(
    "step",
    [408, 425, 429, 500, 502, 503, 504, reset, reset_in_status, garbage, (429, {"Retry-After": "soon"})],
    ids=lambda step: getattr(step, "__name__", str(step)),
)
def test_what_is_tried_again(hook, step):
    hook.script = [step, step]
    sink = sink_of(hook.url)
    sink.write([ONE])
    assert [body for _, _, body in hook.asked] == [ONE.to_bytes()] * 3
    assert len({headers["Idempotency-Key"] for _, headers, _ in hook.asked}) == 1
    sink.close()


@pytest.mark.parametrize("status", [301, 302, 307, 304, 400, 401, 403, 404, 405, 410, 413, 422])
def test_what_is_refused_at_once(hook, status):
    hook.script = [(status, {"Location": f"http://elsewhere/{SECRET}"})]
    sink = sink_of(f"{hook.url}/{SECRET}?{SECRET}={SECRET}", 30.0)
    with pytest.raises(
        SinkError, match=rf"{hook.url} refuses a release with status {status}: correct `sink.url`"
    ) as caught:
        sink.write([ONE, sample_release(1)])
    assert SECRET not in str(caught.value)
    assert len(hook.asked) == 1
    sink.write([ONE])  # the next one is tried
    assert len(hook.asked) == 2
    sink.close()


class Clock:
    """A clock that only pauses move on."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def pause(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    """The one that webhooks go by."""
    clock, module = Clock(), sys.modules[Poster.__module__]
    monkeypatch.setattr(module, "time", types.SimpleNamespace(monotonic=clock.monotonic, time=time.time))
    monkeypatch.setattr(module.waiting, "pause", clock.pause)
    return clock


def test_a_server_says_when_to_come_again(hook, clock):
    for wait, least in (("1", 1.0), ("", 50.0)):
        wait = wait or email.utils.formatdate(time.time() + 100, usegmt=True)
        hook.script = [(503, {"Retry-After": wait})]
        began = clock.now
        sink_of(hook.url, 200.0).write([ONE])
        assert least <= clock.now - began <= 101.0
    hook.script = [(503, {"Retry-After": "3600"})]  # longer than our patience: no use in waiting
    began = clock.now
    with pytest.raises(SinkError, match="did not take a release within 2 s: status 503"):
        sink_of(hook.url, 2.0).write([ONE])
    assert clock.now == began


def test_dates_and_nonsense_of_servers():
    assert _retry_after("12") == 12.0
    assert _retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
    for text in ("", "-3", "1e9", "9" * 30, "tomorrow", "Wed, 99 Oct 99999 07:28:00 GMT"):
        assert _retry_after(text) == 0.0


def test_patience_ends(hook, clock):
    hook.script = [500] * 1000
    with pytest.raises(SinkError, match=r"did not take a release within 0.5 s: status 500; check the server") as caught:
        sink_of(f"{hook.url}/{SECRET}?fcstream.patience=0.5", 60.0).write([ONE])
    assert clock.now <= 0.5
    assert 2 <= len(hook.asked) < 20
    assert SECRET not in str(caught.value)
    with pytest.raises(SinkError, match=r"within 0.2 s: Connection refused"):
        sink_of("http://127.0.0.1:1", 0.2).write([ONE])
    with pytest.raises(SinkError, match=r"within 0.2 s: "):
        sink_of("http://no-such-host.invalid", 0.2).write([ONE])
    hook.script = [garbage] * 1000
    with pytest.raises(SinkError, match=r"within 0.2 s: BadStatusLine") as caught:
        sink_of(hook.url, 0.2).write([ONE])
    assert SECRET not in str(caught.value)


def test_a_status_counts_whatever_becomes_of_the_body(hook):
    hook.script = [reset_in_body, endless, chunked]
    sink = sink_of(f"{hook.url}?fcstream.timeout=2")
    began = time.monotonic()
    sink.write([sample_release(i) for i in range(4)])
    assert time.monotonic() - began < 30.0
    assert len(hook.asked) == 4
    assert hook.connections == 4
    sink.close()


def test_interim_answers_are_not_the_answer(hook):
    hook.script = [after(103, status=500), after(102, 103, 100, 103, status=503), after(103, status=201)]
    sink = sink_of(hook.url)
    sink.write([ONE])
    assert len(hook.asked) == 3
    assert hook.connections == 1
    hook.script = [switching, after(*[103] * 5, status=500), 200, after(103, status=422)]
    sink.write([sample_release(1)])
    assert len(hook.asked) == 6
    with pytest.raises(SinkError, match="refuses a release with status 422"):
        sink.write([ONE])


def test_interim_answers_have_an_end(hook):
    hook.script = [dripping(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 20)]
    began = time.monotonic()
    sink_of(f"{hook.url}?fcstream.timeout=60").write([ONE])
    assert time.monotonic() - began < 30.0
    assert len(hook.asked) == 2


def test_chunks_are_not_believed(hook):
    hook.script = [negative_chunk, chunk_without_end, two_lengths]
    sink_of(hook.url).write([sample_release(i) for i in range(4)])
    assert [body for _, _, body in hook.asked] == [sample_release(i).to_bytes() for i in range(4)]
    assert hook.connections == 4
    time.sleep(0.2)
    assert hook.seen == set()


@pytest.mark.parametrize(
    ("head", "drop", "asked"),
    [
        (b"HTTP/1.1 200 OK\r\nX: ", b"x", 2),
        (b"HTTP/1.1 ", b" ", 2),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n", 2),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n", b"x", 1),  # the status has come
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n", 1),
    ],
    ids=["head", "status", "continue", "body", "chunks"],
)
def test_a_server_that_drips_is_left(hook, head, drop, asked):
    hook.script = [dripping(head, drop)]
    sink = sink_of(f"{hook.url}?fcstream.timeout=1.5")
    threads = threading.active_count()
    began = time.monotonic()
    sink.write([ONE])
    assert time.monotonic() - began < 30.0
    assert len(hook.asked) == asked
    sink.write([sample_release(1)])
    assert hook.asked[-1][2] == sample_release(1).to_bytes()
    assert hook.connections == 2
    sink.close()
    assert threading.active_count() <= threads + 2  # the server's


def test_a_head_without_its_end_is_no_answer(hook):
    hook.script = [dripping(b"HTTP/1.1 200 OK\r\nX: ", b"x")] * 5
    with pytest.raises(SinkError, match=r"within 0.2 s: no answer in time"):
        sink_of(f"{hook.url}?fcstream.timeout=0.3", 0.2).write([ONE])


def test_patience_is_for_a_write_and_a_stuck_one_goes_on_where_it_was(hook, clock):
    """Each release alone would be taken in time, and a group from its beginning never."""
    hook.script = [500, 500, 500, 500, 200] * 3  # pauses of 0.375 to 0.75 s for each
    sink = sink_of(hook.url, 1.0)
    sent = [sample_release(i) for i in range(3)]
    with pytest.raises(SinkError, match="did not take a release within 1 s: status 500"):
        sink.write(sent)
    assert 5 <= len(hook.asked) < 15
    for _ in range(3):
        with contextlib.suppress(SinkError):
            sink.write(sent)
            break
    assert [body for _, _, body in hook.asked] == [release.to_bytes() for release in sent for _ in range(5)]
    assert hook.script == []
    sink.write(sent)  # wanted again
    assert len(hook.asked) == 18


def test_a_refused_release_does_not_repeat_the_others(hook):
    hook.script = [200, 403, 403]
    sink = sink_of(hook.url)
    sent = [sample_release(i) for i in range(3)]
    for _ in range(2):
        with pytest.raises(SinkError, match="refuses a release with status 403"):
            sink.write(sent)
    sink.write(sent)
    assert [body for _, _, body in hook.asked] == [sent[i].to_bytes() for i in (0, 1, 1, 1, 2)]


def test_a_server_is_left_alone_for_as_long_as_it_says(hook, clock):
    hook.script = [(503, {"Retry-After": "1"})]
    sink = sink_of(hook.url, 0.6)
    for why in ("status 503, which asks for a pause of 1 s", "the pause that the server asked for is not over"):
        with pytest.raises(SinkError, match=f"did not take a release within 0.6 s: {why}; check the server"):
            sink.write([ONE])
    assert len(hook.asked) == 1
    assert clock.now == 0.0
    clock.now = 0.6
    sink.write([ONE])
    assert clock.now == pytest.approx(1.0)
    assert len(hook.asked) == 2


def test_a_pause_has_an_end(hook):
    hook.script = [(503, {"Retry-After": "999999999"})]
    with pytest.raises(SinkError, match="asks for a pause of 3600 s"):
        sink_of(hook.url, 0.5).write([ONE])


def test_a_silent_server_is_left(hook):
    hook.script = [silent]
    sink = sink_of(f"{hook.url}?fcstream.timeout=1.5")
    began = time.monotonic()
    sink.write([ONE])
    assert 1.5 <= time.monotonic() - began < 30.0
    assert hook.connections == 2
    sink.close()


def test_a_connection_that_went_stale(hook):
    sink = sink_of(hook.url)
    hook.script = [(200, {"Connection": "close"}), lambda handler: reset(handler)]
    sink.write([sample_release(i) for i in range(3)])
    assert [body for _, _, body in hook.asked] == [sample_release(i).to_bytes() for i in (0, 1, 1, 2)]
    sink.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Files of a self-signed certificate for 127.0.0.1 and its key."""
    folder = tmp_path_factory.mktemp("tls")
    files = folder / "certificate.pem", folder / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test"
    extra = ["-addext", "subjectAltName=IP:127.0.0.1", "-out", files[0], "-keyout", files[1]]
    service("openssl", lambda: subprocess.run([*command.split(), *extra], check=True, capture_output=True))
    return files


def test_certificates(hook, certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    hook.socket = context.wrap_socket(hook.socket, server_side=True)
    url = hook.url.replace("http:", "https:")
    began = time.monotonic()
    with pytest.raises(SinkError, match=r"must have a certificate that is trusted: self.signed") as caught:
        sink_of(f"{url}/{SECRET}", 120.0).write([ONE])
    assert SECRET not in str(caught.value)
    assert time.monotonic() - began < 60.0
    assert hook.asked == []
    sink = sink_of(f"{url}?fcstream.ca={certificate[0]}")
    sink.write([ONE])
    assert hook.asked[0][0] == "/"
    sink.close()
    with pytest.raises(SinkError, match=r"must have a certificate that is trusted: .*not valid for"):
        sink_of(f"{url.replace('127.0.0.1', 'localhost')}?fcstream.ca={certificate[0]}").write([ONE])


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("?fcstream.batch=maybe", "'yes' or 'no' as `fcstream.batch`, got 'maybe'"),
        ("?fcstream.colour=red", "unknown option 'fcstream.colour'"),
        ("?fcstream.timeout=0", "positive number as `fcstream.timeout`"),
        ("?fcstream.ca=/no/such/file", "must have a file of certificates as `fcstream.ca`"),
        ("?fcstream.ca=/dev/null", "must have a file of certificates as `fcstream.ca`"),
        ("?fcstream.header.X%20Y=1", "visible ASCII as a header's name and value"),
        ("?fcstream.header.X=a%0D%0AY:b", "visible ASCII as a header's name and value"),
        ("?fcstream.header.content-LENGTH=3", "unknown option"),
        (f"?fcstream.bearer={SECRET}%0A", "visible ASCII as `fcstream.bearer`"),
        (f",other/{SECRET}", "must name one host"),
    ],
)
def test_hooks_that_cannot_be_used(rest, message):
    with pytest.raises(ConfigError, match=message) as caught:
        open_sink(f"https://host{rest}")
    assert SECRET not in str(caught.value)


def test_a_group_that_got_stuck_goes_on_where_it_was():
    remainder = PendingMessages()
    waiting = remainder.of([b"1", b"2", b"3"])
    waiting.popleft()
    assert list(remainder.of((b"1", b"2", b"3"))) == [b"2", b"3"]
    assert list(remainder.of([b"4"])) == [b"4"]  # another group
    assert list(remainder.of([b"1", b"2", b"3"])) == [b"1", b"2", b"3"]
    remainder.of([b"1", b"2", b"3"]).clear()
    assert list(remainder.of([b"1", b"2", b"3"])) == [b"1", b"2", b"3"]  # all of it was sent: somebody wants it again
