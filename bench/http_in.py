"""Bodies over HTTP: the receiver with its spool beside the bare server, which writes the same and calls fsync a batch.

Both have uvicorn with h11, and as many connections, each with one request at a time. The bare server checks nothing and
limits nothing; what waits is appended to a file by a thread, with one fsync. ``parses`` is a bare server that also
parses each request of OTLP with the package's own classes, inside of its data points too.
Run with ``python bench/http_in.py``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

CONNECTIONS = 32


def bare(folder: Path, parses: bool) -> None:
    """Serve on a free port, and print it."""
    import uvicorn

    parse = bytes
    if parses:
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

        parse = ExportMetricsServiceRequest.FromString

    file = os.open(folder / "bodies", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    news, waiting = threading.Condition(), []

    def resolve(batch):
        for _, done in batch:
            if not done.done():
                done.set_result(None)

    def store():
        while True:
            with news:
                news.wait_for(lambda: waiting)
                batch, waiting[:] = list(waiting), []
            os.writev(file, [body for body, _ in batch])
            os.fsync(file)
            batch[0][1].get_loop().call_soon_threadsafe(resolve, batch)

    async def app(scope, receive, send):
        body = b""
        while (message := await receive()).get("more_body"):
            body += message["body"]
        done, body = asyncio.get_running_loop().create_future(), body + message["body"]
        parse(body)
        with news:
            waiting.append((body, done))
            news.notify()
        await done
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    class Server(uvicorn.Server):
        async def startup(self, sockets=None):
            await super().startup(sockets)
            print(self.servers[0].sockets[0].getsockname()[1], flush=True)

    threading.Thread(target=store, daemon=True).start()
    config = uvicorn.Config(
        app, port=0, http="h11", loop="asyncio", lifespan="off", log_level="critical", access_log=False
    )
    Server(config).run()


def ours(folder: Path, format: str) -> None:
    from fcstream.connectors.http.bodies import Bodies
    from fcstream.connectors.http.source import HttpReceiver
    from fcstream.connectors.pushed import PushedSource, SharedSpool
    from fcstream.connectors.urls import parse
    from fcstream.formats.batch import Schema

    receiver = HttpReceiver(parse("http://127.0.0.1:0?max_bytes=16000000", "source.url"), "bench")
    schema = Schema("t", "ms", ("a", "b", "c", "d"))
    if format == "otlp-metrics":
        schema = Schema("time_unix_nano", "ns", ("a",))
    receiver.expect(Bodies(format, schema, {}))
    PushedSource(receiver, SharedSpool(folder / "spool", 1 << 34))
    print(receiver.port, flush=True)
    threading.Event().wait()


def records(count: int) -> bytes:
    return b"".join(b'{"t": %d, "a": 20.5, "b": 1.25, "c": -3.5, "d": 17}\n' % i for i in range(count))


def points(count: int) -> bytes:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="a")
    for i in range(count):
        point = metric.gauge.data_points.add(time_unix_nano=1_700_000_000_000_000_000 + i, as_double=i / 7)
        for name in ("host", "room"):
            point.attributes.add(key=name).value.string_value = f"{name}-{i % 17}"
    return request.SerializeToString()


CASES = {
    "1 record of JSON": ("json", "/ingest", "application/json", lambda: records(1).strip()),
    "100 lines of JSON": ("json", "/ingest", "application/x-ndjson", lambda: records(100)),
    "10,000 lines of JSON": ("json", "/ingest", "application/x-ndjson", lambda: records(10_000)),
    "100 points of OTLP": ("otlp-metrics", "/v1/metrics", "application/x-protobuf", lambda: points(100)),
    "2,000 points of OTLP": ("otlp-metrics", "/v1/metrics", "application/x-protobuf", lambda: points(2_000)),
}


async def load(port: int, request: bytes, seconds: float) -> int:
    """Send from many connections at the same time, and return how many answers of 2xx came."""
    until, count = time.monotonic() + seconds, 0

    async def one() -> None:
        nonlocal count
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while True:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith((b"HTTP/1.1 204", b"HTTP/1.1 200")), head
            count += 1
            if time.monotonic() >= until:
                break
        writer.close()

    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))
    return count


def run(who: str, case: str, seconds: float) -> tuple[float, float]:
    """Bodies a second, and seconds of a processor for each."""
    _, path, media, make = CASES[case]
    body = make()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {media}\r\nContent-Length: {len(body)}\r\n\r\n"
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER")) as folder:
        process = subprocess.Popen([sys.executable, __file__, "--serve", who, case, folder], stdout=subprocess.PIPE)
        try:
            port = int(process.stdout.readline())
            request = head.encode() + body
            asyncio.run(load(port, request, 0.3))
            before, start = processor(process.pid), time.monotonic()
            count = asyncio.run(load(port, request, seconds))
            taken, tick = time.monotonic() - start, 1 / os.sysconf("SC_CLK_TCK")
            return count / taken, max(tick, processor(process.pid) - before) / count
        finally:
            process.kill()
            process.wait()


def processor(pid: int) -> float:
    """Return the processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--serve", nargs=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    given = parser.parse_args()
    if given.serve:
        who, case, folder = given.serve
        ours(Path(folder), CASES[case][0]) if who == "ours" else bare(Path(folder), who == "parses")
        return
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {CONNECTIONS} connections")
    turns = [(case, rival) for case in given.cases for rival in ("bare", "parses") if rival == "bare" or "OTLP" in case]
    for case, rival in turns:
        pairs = [[run(who, case, given.seconds) for who in (rival, "ours")] for _ in range(given.rounds)]
        wall = [two[0] / one[0] for one, two in pairs]
        busy = [one[1] / two[1] for one, two in pairs]
        found = {
            "case": case,
            "rival": rival,
            "its bodies/s": round(statistics.median(one[0] for one, _ in pairs)),
            "ours bodies/s": round(statistics.median(two[0] for _, two in pairs)),
            "ratio": round(statistics.median(wall), 2),
            "ratio by processor time": round(statistics.median(busy), 2),
            "ratios": [round(each, 2) for each in sorted(wall)],
        }
        print(json.dumps(found))
    print(f"peak memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB")


if __name__ == "__main__":
    main()
