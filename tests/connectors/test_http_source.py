"""The receiver over HTTP, with real sockets: what is stored before an answer, and what is refused."""

import contextlib
import gzip
import json
import os
import shutil
import ssl
import subprocess
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

import msgspec
import numpy as np
import pytest
from support.certificates import certificates
from support.helpers import free_port
from support.http_in import (
    JSON,
    LINES,
    MIB,
    RECORD,
    bodies,
    connect,
    post,
    pushed,
    receiver,
    request,
    serving,
    status,
    stored,
)

from fcstream.connectors import is_live, is_queue
from fcstream.connectors.http import source as module
from fcstream.connectors.pushed import SharedSpool
from fcstream.connectors.urls import mask
from fcstream.errors import ConfigError, SourceError
from fcstream.formats.batch import Schema
from fcstream.formats.envelopes import EnvelopeField
from fcstream.formats.payloads import read_messages
from fcstream.testing import SourceContract

TOKEN = "a-token-of-many-characters"


def wait_for(done, seconds=60):
    until = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < until
        time.sleep(0.02)


class TestHttpReceiver(SourceContract):
    @pytest.fixture(autouse=True)
    def place(self):
        self.port = free_port()

    def make(self, tmp_path):
        return pushed(tmp_path, f"http://127.0.0.1:{self.port}", bodies("floats"))

    def send(self, tmp_path, bodies):
        for body in bodies:
            code, _, _ = post(self.port, body, {"Content-Type": "application/octet-stream"})
            assert code == 204

    def drain(self, source, wanted, seconds=60.0):
        rows = super().drain(source, wanted, seconds)
        assert all(body[:1] == b"F" for *_, body in rows)
        return [(*row, body[1:]) for *row, body in rows]


def test_a_url_of_a_source_is_a_queue_that_needs_a_spool():
    assert is_live("http://127.0.0.1:4318")
    assert is_queue("https://[::1]:4318")


def test_an_answer_comes_after_the_fsync(tmp_path, monkeypatch):
    synced, answered = [], []
    fsync = os.fsync

    def slow(file):
        time.sleep(0.3)
        fsync(file)
        synced.append(time.monotonic())

    with serving(tmp_path) as source:
        monkeypatch.setattr(os, "fsync", slow)
        code, _, _ = post(source.port, RECORD)
        answered.append(time.monotonic())
        assert code == 204
        assert synced[-1] <= answered[0]
        assert stored(source) == [b"J" + RECORD]
        monkeypatch.undo()


def test_requests_that_wait_together_share_one_fsync(tmp_path, monkeypatch):
    calls = []
    append = SharedSpool.append

    def counted(self, bodies, *rest):
        if bodies:
            calls.append(len(bodies))
            time.sleep(0.2)
        return append(self, bodies, *rest)

    monkeypatch.setattr(SharedSpool, "append", counted)
    with serving(tmp_path) as source, ThreadPoolExecutor(16) as pool:
        codes = list(pool.map(lambda i: post(source.port, b'{"t": %d, "a": 1}' % i)[0], range(64)))
        assert codes == [204] * 64
        assert len(stored(source)) == 64
    assert sum(calls) == 64
    assert len(calls) <= 32


def test_senders_are_answered_while_nobody_polls(tmp_path):
    """As while a window is closed."""
    with serving(tmp_path) as source:
        for _ in range(5):
            assert post(source.port, RECORD)[0] == 204
        assert len(stored(source)) == 5


def test_nothing_is_answered_before_the_start():
    made = receiver("http://127.0.0.1:0")
    with contextlib.closing(made), connect(made.port) as connection:
        connection.sendall(request(RECORD))
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(1)


