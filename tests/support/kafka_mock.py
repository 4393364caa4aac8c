"""librdkafka's mock cluster as a broker for other processes: prints its address and serves until it is killed.

``python tests/support/kafka_mock.py --rates`` measures `KafkaSource` against it. Its limits: about 5 MB are kept per
partition (4 partitions a topic), no administration, aborted transactions are delivered, nothing is durable.
"""

from __future__ import annotations

import contextlib
import ctypes
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka

REBALANCE_MS = 200  # 3000 by default: how long a new group waits for its members


def serve() -> None:
    library = next(Path(confluent_kafka.__file__).parents[1].glob("confluent_kafka.libs/librdkafka-*.so*"), None)
    if library is None:  # not the wheel from PyPI: groups wait for three seconds then
        producer = confluent_kafka.Producer({"bootstrap.servers": "unused", "test.mock.num.brokers": 1, "log_level": 0})
        brokers = producer.list_topics(timeout=60).brokers.values()
        print(",".join(f"{broker.host}:{broker.port}" for broker in brokers), flush=True)
    else:
        print(_cluster(ctypes.CDLL(str(library))), flush=True)
    while True:
        time.sleep(60)


def _cluster(library: ctypes.CDLL) -> str:
    """A mock cluster whose groups do not wait for further members; its address."""
    pointer, text = ctypes.c_void_p, ctypes.create_string_buffer(512)
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(library, name).restype = pointer
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    client = library.rd_kafka_new(0, pointer(library.rd_kafka_conf_new()), text, ctypes.c_size_t(len(text)))
    cluster = pointer(library.rd_kafka_mock_cluster_new(pointer(client), 1))
    library.rd_kafka_mock_group_initial_rebalance_delay_ms(cluster, ctypes.c_int32(REBALANCE_MS))
    return str(library.rd_kafka_mock_cluster_bootstraps(cluster).decode())


@contextlib.contextmanager
def mock() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A mock broker's address and process."""
    command = [sys.executable, str(Path(__file__).resolve())]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def rates() -> None:
    """Print messages per second through `KafkaSource` and through the bare client, from the first one to the last."""
    import msgspec
    import numpy as np

    from fcstream.connectors.kafka.source import KafkaSource
    from fcstream.connectors.urls import parse

    rng = np.random.default_rng(0)
    record = [
        msgspec.json.encode({"ts_ms": 1_760_000_000_000 + i, "x": rng.normal(size=4).tolist()}) for i in range(99)
    ]
    block = [rng.normal(size=(256, 16)).tobytes() for _ in range(9)]
    print(f"confluent-kafka {confluent_kafka.version()}, librdkafka {confluent_kafka.libversion()[0]}")
    print("case, bytes, messages, polled, seconds, messages/s, MB/s")
    with mock() as (address, _):
        # Topics of 4 partitions; what is kept of each must fit.
        for case, bodies, number, topics in (("JSON d=4", record, 500_000, 8), ("256 points d=16", block, 4_000, 8)):
            names = [f"{case.split()[0].lower()}{i}" for i in range(topics)]
            fill(address, names, bodies, number)
            for how in ("source", "bare", "source", "bare", "source", "bare"):
                url = f"kafka://{address}/{','.join(names)}"
                source = KafkaSource(parse(url, "source.url"), f"{how}-{time.time_ns()}")
                source.ends()
                held, count, began = source._held, 0, time.perf_counter()
                if how == "source":
                    while count < number and time.perf_counter() < began + 20:
                        count += sum(len(chunk.bodies) for chunk in source.poll(4096, 1.0))
                else:
                    count = len(held)
                    while count < number and time.perf_counter() < began + 20:
                        found = source._open.consume(4096, 0) or source._open.consume(1, 1.0)
                        count += len([1 for message in found if message.error() is None])
                seconds = time.perf_counter() - began
                size = len(bodies[0])
                print(
                    f"{case} {how}, {size}, {number}, {count}, {seconds:.2f}, {count / seconds:,.0f}, "
                    f"{count * size / seconds / 1e6:.0f}",
                    flush=True,
                )
                source.close()


def fill(address: str, topics: list[str], bodies: list[bytes], number: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "linger.ms": 5, "log_level": 0})
    for topic in topics:
        producer.list_topics(topic, timeout=5)
    for i in range(number):
        topic, body = topics[i % len(topics)], bodies[i % len(bodies)]
        while True:
            try:
                producer.produce(topic, body, partition=i // len(topics) % 4)
                break
            except BufferError:
                producer.poll(0.01)
    assert producer.flush(30) == 0


if __name__ == "__main__":
    rates() if "--rates" in sys.argv else serve()
