"""An asyncio gateway: readings arrive as lines over TCP and are pushed without holding up the event loop.

    python examples/embedding/asyncio_gateway.py [SECONDS]

Everything that touches the engine runs on ONE worker thread. Kernels release the GIL, and the ledger waits for the
disk, so the loop goes on meanwhile; and because a release counts as published when the thread that got it calls again,
one thread keeps the order: push, close, publish, acknowledge. Lines wait in a bounded queue: when the engine or the
disk falls behind, readers stop reading, and TCP tells the senders.
"""

import asyncio
import json
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from fcstream import Engine

CONFIG = {
    "stream": {"name": "gateway"},
    "lattice": {"step": 0.001},
    "features": [{"name": "temp_c", "min": -40.0, "max": 85.0, "origin": 20.0}],
    "window": {"length": "1s", "lateness": "200ms", "clock": "broker", "start": "now"},
    "release": {"kind": "count", "rho": 1.0},
    "budget": {"rho": 1.0, "delta": 0.0},
    "ledger": {"url": "memory:"},  # "sqlite:gateway.db" for anything real
}
MAX_WAITING = 10_000


async def read(lines: asyncio.Queue, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One sender."""
    while line := await reader.readline():
        await lines.put((int(time.time() * 1000), line))  # when it arrived; waits while the queue is full
    writer.close()


async def feed(engine: Engine, worker: ThreadPoolExecutor, lines: asyncio.Queue) -> None:
    """Push what has come, in batches, and close what is due ten times a second."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(0.1)
        waiting = [lines.get_nowait() for _ in range(lines.qsize())]
        for step in (lambda lines=waiting: push(engine, lines), lambda: engine.advance(int(time.time() * 1000))):
            for release in await loop.run_in_executor(worker, step):  # published before the worker's next call
                print(json.dumps({"window": release.window_open_ms, "count": release.count}), flush=True)


def push(engine: Engine, waiting: list[tuple[int, bytes]]) -> list:
    """On the worker's thread: what was returned by the last call is acknowledged by this one."""
    times, values, arrivals = [], [], []
    for arrival, line in waiting:
        try:
            reading = json.loads(line)
            times.append(reading["ts_ms"])
            values.append([reading["temp_c"]])
            arrivals.append(arrival)
        except (ValueError, KeyError, TypeError):
            continue  # not a reading; say why in a log of your own, never with the line
    return engine.push(times, values, arrival_ms=arrivals) if times else []


async def send(port: int, seconds: float) -> None:
    """A sender, for the example."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        reading = {"ts_ms": int(time.time() * 1000), "temp_c": random.gauss(21.0, 0.3)}
        writer.write(json.dumps(reading).encode() + b"\n")
        await writer.drain()
        await asyncio.sleep(0.005)
    writer.close()


async def main(seconds: float) -> None:
    lines: asyncio.Queue = asyncio.Queue(MAX_WAITING)
    with ThreadPoolExecutor(1) as worker, Engine(CONFIG) as engine:
        server = await asyncio.start_server(lambda *streams: read(lines, *streams), "127.0.0.1", 0)
        feeding = asyncio.create_task(feed(engine, worker, lines))
        async with server:
            await asyncio.gather(*(send(server.sockets[0].getsockname()[1], seconds) for _ in range(4)))
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else 5.0))
