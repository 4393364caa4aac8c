"""Messages of somebody who means harm: refused in bounded time and memory, the good ones between them counted exactly,
and nothing of what they hold told to anyone."""

import json
import re
import resource
import signal
import struct
import subprocess
import sys
import time
from collections import Counter

import msgspec
import numpy as np
import pytest
from support.payloads import arrow, packed

from fcstream import Engine
from fcstream.formats.batch import LONGEST_LABEL, Schema
from fcstream.formats.bounds import LONGEST_MESSAGE
from fcstream.formats.payloads import decoder_for

SENTINEL = "sentinelContent"
SCHEMA, USERS = Schema("ts_ms", "ms", ("a",)), Schema("ts_ms", "ms", ("a",), "id")
FAR = 10**13


def hostile_json(now):
    """Bodies that are no records; each has the sentinel somewhere."""
    mark = SENTINEL
    fields = [
        *('"a": NaN', '"a": Infinity', '"a": -Infinity', '"a": 1e999', '"a": -1e999', '"a": "20"', '"a": true'),
        *('"a": null', '"a": []', '"a": {}', '"a": 41', '"a": -0.01', f'"a": "{mark}"', f'"{mark}": 20', ""),
        '"a": ' + "9" * 5000,
    ]
    times = ["NaN", "1e999", "-1", str(-(2**70)), str(2**53 + 2), str(now + FAR), f'"{mark}"', "true", "null", "[]"]
    whole = f'{{"ts_ms": {now}, "a": 20}}'
    return [
        *(f'{{"note": "{mark}", "ts_ms": {now}{"," if field else ""} {field}}}'.encode() for field in fields),
        *(f'{{"note": "{mark}", "ts_ms": {timestamp}, "a": 20}}'.encode() for timestamp in times),
        *(whole[:cut].encode() + mark.encode() for cut in range(0, len(whole), 5)),
        (whole + whole).encode(),
        b"[" * 300_000 + mark.encode(),
        b'{"note":' * 100_000 + mark.encode(),
        b'{"ts_ms": %d, "a": {"note": ' % now + b"[" * 100_000 + b"]" * 100_000 + b"}}",
        b'\xff\xfe{"note": "%s"}' % mark.encode(),
        b'{"note": "\xc3\x28%s", "\xff": 1}' % mark.encode(),
        f'["{mark}", {now}, 20]'.encode(),
        f'"{mark}"'.encode(),
        mark.encode("utf-16"),
        b"\0" * 1000,
        b"",
        b" ",
        (mark.encode() * (LONGEST_MESSAGE // 15 + 1)),
    ]


def at_rest(process):
    """Peak resident memory of another process, in MiB."""
    with open(f"/proc/{process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


@pytest.mark.slow
def test_a_stream_full_of_them(tmp_path, running_service):
    """Through a real broker: with 100 MB in one message, a flood of late records, and stamps of the far future."""
    it = running_service
    it.start_ms -= 20_000
    it.configure()
    timestamps = []
    rng = np.random.default_rng(0)

    def send(bodies):
        pipe = it.redis.pipeline(transaction=False)
        for body in bodies:
            pipe.xadd(it.key, {"data": body})
        return [int(entry.split(b"-")[0]) for entry in pipe.execute()]

    def good(n):
        now = time.time_ns() // 10**6
        times = [now - i % 700 for i in range(n)]
        timestamps.extend(zip(times, send([b'{"ts_ms": %d, "a": 20}' % at for at in times]), strict=True))

    bad = 0
    for body in hostile_json(time.time_ns() // 10**6):
        good(3)
        bad += len(send([body]))
    random_bytes = [rng.bytes(int(n)) + SENTINEL.encode() for n in rng.integers(0, 99, 500)]
    bad += len(send(random_bytes))
    good(500)
    bad += len(send([SENTINEL.encode() * (100_000_000 // 15)]))
    good(500)
    tail = f', "a": 20, "note": "{SENTINEL}"}}'
    late = [f'{{"ts_ms": {it.start_ms + i % 9999}{tail}'.encode() for i in range(5000)]
    for _ in range(4):
        bad += len(send(late))
    good(500)
    it.start()
    it.wait_for(max(at for at, _ in timestamps) // 1000 * 1000)
    peak = at_rest(it.process)
    until = time.monotonic() + 120
    while 'reason="late"' not in (metrics := it.get("/metrics")[1]) and time.monotonic() < until:
        time.sleep(0.1)  # what a step rejects is told at its end
    code, errors = it.end(signal.SIGTERM)
    assert code == 0, errors
    right = Counter(at // 1000 * 1000 for at, timestamp in timestamps if timestamp <= at // 1000 * 1000 + 3000)
    assert sum(right.values()) > 0.9 * len(timestamps)
    for release in it.released():
        assert abs(release.count - right[release.window_open_ms]) <= 1
    dead_letters = (tmp_path / "dead.jsonl").read_text().splitlines()
    assert len(dead_letters) == bad + len(timestamps) - sum(right.values())
    assert {json.loads(line)["reason"] for line in dead_letters} >= {
        "broken_record",
        "not_a_number",
        "not_finite",
        "late",
    }
    told = re.search(r'fcstream_rejected_total\{reason="late",stream="live"\} (\d+)', metrics)
    assert told is not None
    assert int(told[1]) == 20_000 + len(timestamps) - sum(right.values())
    assert peak < 900, peak
    written = [path.read_bytes() for path in tmp_path.iterdir() if path.is_file()]
    assert not [text for text in [errors.encode(), metrics.encode(), *written] if SENTINEL.encode() in text]


def ipc(table, **options):
    pa = pytest.importorskip("pyarrow")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def bodies_of(codec):
    """A good body of one record, and hostile ones."""
    whole = {"ts_ms": 1, "a": 20.0}
    if codec == "json":
        return json.dumps(whole).encode(), hostile_json(1)
    if codec == "floats":
        block = packed([1], [[0, 0]])[:16]
        return block, [b"", block[:-1], block * 2 + b"x", SENTINEL.encode(), struct.pack("<qd", 2**62, 1.0)]
    if codec == "msgpack":
        pack = msgspec.msgpack.encode
        hostile = [pack({**whole, "a": odd}) for odd in (float("nan"), float("inf"), "20", True, None, [], 2**64 - 1)]
        hostile += [b"\xdf\xff\xff\xff\xff", b"\xdd\xff\xff\xff\xff\x01", b"\xdb\xff\xff\xff\xff" + SENTINEL.encode()]
        hostile += [b"\x91" * 300_000, b"\x81\xa1x" * 100_000, pack(whole)[:-3], b"\xc1", b"", pack([1, 20.0])]
        return pack(whole), [*hostile, b"\x82\xa5ts_ms\x01\xa1a\xc7\xff\x00" + b"x" * 255]
    pa = pytest.importorskip("pyarrow")
    n = 2**31 - 1
    ends, kind = pa.array([n], pa.int32()), pa.run_end_encoded(pa.int32(), pa.float64())
    runs = pa.RunEndEncodedArray.from_buffers(kind, n, [None], children=[ends, pa.array([1.0])])
    names = pa.array([SENTINEL]).dictionary_encode()
    zeros = {"ts_ms": np.zeros(10**6, np.int64), "a": np.zeros(10**6)}
    good = arrow(ts_ms=[1], a=[20.0])
    return good, [
        *(ipc(pa.table(zeros), compression=kind) for kind in ("zstd", "lz4")),
        ipc(pa.table({"ts_ms": runs, "a": runs})),
        ipc(pa.table({"ts_ms": pa.array([1]), "a": names})),
        ipc(pa.table({"ts_ms": pa.nulls(1), "a": pa.nulls(1)})),
        ipc(pa.table({"ts_ms": pa.array([1]), "a": pa.array([[20.0]])})),
        arrow(ts_ms=[1], a=[float("nan")]),
        *(good[:cut] for cut in range(0, len(good) - 8, 7)),
        *(good[:at] + b"\xff\xff\xff\x7f" + good[at + 4 :] for at in range(8, len(good) - 64, 12)),
    ]


@pytest.mark.parametrize("codec", ["json", "msgpack", "floats", "arrow"])
def test_good_records_between_hostile_ones(codec, tmp_path):
    """By every decoder and through the engine: what is refused has a reason, what is good is counted."""
    whole, hostile = bodies_of(codec)
    rejected = []
    config = {
        "stream": {"name": "t"},
        "lattice": {"step": 0.001},
        "features": [{"name": "a", "min": 0.0, "max": 40.0}],
        "window": {"length": "1s", "start": "1970-01-01T00:00:00Z", "clock": "broker", "backlog": "40000d"},
        "release": {"kind": "count", "rho": 1000.0},
        "budget": {"rho": 1000.0, "delta": 0.0},
        "ledger": {"url": "memory:"},
    }
    engine = Engine(config, on_rejection=rejected.extend)
    bodies = [body for odd in hostile for body in (whole, odd)]
    batch = decoder_for(codec, SCHEMA).decode(bodies, 0)
    good = set(range(0, len(bodies), 2))
    assert good <= set(batch.positions.tolist())
    engine.take(batch, np.full(len(batch.times_ms), 500))
    kept = {1 + 2 * i for i in range(len(hostile))} - {rejection.position for rejection in rejected}
    if codec == "arrow":  # some bytes are padding
        kept = {at for at in kept if bodies[at][:4] != whole[:4] or len(bodies[at]) != len(whole)}
    assert not kept
    assert not good & {rejection.position for rejection in rejected}
    assert SENTINEL not in repr(rejected)
    released = engine.advance(1001)[0]
    engine.abort()
    assert released.count >= len(hostile) - 0.5


def test_the_last_of_two_equal_keys_counts_and_only_once():
    body = b'{"ts_ms": 1, "ts_ms": 2, "a": 1, "a": 20}'
    batch = decoder_for("json", SCHEMA).decode([body], 0)
    assert (batch.times_ms.tolist(), batch.values.tolist(), batch.rejections) == ([2], [[20.0]], [])


@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_ids_have_a_length(codec):
    """They are kept until their window closes."""
    encode = getattr(msgspec, codec).encode
    names = ["x" * LONGEST_LABEL, "x" * (LONGEST_LABEL + 1), 10**18, "y" * 10**5, "ü" * LONGEST_LABEL]
    bodies = [encode({"ts_ms": 1, "a": 20, "id": name}) for name in names]
    batch = decoder_for(codec, USERS).decode(bodies, 0)
    assert batch.positions.tolist() == [0, 2, 4]
    assert [(r.reason, r.position, r.field) for r in batch.rejections] == [("bad_user", 1, "id"), ("bad_user", 3, "id")]


MILLION = """
import resource, sys
import numpy as np
from fcstream import Engine
from fcstream.formats.payloads import decoder_for
from fcstream.formats.batch import Schema
config = {
    "stream": {"name": "t", "unit": "user", "user": "id"},
    "lattice": {"step": 0.001},
    "features": [{"name": "a", "min": 0.0, "max": 40.0}],
    "window": {"length": "1s", "start": "1970-01-01T00:00:00Z", "clock": "broker", "backlog": "40000d"},
    "release": {"kind": "count", "rho": 50.0},
    "budget": {"rho": 50.0, "delta": 0.0},
    "ledger": {"url": "memory:"},
}
engine, decoder = Engine(config), decoder_for("json", Schema("ts_ms", "ms", ("a",), "id"))
for first in range(0, int(sys.argv[1]), 20000):
    rows = [b'{"ts_ms": 1, "a": 20, "id": "sentinelContent-%d"}' % i for i in range(first, first + 20000)]
    batch = decoder.decode(rows, 0)
    engine.take(batch, np.full(len(batch.times_ms), 500))
print(engine.advance(1001)[0].count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.slow
def test_a_million_distinct_ids():
    """All of them are users, and take no more room than users do."""
    done = subprocess.run([sys.executable, "-c", MILLION, "1000000"], capture_output=True, text=True, check=True)
    count, peak = done.stdout.split()
    assert abs(float(count) - 1e6) < 2
    assert int(peak) < 1400, peak
    assert SENTINEL not in done.stdout + done.stderr


def test_memory_stays_while_hostile_messages_are_decoded():
    """Sixteen megabytes a message, of what costs most: brackets, numbers, text, and compressed zeros."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    size = LONGEST_MESSAGE
    deep = [b"[" + b"[]," * (size // 3 - 9) + b"[]]", b"[" * size, b"9" * size, b'"' + b"x" * size]
    batch = decoder_for("json", SCHEMA).decode(deep, 0)
    assert [rejection.reason for rejection in batch.rejections] == [*["too_long"] * 3, "broken_record"]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024 - before < 100