def test_each_content_type_has_its_format(tmp_path):
    import pyarrow as pa

    table = pa.table({"t": pa.array([1, 2], pa.int64()), "a": [1.0, 2.0]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    one = {"t": 1, "a": 2.5}
    sent = [
        (RECORD, "application/json", 1),
        (b"\n" + json.dumps([one, one, {"t": 1}]).encode(), "application/json; charset=utf-8", 2),
        (RECORD + b"\n\nno json\r\n" + RECORD, "application/x-ndjson", 2),
        (msgspec.msgpack.encode(one), "application/msgpack", 1),
        (msgspec.msgpack.encode([one] * 20), "application/x-msgpack", 20),
        (sink.getvalue().to_pybytes(), "application/vnd.apache.arrow.stream", 2),
    ]
    kinds = bodies()
    with serving(tmp_path, kinds=kinds) as source:
        for body, media, _ in sent:
            assert post(source.port, body, {"Content-Type": media})[0] == 204, media
        found = stored(source)
    batch = kinds.decode(found, 100)
    counts = np.bincount(batch.positions - 100, minlength=len(sent))
    assert counts.tolist() == [count for _, _, count in sent]
    assert [(each.reason, each.position - 100, each.field) for each in batch.rejections] == [
        ("missing", 1, "a"),
        ("broken_record", 2, None),
    ]
    assert set(batch.values[:, 0].tolist()) == {1.0, 2.0, 2.5}


def test_a_format_of_its_own_is_taken_alone(tmp_path):
    with serving(tmp_path, kinds=bodies("floats")) as source:
        assert post(source.port, RECORD)[0] == 415
        assert post(source.port, bytes(16), {"Content-Type": "application/octet-stream"})[0] == 204
    with serving(tmp_path) as source:
        code, _, text = post(source.port, bytes(16), {"Content-Type": "application/octet-stream"})
        assert code == 415
        assert b"application/json" in text


@pytest.mark.parametrize(
    ("body", "headers", "path", "method", "code", "reason"),
    [
        (b"{", JSON, "/ingest", "POST", 400, "broken"),
        (RECORD + b"\n" + RECORD, JSON, "/ingest", "POST", 400, "broken"),
        (b"[" * 100_000, JSON, "/ingest", "POST", 400, "broken"),
        (b"", LINES, "/ingest", "POST", 400, "broken"),
        (b"\xc1", {"Content-Type": "application/msgpack"}, "/ingest", "POST", 400, "broken"),
        (b"ARROW1", {"Content-Type": "application/vnd.apache.arrow.stream"}, "/ingest", "POST", 400, "broken"),
        (RECORD, JSON | {"Content-Encoding": "gzip"}, "/ingest", "POST", 400, "broken"),
        (gzip.compress(RECORD)[:-9], JSON | {"Content-Encoding": "gzip"}, "/ingest", "POST", 400, "broken"),
        (gzip.compress(RECORD) + b"?", JSON | {"Content-Encoding": "gzip"}, "/ingest", "POST", 400, "broken"),
        (RECORD, JSON | {"Idempotency-Key": "k" * 300}, "/ingest", "POST", 400, "broken"),
        (RECORD, JSON | {"Content-Encoding": "br"}, "/ingest", "POST", 415, "encoding"),
        (RECORD, {"Content-Type": "text/plain"}, "/ingest", "POST", 415, "type"),
        (RECORD, {}, "/ingest", "POST", 415, "type"),
        (RECORD, JSON, "/", "POST", 404, "not_found"),
        (RECORD, JSON, "/v1/traces", "POST", 404, "not_found"),
        (RECORD, JSON, "/ingest", "PUT", 405, "method"),
        (RECORD, JSON | {"Origin": "https://elsewhere.example"}, "/ingest", "POST", 403, "cross_site"),
    ],
    ids=map(str, range(17)),
)
def test_what_is_refused_says_why_and_is_counted(tmp_path, body, headers, path, method, code, reason):
    with serving(tmp_path) as source:
        found, _, text = post(source.port, body, headers, path, method)
        assert found == code
        assert json.loads(text).keys() == {"code", "message"}
        assert source.queue.refused == {reason: 1}
        assert stored(source) == []
        assert post(source.port, RECORD)[0] == 204


def test_who_only_looks_is_not_counted(tmp_path):
    with serving(tmp_path) as source:
        for method in ("GET", "HEAD", "OPTIONS"):
            code, headers, _ = post(source.port, None, {}, "/", method)
            assert code == 405
            assert headers["Allow"] == "POST"
        assert source.queue.refused == {}


def test_headers_are_fields_of_every_record_of_a_body(tmp_path):
    room = EnvelopeField("header", header="X-Room")
    schema = Schema("t", "ms", ("a",), key="room", paths={"room": room})
    kinds = bodies(schema=schema)
    keyed = LINES | {"Idempotency-Key": "one"}
    with serving(tmp_path, kinds=kinds, asked=schema.asked) as source:
        assert post(source.port, RECORD + b"\n" + RECORD, keyed | {"x-room": "blue"})[0] == 204
        assert post(source.port, RECORD + b"\n" + RECORD, keyed | {"x-room": "blue"})[0] == 204
        assert post(source.port, RECORD + b"\n" + RECORD, keyed | {"X-Room": "red"})[0] == 204
        assert post(source.port, json.dumps([{"t": 1, "a": 1}]))[0] == 204
        (chunk,) = source.poll(10, 0.0)
    batch, _, messages = read_messages(kinds, chunk.offsets, chunk.timestamps_ms, chunk.bodies, chunk.envelopes)
    assert batch.keys.tolist() == ["blue", "blue", "red", "red"]
    assert messages.tolist() == [0, 0, 1, 1]
    assert [(each.reason, each.position) for each in batch.rejections] == [("missing", 2)]


def test_compressed_bodies_are_unpacked(tmp_path):
    packed = [
        (gzip.compress(RECORD), "gzip"),
        (gzip.compress(RECORD[:5]) + gzip.compress(RECORD[5:]), "GZIP"),
        (zlib.compress(RECORD), "deflate"),
        (RECORD, "identity"),
    ]
    with serving(tmp_path) as source:
        for body, coding in packed:
            assert post(source.port, body, JSON | {"Content-Encoding": coding})[0] == 204
        assert stored(source) == [b"J" + RECORD] * 4


def test_a_bomb_is_not_unpacked(tmp_path):
    bomb = gzip.compress(bytes(200 * MIB), 9)
    twice = gzip.compress(bytes(3 * MIB)) * 2
    assert len(bomb) < MIB
    with serving(tmp_path) as source:
        import resource

        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for body in (bomb, twice):
            code, _, _ = post(source.port, body, LINES | {"Content-Encoding": "gzip"})
            assert code == 413
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024
        assert source.queue.refused == {"too_large": 2}


def test_a_long_body_is_refused(tmp_path):
    with serving(tmp_path, "http://127.0.0.1:0?max_bytes=1000") as source:
        assert post(source.port, b" " * 982 + RECORD)[0] == 204
        code, _, text = post(source.port, b" " * 983 + RECORD)
        assert code == 413
        assert json.loads(text)["code"] == "request too large"
        assert source.queue.refused == {"too_large": 1}


def test_a_body_of_more_than_half_of_the_spool_is_refused(tmp_path):
    with serving(tmp_path, spool_bytes=MIB) as source:
        assert post(source.port, b" " * (600 << 10) + RECORD)[0] == 413
        assert post(source.port, RECORD)[0] == 204
        assert source.queue.refused == {"too_large": 1}


def test_a_full_spool_asks_for_a_pause_and_takes_again_after_a_commit(tmp_path):
    with serving(tmp_path, spool_bytes=MIB) as source:
        body, codes = b" " * 100_000 + RECORD, []
        while 503 not in codes:
            assert len(codes) < 20
            code, headers, _ = post(source.port, body)
            codes.append(code)
        assert len(codes) > 5
        assert int(headers["Retry-After"]) > 0
        assert source.queue.refused == {"full": 1}
        assert len(stored(source)) == len(codes) - 1
        source.commit(source.ends())
        assert post(source.port, body)[0] == 204


def test_a_failing_disk_is_told_to_senders_and_to_the_service(tmp_path, monkeypatch):
    def fails(*_):
        raise OSError(28, "No space left on device")

    with serving(tmp_path) as source:
        assert post(source.port, RECORD)[0] == 204
        monkeypatch.setattr(os, "pwritev", fails)
        for _ in range(2):
            code, headers, _ = post(source.port, RECORD)
            assert code == 503
            assert headers["Retry-After"]
        assert len(stored_before_failure(source)) == 1
        with pytest.raises(SourceError, match="No space left"):
            source.poll(10, 0.0)
        with pytest.raises(SourceError, match="No space left"):
            source.ends()
        monkeypatch.undo()
    with serving(tmp_path) as source:
        assert stored(source) == [b"J" + RECORD]


def stored_before_failure(source):
    found = source.poll(10, 0.0)
    return [body for chunk in found for body in chunk.bodies]


def test_a_repeated_request_is_stored_once_after_a_restart_too(tmp_path):
    keyed = JSON | {"Idempotency-Key": "one"}
    with serving(tmp_path) as source:
        assert [post(source.port, RECORD, keyed)[0] for _ in range(3)] == [204] * 3
        assert post(source.port, gzip.compress(RECORD), keyed | {"Content-Encoding": "gzip"})[0] == 204
        assert post(source.port, RECORD, JSON | {"Idempotency-Key": "two"})[0] == 204
        assert post(source.port, RECORD)[0] == 204
        assert post(source.port, RECORD)[0] == 204
        assert len(stored(source)) == 4
        assert source.duplicates == 3
        source.commit(source.ends())
    with serving(tmp_path) as source:
        assert post(source.port, RECORD, keyed)[0] == 204
        assert stored(source) == []
        assert source.duplicates == 1


def test_a_key_that_is_used_again_hides_no_other_records(tmp_path):
    keyed = JSON | {"Idempotency-Key": "one"}
    with serving(tmp_path) as source:
        assert post(source.port, RECORD, keyed)[0] == 204
        assert post(source.port, b" " + RECORD, keyed)[0] == 204
        assert len(stored(source)) == 2


def test_repetitions_at_the_same_time_are_stored_once(tmp_path):
    with serving(tmp_path) as source, ThreadPoolExecutor(8) as pool:
        keyed = JSON | {"Idempotency-Key": "one"}
        assert set(pool.map(lambda _: post(source.port, RECORD, keyed)[0], range(40))) == {204}
        assert len(stored(source)) == 1


def test_half_a_body_is_not_stored_and_slow_senders_are_dropped(tmp_path):
    with serving(tmp_path, "http://127.0.0.1:0?body_s=1") as source:
        whole = request(RECORD)
        with connect(source.port) as half, connect(source.port) as gone, connect(source.port) as head:
            half.sendall(whole[:-3])
            gone.sendall(whole[:-3])
            gone.close()
            head.sendall(whole[:20])
            assert post(source.port, RECORD)[0] == 204
            assert status(half) == 0
            assert status(head) == 0
        assert stored(source) == [b"J" + RECORD]
        assert source.queue.refused == {"slow": 2}


def test_a_sender_that_leaves_before_its_answer_disturbs_nobody(tmp_path):
    with serving(tmp_path) as source:
        for _ in range(20):
            with connect(source.port) as connection:
                connection.sendall(request(RECORD))
        assert post(source.port, RECORD)[0] == 204
        until = time.monotonic() + 60
        found = stored(source)
        while len(found) < 21 and time.monotonic() < until:
            found += stored(source)
            time.sleep(0.05)
        assert found == [b"J" + RECORD] * len(found)
        assert len(found) <= 21


def test_many_slow_connections_do_not_keep_others_out(tmp_path):
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(serving(tmp_path, "http://127.0.0.1:0?connections=8"))
        for _ in range(30):
            stack.enter_context(connect(source.port)).sendall(request(RECORD)[:-2])
        assert post(source.port, RECORD)[0] == 204
        assert source.queue.refused["crowded"] > 10


def test_requests_on_one_connection_are_answered_in_turn(tmp_path):
    with serving(tmp_path) as source, connect(source.port) as connection:
        for _ in range(3):
            connection.sendall(request(RECORD))
            assert status(connection) == 204
        assert len(stored(source)) == 3


def test_requests_that_are_complete_have_their_answer_when_the_source_is_closed(tmp_path, monkeypatch):
    append, entered = SharedSpool.append, threading.Event()

    def slow(self, bodies, *rest):
        if bodies:
            entered.set()
            time.sleep(0.5)
        return append(self, bodies, *rest)

    monkeypatch.setattr(SharedSpool, "append", slow)
    source = pushed(tmp_path)
    with ThreadPoolExecutor(2) as pool:
        answer = pool.submit(post, source.port, RECORD)
        assert entered.wait(60)
        source.close()
        assert answer.result()[0] == 204
    with serving(tmp_path) as source:
        assert stored(source) == [b"J" + RECORD]


def test_elsewhere_than_on_this_machine_a_token_or_certificates_are_required(tmp_path):
    for url in ("http://0.0.0.0:0", "http://[::]:0", "http://example.org:0"):
        with pytest.raises(ConfigError, match="must have a `token`"):
            receiver(url)
    with pytest.raises(ConfigError, match="16 visible"):
        receiver("http://0.0.0.0:0?token=short")
    with pytest.raises(ConfigError, match="https"):
        receiver("http://127.0.0.1:0?ca=ca.pem")
    with pytest.raises(ConfigError, match="`cert`"):
        receiver("https://127.0.0.1:0")
    with pytest.raises(ConfigError, match="without path"):
        receiver("http://127.0.0.1:0/ingest")
    with pytest.raises(ConfigError, match="without path"):
        receiver("http://user:password@127.0.0.1:0")
    with pytest.raises(ConfigError, match="unknown option"):
        receiver("http://127.0.0.1:0?tokn=1")
    with pytest.raises(ConfigError, match="max_bytes"):
        receiver("http://127.0.0.1:0?max_bytes=100000000")
    receiver("http://localhost:0").close()


def test_a_token_opens(tmp_path, caplog):
    other = "another-token-of-many"
    with serving(tmp_path, f"http://0.0.0.0:0?token={other}%20{TOKEN}") as source:
        assert "not encrypted" in caplog.text
        assert TOKEN not in caplog.text
        for scheme in ("Bearer", "bearer", "Token"):
            assert post(source.port, RECORD, JSON | {"Authorization": f"{scheme} {TOKEN}"})[0] == 204
        assert post(source.port, RECORD, JSON | {"Authorization": f"Bearer {other}"})[0] == 204
        for wrong in (
            {},
            {"Authorization": "Bearer no"},
            {"Authorization": f"Basic {TOKEN}"},
            {"Authorization": TOKEN},
        ):
            code, headers, _ = post(source.port, RECORD, JSON | wrong)
            assert code == 401
            assert headers["WWW-Authenticate"] == "Bearer"
        assert post(source.port, RECORD, JSON, "/nothing")[0] == 401
        assert source.queue.refused == {"unauthorized": 5}
        assert len(stored(source)) == 4
    assert TOKEN not in mask(f"http://0.0.0.0:0?token={TOKEN}")


def test_tls_and_certificates_of_senders(tmp_path):
    files = certificates(tmp_path)
    served = f"cert={files.server}&key={files.server_key}"
    trusting = ssl.create_default_context(cafile=str(files.ca))
    with serving(tmp_path, f"https://127.0.0.1:0?{served}") as source:
        assert post(source.port, RECORD, context=trusting, host="localhost")[0] == 204
        big = b" " * MIB + RECORD
        assert post(source.port, big, context=trusting)[0] == 204
        with connect(source.port) as plain:
            plain.sendall(request(RECORD))
            assert status(plain) == 0
        assert stored(source) == [b"J" + RECORD, b"J" + big]
        wait_for(lambda: source.queue.refused == {"handshake": 1})
    with serving(tmp_path, f"https://0.0.0.0:0?{served}&ca={files.ca}") as source:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            post(source.port, RECORD, context=trusting)
        known = ssl.create_default_context(cafile=str(files.ca))
        known.load_cert_chain(files.client, files.client_key)
        assert post(source.port, RECORD, context=known)[0] == 204
    with pytest.raises(ConfigError, match="cannot be used"):
        receiver(f"https://127.0.0.1:0?cert={tmp_path / 'none.pem'}")


def test_handshakes_that_do_not_end_keep_nobody_out(tmp_path):
    files = certificates(tmp_path)
    trusting = ssl.create_default_context(cafile=str(files.ca))
    url = f"https://127.0.0.1:0?cert={files.server}&key={files.server_key}&connections=8&body_s=2"
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(serving(tmp_path, url))
        silent = [stack.enter_context(connect(source.port)) for _ in range(30)]
        assert post(source.port, RECORD, context=trusting)[0] == 204
        silent[-1].settimeout(60)
        with contextlib.suppress(ConnectionError):
            assert silent[-1].recv(1) == b""


def test_curl_sends(tmp_path):
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    (tmp_path / "lines").write_bytes((RECORD + b"\n") * 100_000)
    with serving(tmp_path) as source:
        url = f"http://127.0.0.1:{source.port}/ingest"
        lines, file = ["-H", "Content-Type: application/x-ndjson"], tmp_path / "lines"
        for options in (
            ["--json", RECORD.decode()],
            [*lines, "--data-binary", f"@{file}"],  # asks first, by Expect: 100-continue
            [*lines, "-H", "Transfer-Encoding: chunked", "-X", "POST", "-T", str(file)],
        ):
            done = subprocess.run(["curl", "-sS", "--fail-with-body", *options, url], capture_output=True, timeout=120)
            assert done.returncode == 0, done
        assert [len(body) for body in stored(source)] == [19, 1_900_001, 1_900_001]


def test_too_much_that_waits_for_the_disk_is_sent_away(tmp_path, monkeypatch):
    go = threading.Event()
    append = SharedSpool.append

    def held(self, bodies, *rest):
        if bodies:
            assert go.wait(60)
        return append(self, bodies, *rest)

    monkeypatch.setattr(SharedSpool, "append", held)
    monkeypatch.setattr(module, "_HELD_BYTES", 100)
    with serving(tmp_path) as source, ThreadPoolExecutor(10) as pool:
        codes = [pool.submit(post, source.port, b" " * 40 + RECORD) for _ in range(4)]
        wait_for(lambda: source.queue.refused == {"busy": 3})
        go.set()
        assert sorted(each.result()[0] for each in codes) == [204, 503, 503, 503]
        assert post(source.port, RECORD)[0] == 204


def test_a_length_beside_chunks_is_refused_and_closes_the_connection(tmp_path):
    with serving(tmp_path) as source, connect(source.port) as connection:
        head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head + b"0\r\n\r\n" + request(RECORD))
        connection.settimeout(60)
        answers = b"".join(iter(lambda: connection.recv(4096), b""))
        assert answers.startswith(b"HTTP/1.1 400 ")
        assert answers.count(b"HTTP/1.1 ") == 1
        assert b"with a length beside them" in answers
        assert stored(source) == []
