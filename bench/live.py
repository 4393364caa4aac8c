"""Live streams: how fast beside the bare clients, how soon after a window's end, and whether for long.

    python bench/live.py [throughput] [latency] [soak] [--broker NAME]... [--minutes M] [--runs N]

throughput  One process per rival, turn by turn, medians of N runs (5). JSON: records of d = 4, one a message, against
            the bare client that reads and acknowledges the same and decodes with msgspec into a type; ours is source,
            decoder and commits; `whole` counts the records into a window too. Blocks: 256 points of d = 16 a message,
            against the bare client that reads and acknowledges, and looks into nothing.
latency     20,000 records/s from a process of their own, windows of 1 s (redis, nats): from handing the last record of
            a window to the broker until the sink has its release, lateness aside; counts, and means of d = 4.
soak        Half of the most that generator, server and service manage together on this machine, for M minutes (20), in
            windows of 10 s: memory, lag, and whether every record was counted (redis).

The servers' addresses: FCSTREAM_REDIS, FCSTREAM_NATS, FCSTREAM_KAFKA, FCSTREAM_RABBITMQ_STREAM (host:port); Kafka is
librdkafka's mock cluster unless one is named, MQTT a private Mosquitto. What is not here is left out, and named.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from brokers import BROKERS, Absent, Broker
from kernels import machine

T0 = 1_700_000_000_000
D, BLOCK, WIDE = 4, 256, 16
JSON_MESSAGES = {"redis": 400_000, "nats": 80_000, "kafka": 500_000, "mqtt": 30_000, "rabbitmq-stream": 200_000}
BLOCKS = {"redis": 10_000, "nats": 5_000, "kafka": 4_000, "mqtt": 4_000, "rabbitmq-stream": 4_000}
MUST = {"json": 0.6, "blocks": 0.7}
MUST_POINTS = 2e6  # of Redis, a second
RATE, LENGTH_S = 20_000, 1
MAX_WINDOWS_AT_ONCE = 2_000  # records of one burst: what is handed over late bears its own stamp
MUST_MEDIAN_MS, MUST_P99_MS = 50, 250


def rss_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def tell(**found: object) -> None:
    print(json.dumps(found), flush=True)


def config(d: int, *, ledger: str = "memory:", **sections: dict[str, Any]) -> dict[str, Any]:
    """One count over a window that holds everything, unless told otherwise; the count is as good as exact."""
    found: dict[str, Any] = {
        "stream": {"name": "bench"},
        "lattice": {"step": 0.001},
        "features": [{"name": f"f{k}", "min": -10.0, "max": 10.0} for k in range(d)],
        "window": {"length": "36500d", "clock": "broker", "start": "2020-01-01T00:00:00Z"},
        "release": {"kind": "count", "rho": 1000.0},
        "budget": {"rho": 1000.0, "delta": 0.0},
        "ledger": {"url": ledger},
    }
    for name, keys in sections.items():
        found[name] = {**found.get(name, {}), **keys}
    return found


# -- throughput ----------------------------------------------------------------------------------------------------


def json_bodies() -> list[bytes]:
    rows = np.random.default_rng(0).normal(0, 1, (997, D)).round(4).tolist()
    return [msgspec.json.encode({"ts_ms": T0 + i, **{f"f{k}": row[k] for k in range(D)}}) for i, row in enumerate(rows)]


def block_bodies() -> list[bytes]:
    rng, bodies = np.random.default_rng(0), []
    for i in range(31):
        rows = np.empty(BLOCK, [("time", "<i8"), ("values", "<f8", (WIDE,))])
        rows["time"], rows["values"] = T0 + i, rng.normal(0, 1, (BLOCK, WIDE))
        bodies.append(rows.tobytes())
    return bodies


class Clock:
    """Starts with the first messages and stops with the last; both rivals are connected by then."""

    def __init__(self, n: int) -> None:
        self.left, self.begun, self.timed = n, 0.0, 0

    def took(self, count: int) -> bool:
        """Whether there is more to come."""
        now, cpu = time.perf_counter(), time.process_time()
        self.left -= count
        if count and not self.begun:
            self.begun, self.cpu_begun = now, cpu
        elif count:
            self.timed += count
            self.seconds, self.cpu = now - self.begun, cpu - self.cpu_begun
        return self.left > 0

    def tell(self) -> None:
        tell(rate=self.timed / self.seconds, rss=rss_mb(), cpu=1e6 * self.cpu / self.timed)


def read_bare(broker: Broker, case: str, n: int) -> None:
    record = msgspec.defstruct("R", [("ts_ms", float), *((f"f{k}", float) for k in range(D))], gc=False)
    decode = msgspec.json.Decoder(record).decode
    clock = Clock(n)
    gc.freeze()  # as ours
    for bodies in broker.bare(f"bare-{time.time_ns()}"):
        if case == "json":
            list(map(decode, bodies))
        if not clock.took(len(bodies)):
            break
    clock.tell()
    os._exit(0)  # its threads and tasks are left as they are


def read_source(broker: Broker, case: str, n: int) -> None:
    from fcstream.config import Config
    from fcstream.formats.payloads import decoder_for
    from fcstream.runtime.garbage import without_garbage_collection
    from fcstream.service.session import POLL_MESSAGES

    d, form = (D, "json") if case == "json" else (WIDE, "floats")
    decoder = decoder_for(form, Config.from_mapping(config(d)).job.schema)
    clock, commit_at = Clock(n), time.monotonic() + 1
    with without_garbage_collection(), opened(broker) as source:  # as in the service
        more = True
        while more:
            chunks = source.poll(POLL_MESSAGES, 1.0)
            bodies = list(chain.from_iterable(chunk.bodies for chunk in chunks))
            if bodies:
                assert not decoder.decode(bodies, 0).rejections
            last = {chunk.partition: int(chunk.offsets[-1]) + 1 for chunk in chunks}
            more = clock.took(len(bodies))
            if last and (time.monotonic() > commit_at or not more):
                source.commit(last)
                commit_at = time.monotonic() + 1
        clock.tell()


def read_whole(broker: Broker, case: str, n: int) -> None:
    from fcstream import Engine
    from fcstream.config import Config
    from fcstream.formats.payloads import decoder_for
    from fcstream.planning.warmup import warm_up
    from fcstream.service.context import SessionContext
    from fcstream.service.supervisor import Supervisor
    from fcstream.testing import ListSink

    warm_up()
    made, form = (config(D), "json") if case == "json" else (config(WIDE), "floats")
    checked = Config.from_mapping(made)
    clock, seen = Clock(n), [0]

    def on_step(service: Supervisor) -> None:
        count = service.counters.messages - seen[0]
        seen[0] += count
        if not clock.took(count):
            service.stop()

    with opened(broker) as source:
        decoder = decoder_for(form, checked.job.schema)
        setting = SessionContext(decoder, lambda: time.time_ns() // 10**6)
        service = Supervisor(lambda *_: Engine(checked), lambda: source, ListSink, setting)
        service.run(on_step)
        points = 1 if case == "json" else BLOCK
        assert service.counters.records >= n * points, service.counters
        clock.tell()


@contextlib.contextmanager
def opened(broker: Broker) -> Iterator[Any]:
    """Our source, as the service opens it."""
    from fcstream.connectors import open_live

    source: Any = open_live(broker.url(), f"ours-{time.time_ns()}")
    with tempfile.TemporaryDirectory(dir=os.environ.get("FCSTREAM_BENCH_DIR")) as folder:
        if not hasattr(source, "poll"):
            from fcstream.connectors.spool import Spool
            from fcstream.connectors.spooled import SpooledSource

            source = SpooledSource(source, Spool(Path(folder) / "spool", 2**30))
        try:
            yield source
        finally:
            source.close()


RIVALS = {"bare": read_bare, "ours": read_source, "whole": read_whole}


def child(*arguments: object, timeout_s: float = 300.0) -> dict[str, Any]:
    """What a process of its own says in its last line."""
    command = [sys.executable, __file__, "--child", *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=timeout_s, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def throughput(names: list[str], runs: int) -> None:
    print("messages/s, medians (least to most), and their ratio; the same of processor time alone, which other work on")
    print("the machine does not touch, with microseconds a message; memory of our process at the end")
    head = f"{'':24s}{'bare':>29s}{'ours':>29s}{'ratio':>7s}{'must':>6s}"
    print(head + f"{'cpu bare':>10s}{'ours':>8s}{'ratio':>7s}{'whole':>11s}{'MB':>6s}")
    for case, make, numbers in (("json", json_bodies, JSON_MESSAGES), ("blocks", block_bodies, BLOCKS)):
        for name in names:
            n = numbers.get(name, 50_000 if case == "json" else 4_000)
            broker = BROKERS[name]()
            try:
                with broker.started():
                    if broker.stays:
                        broker.fill(make(), n)
                    rates = turns(name, broker, case, make(), n, runs)
            except Absent as why:
                print(f"{case + ' ' + name:24s}left out: {why}", flush=True)
                continue
            row = f"{case + ' ' + name:24s}"
            for rival in ("bare", "ours"):
                some = np.array(rates[rival])
                row += f"{f'{np.median(some):,.0f} ({some.min():,.0f} to {some.max():,.0f})':>29s}"
            ratio = np.median(rates["ours"]) / np.median(rates["bare"])
            bare, ours = np.median(rates["bare cpu"]), np.median(rates["ours cpu"])
            row += f"{ratio:7.2f}{MUST[case]:6.1f}{bare:10.2f}{ours:8.2f}{bare / ours:7.2f}"
            row += f"{np.median(rates['whole']):11,.0f}{max(rates['rss']):6.0f}"
            if case == "blocks":
                points = BLOCK * np.median(rates["ours"])
                row += f"  {points:,.0f} points/s"
                row += f" (must {MUST_POINTS:,.0f})" if name == "redis" else ""
            print(row, flush=True)


def turns(name: str, broker: Broker, case: str, bodies: list[bytes], n: int, runs: int) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {name: [] for name in (*RIVALS, *(f"{rival} cpu" for rival in RIVALS), "rss")}
    for run in range(runs):
        order = list(RIVALS) if run % 2 == 0 else list(RIVALS)[::-1]
        for rival in order:
            if not broker.stays:
                broker.fill(bodies, n)
            found = child(rival, name, broker.place, case, n)
            rates[rival].append(found["rate"])
            rates[f"{rival} cpu"].append(found["cpu"])
            if rival == "ours":
                rates["rss"].append(found["rss"])
    return rates


# -- records that flow -----------------------------------------------------------------------------------------------


class Flow:
    """Records at a rate into a broker, from a process of its own; stamped when they are handed over."""

    def __init__(self, name: str, broker: Broker, rate: int, seconds: float) -> None:
        command = [sys.executable, __file__, "--child", "flow", name, broker.place, rate, seconds]
        self._reported = tempfile.TemporaryFile("w+")  # noqa: SIM115 - longer than a pipe holds; `end` closes it
        self.process = subprocess.Popen(list(map(str, command)), stdout=self._reported)

    def end(self) -> dict[str, Any]:
        self.process.wait()
        with self._reported as told:
            told.seek(0)
            found: dict[str, Any] = json.loads(told.read().splitlines()[-1])
        return found


def flow(name: str, place: str, rate: int, seconds: float) -> None:
    """Bursts of 5 ms; says when the last record of every second was handed over, and how many each had."""
    send = {"redis": redis_sender, "nats": nats_sender}[name](BROKERS[name](place))
    tails = [body.split(b",", 1)[1] for body in json_bodies()]
    last: dict[int, float] = {}
    counts: dict[int, int] = {}
    began = time.time()
    sent = 0
    while (now := time.time()) < began + seconds:
        due = min(int((now - began) * rate) - sent, MAX_WINDOWS_AT_ONCE)
        if due > 0:
            timestamp = int(now * 1000)
            head = b'{"ts_ms":%d,' % timestamp
            last[timestamp // 1000] = now
            counts[timestamp // 1000] = counts.get(timestamp // 1000, 0) + due
            send([head + tails[(sent + i) % len(tails)] for i in range(due)])
            sent += due
        if due < MAX_WINDOWS_AT_ONCE:
            time.sleep(max(0.0, 0.005 - (time.time() - now)))
    tell(last=last, counts=counts, sent=sent, began=began, behind_s=time.time() - began - seconds)


def redis_sender(broker: Any) -> Any:
    client, seen = broker.client(), [0]

    def send(bodies: list[bytes]) -> None:
        pipe = client.pipeline(transaction=False)
        for body in bodies:
            pipe.execute_command("XADD", broker.key, "*", "data", body)
        seen[0] += len(bodies)
        if seen[0] > 100_000:  # a soak must not fill the server; what is a minute old has been read, or was lost
            pipe.execute_command("XTRIM", broker.key, "MINID", "~", int(time.time() * 1000) - 60_000)
            seen[0] = 0
        pipe.execute()

    return send


def nats_sender(broker: Any) -> Any:
    import asyncio

    import nats

    loop = asyncio.new_event_loop()
    client = loop.run_until_complete(nats.connect(f"nats://{broker.place.partition('/')[0]}"))

    async def publish(bodies: list[bytes]) -> None:
        for body in bodies:
            await client.publish(broker.stream, body)
        await client.flush(30)

    return lambda bodies: loop.run_until_complete(publish(bodies))


def live_config(folder: str, broker: Broker, length_s: int, lateness_ms: int, kind: str) -> Any:
    from fcstream.config import Config

    start = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() // length_s * length_s))
    release = {"kind": "count", "rho": 1000.0}
    if kind == "mean":
        release = {"method": "recentered", "radius": 8.0, "rho": 1.0, "delta": 1e-9, "size_hint": RATE}
    return Config.from_mapping(
        config(
            D,
            ledger=f"sqlite:{folder}/ledger.db",
            window={"length": f"{length_s}s", "lateness": f"{lateness_ms}ms", "start": start},
            release={"kind": "mean", **release},
            budget={"rho": 1000.0, "delta": 1e-6},
            source={"url": broker.url()},
            sink={"url": f"jsonl:{folder}/out.jsonl"},
        )
    )


# -- latency -------------------------------------------------------------------------------------------------------


def latency(names: list[str]) -> None:
    print(f"ms from a window's last record at the broker to its release at the sink, {RATE:,} records/s, windows 1 s")
    print(f"{'':24s}{'windows':>8s}{'median':>8s}{'p99':>8s}{'most':>8s}   must {MUST_MEDIAN_MS} / {MUST_P99_MS}")
    for name in names:
        if name not in ("redis", "nats"):
            continue
        for kind in ("count", "mean"):
            broker = BROKERS[name]()
            try:
                with broker.started():
                    found = child("latency", name, broker.place, kind, 75, timeout_s=200)
            except Absent as why:
                print(f"{name:24s}left out: {why}", flush=True)
                continue
            times = np.array(found["ms"])
            print(
                f"{name + ' ' + kind:24s}{len(times):8d}{np.median(times):8.1f}{np.quantile(times, 0.99):8.1f}"
                f"{times.max():8.1f}   lost {found['lost']}, generator behind {found['behind_s']:.1f} s",
                flush=True,
            )


def serve_latency(name: str, place: str, kind: str, seconds: float) -> None:
    """The service in this process, with the sink watched; the records come from another."""
    import fcstream.service as service_module
    from fcstream.planning.warmup import warm_up

    lateness_ms, at, counts = 100, {}, {}

    class StreamStatus:
        def __init__(self, sink: Any) -> None:
            self.sink = sink

        def __getattr__(self, name: str) -> Any:
            return getattr(self.sink, name)

        def write(self, releases: Any) -> None:
            self.sink.write(releases)
            now = time.time()
            for release in releases:
                at[release.window_open_ms // 1000] = now
                counts[release.window_open_ms // 1000] = release.count

    real = service_module.open_sink
    service_module.open_sink = lambda url: StreamStatus(real(url))  # type: ignore[assignment, return-value]
    warm_up()
    broker = BROKERS[name](place)
    with tempfile.TemporaryDirectory(dir=os.environ.get("FCSTREAM_BENCH_DIR")) as folder:
        service = service_module.build(live_config(folder, broker, LENGTH_S, lateness_ms, kind))
        thread = threading.Thread(target=service.run)
        thread.start()
        time.sleep(1.0)
        flow = Flow(name, broker, RATE, seconds).end()
        time.sleep(LENGTH_S + 2.0)
        service.stop()
        thread.join()
    windows = sorted(int(second) for second in flow["last"])[3:-1]  # the first ones compile and warm up
    lost = sum(flow["counts"][str(w)] - round(counts[w]) for w in windows) if kind == "count" else "-"
    ms = [1000 * (at[w] - flow["last"][str(w)]) - lateness_ms for w in windows]
    tell(ms=ms, lost=lost, behind_s=flow["behind_s"])


# -- soak ----------------------------------------------------------------------------------------------------------


def soak(minutes: float) -> None:
    flows = []
    for _ in range(3):
        broker = BROKERS["redis"]()
        with broker.started():
            found = child("soak", "redis", broker.place, 10**7, 8, timeout_s=400)
            flows.append(found["counted"] / found["seconds"])
    most = float(np.median(flows))
    rate = int(most / 2)
    print(
        f"{most:,.0f} records/s flow through generator, server and service together here; {rate:,} for {minutes:g} min"
    )
    broker = BROKERS["redis"]()
    with broker.started():
        found = child("soak", "redis", broker.place, rate, 60 * minutes, timeout_s=60 * minutes + 900)
    samples = np.array(found["samples"])  # seconds, MB, lag in ms
    warm = samples[samples[:, 0] > min(120, 0.25 * 60 * minutes)]
    middle = np.median(warm[:, 1])
    thirds = np.array_split(warm[:, 2], 3)
    print(f"sent {found['sent']:,} ({found['sent'] / 60 / minutes:,.0f}/s), counted {found['counted']:,.0f}, ", end="")
    print(f"lost {found['sent'] - found['counted']:,.0f}, windows {found['windows']}, restarts {found['restarts']}")
    print(
        f"memory after the warm-up {middle:.1f} MB ({100 * (warm[:, 1].min() / middle - 1):+.1f} to "
        f"{100 * (warm[:, 1].max() / middle - 1):+.1f} %; must +-5)"
    )
    print(f"lag in ms, medians of three thirds: {', '.join(f'{np.median(t):.0f}' for t in thirds)}; ", end="")
    print(f"p99 {np.quantile(warm[:, 2], 0.99):.0f}, most {warm[:, 2].max():.0f}")


def serve_soak(name: str, place: str, rate: int, seconds: float) -> None:
    import fcstream.service as service_module
    from fcstream import Release
    from fcstream.planning.warmup import warm_up

    warm_up()
    broker = BROKERS[name](place)
    newest, samples = [0.0], []
    real = service_module.open_live

    class StreamStatus:
        def __init__(self, source: Any) -> None:
            self.source = source

        def __getattr__(self, name: str) -> Any:
            return getattr(self.source, name)

        def poll(self, *given: Any) -> Any:
            chunks = self.source.poll(*given)
            for chunk in chunks:
                newest[0] = time.time() * 1000 - chunk.timestamps_ms[-1]
            return chunks

    service_module.open_live = lambda *given: StreamStatus(real(*given))  # type: ignore[assignment]
    with tempfile.TemporaryDirectory(dir=os.environ.get("FCSTREAM_BENCH_DIR")) as folder:
        service = service_module.build(live_config(folder, broker, 10, 500, "count"))
        thread = threading.Thread(target=service.run)
        thread.start()
        time.sleep(1.0)
        began = time.monotonic()
        flow = Flow(name, broker, rate, seconds)
        while flow.process.poll() is None:
            time.sleep(1.0)
            samples.append((time.monotonic() - began, rss_mb(), newest[0]))
        told = flow.end()
        while (seen := service.counters.messages) < told["sent"] and time.monotonic() < began + seconds + 60:
            time.sleep(0.1)
        took = time.time() - told["began"]
        until = time.monotonic() + 30
        releases: list[Release] = []
        while time.monotonic() < until:
            releases = [Release.from_bytes(line) for line in Path(folder, "out.jsonl").read_bytes().splitlines()]
            if releases and releases[-1].window_close_ms > 1000 * max(map(int, told["counts"])):
                break
            time.sleep(0.5)
        service.stop()
        thread.join()
    counted = sum(round(release.count or 0) for release in releases)
    tell(
        sent=told["sent"],
        counted=counted,
        windows=len(releases),
        restarts=service.counters.restarts,
        seconds=took,
        read=seen,
        samples=samples,
        behind_s=told["behind_s"],
    )


# -- all -----------------------------------------------------------------------------------------------------------


def run_child(role: str, name: str, place: str, *rest: str) -> None:
    if role == "flow":
        flow(name, place, int(rest[0]), float(rest[1]))
    elif role == "latency":
        serve_latency(name, place, rest[0], float(rest[1]))
    elif role == "soak":
        serve_soak(name, place, int(rest[0]), float(rest[1]))
    else:
        RIVALS[role](BROKERS[name](place), rest[0], int(rest[1]))


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        run_child(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", choices=["throughput", "latency", "soak", []], default=[])
    parser.add_argument("--broker", action="append", choices=list(BROKERS), default=[])
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    sections, names = given.sections or ["throughput", "latency", "soak"], given.broker or list(BROKERS)
    clients = []
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            clients.append(f"{BROKERS[name].package} {importlib.metadata.version(BROKERS[name].package)}")
    print(f"{machine()}; {', '.join(clients)}; load {os.getloadavg()[0]:.1f}")
    for section in sections:
        print(f"-- {section}", flush=True)
        if section == "throughput":
            throughput(names, given.runs)
        elif section == "latency":
            latency(names)
        else:
            soak(given.minutes)


if __name__ == "__main__":
    main()
