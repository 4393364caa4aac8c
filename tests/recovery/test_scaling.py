"""Several processes and one PostgreSQL ledger: a consumer group that divides a keyed stream, and a process that stands
by for another. Real processes, a real PostgreSQL; Kafka is librdkafka's mock cluster in another process."""

import json
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing, contextmanager

import pytest
from support import kafka_mock, redis_server
from support.helpers import counting_job, service
from support.postgres import URL as SERVER
from support.proxy import Proxy

from fcstream import Release
from fcstream.connectors.partitioners import partition_of
from fcstream.ledgers import each_reader

psycopg = pytest.importorskip("psycopg")
confluent_kafka = pytest.importorskip("confluent_kafka")
pytestmark = pytest.mark.beside
KEYS = [f"site {i}" for i in range(8)]
LENGTH_MS = 1000


class Fleet:
    """Processes of one configuration, the rows they write, and what was sent."""

    def __init__(self, folder, source, **keys):
        self.folder = folder
        self.table = f"fcstream_test_{secrets.token_hex(6)}"
        self.db = service("PostgreSQL", lambda: psycopg.connect(SERVER, autocommit=True))
        self.start_ms = time.time_ns() // 10**6 // LENGTH_MS * LENGTH_MS
        self.sections = {"source": source, "stream": {"name": "scaled"} | keys}
        self.sent = Counter()
        self.processes = {}

    def start(self, name, port=5432):
        """`port` of the ledger's server, or of a proxy before it."""
        text = counting_job(
            self.start_ms // 1000,
            window={"lateness": "3s"},
            sink={"url": f"{SERVER}?table={self.table}"},
            ledger={"url": f"{SERVER.replace('5432', str(port))}?schema={self.table}"},
            **self.sections,
        )
        (self.folder / f"{name}.toml").write_text(text)
        with open(self.folder / f"{name}.log", "w") as log:
            command = [sys.executable, "-m", "fcstream", "run", f"{name}.toml"]
            self.processes[name] = subprocess.Popen(command, cwd=self.folder, stderr=log)

    def log(self, name):
        return (self.folder / f"{name}.log").read_text()

    def stands_by(self, name):
        """Whether the last thing that the process said about its part is that it stands by."""
        log = self.log(name)
        return log.rfind("standing by") > log.rfind("serves the stream now")

    def roles(self):
        """The one of two processes that serves, and the one that stands by. On a busy machine the first to come may be
        replaced by the second before a test does anything to it."""
        self.wait(lambda: sum(map(self.stands_by, self.processes)) == 1)
        return sorted(self.processes, key=self.stands_by)

    def end(self, *names):
        for name in names:
            self.processes[name].terminate()
        for name in names:
            assert self.processes[name].wait(120) == 0, {name: self.log(name) for name in self.processes}

    def releases(self):
        if not self.db.execute("SELECT to_regclass(%s)", (self.table,)).fetchone()[0]:
            return []
        rows = self.db.execute(f"SELECT body::text FROM {self.table} ORDER BY stream, window_open_ms").fetchall()
        return [Release.from_bytes(body.encode()) for (body,) in rows]

    def wait(self, what):
        until = time.monotonic() + 300
        while not what():
            assert time.monotonic() < until, {name: self.log(name) for name in self.processes}
            time.sleep(0.05)

    def sends_until(self, client, name, what):
        """Records to a Redis stream all the while."""
        self.wait(lambda: client.xadd(name, {"data": record(self)[1]}) and what())

    def close(self):
        for process in self.processes.values():
            process.kill()
            process.wait()
        self.db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'fcstream' "
            "AND query LIKE %s", (f"%{self.table}%",)
        )  # fmt: skip
        self.db.execute(f"DROP SCHEMA IF EXISTS {self.table} CASCADE")
        self.db.execute(f"DROP TABLE IF EXISTS {self.table}")
        self.db.close()


@contextmanager
def fleet(*args, **options):
    it = Fleet(*args, **options)
    try:
        yield it
    finally:
        it.close()


def record(fleet, key=None):
    now = time.time_ns() // 10**6
    fleet.sent[key, now // LENGTH_MS * LENGTH_MS] += 1
    return now, json.dumps({"ts_ms": now, "a": 20.0, "site": key})


def check(fleet, keys):
    """Every window of every key once, in order, with what was sent; each charged once."""
    found = fleet.releases()
    for key in keys:
        mine = [release for release in found if release.key == key]
        opens = [release.window_open_ms for release in mine]
        assert opens == list(range(fleet.start_ms, opens[-1] + 1, LENGTH_MS))
        for release in mine:
            if release.reason != "interrupted":
                assert abs(release.count - fleet.sent[key, release.window_open_ms]) <= 1, release
    lost = sum(fleet.log(name).count("starting over") for name in fleet.processes)
    assert sum(release.reason == "interrupted" for release in found) <= 1 + lost
    for reader in each_reader(f"{SERVER}?schema={fleet.table}"):
        reader.verify()
        kinds = Counter((row.kind, row.open_ms) for row in reader.rows())
        assert {n for (kind, _), n in kinds.items() if kind in ("charge", "seal")} == {1}


def test_three_processes_share_a_stream_and_one_is_killed_in_mid_window(folder):
    with kafka_mock.mock() as (address, _), closing(closing_producer(address)) as producer:
        topic = f"t{secrets.token_hex(4)}"
        producer.it.list_topics(topic, timeout=60)
        source = {"url": f"kafka://{address}/{topic}?session_s=6", "partitioner": "crc32"}
        with fleet(folder, source, key="site", keys=KEYS) as it:
            for name in "abc":
                it.start(name)

            def send(seconds):
                until = time.monotonic() + seconds
                while time.monotonic() < until:
                    for key in KEYS:
                        now, body = record(it, key)
                        producer.it.produce(topic, body, partition=partition_of("crc32", key, 4), timestamp=now)
                    producer.it.poll(0)
                    time.sleep(0.02)

            def windows():
                return min((len([r for r in it.releases() if r.key == key]) for key in KEYS), default=0)

            it.wait(lambda: send(0.2) or windows() >= 2)
            send(0.5 + (LENGTH_MS - time.time_ns() // 10**6 % LENGTH_MS) / 1000)  # to the middle of a window
            it.processes["b"].kill()
            killed_at = time.time_ns() // 10**6
            it.wait(lambda: send(0.2) or windows() * LENGTH_MS + it.start_ms > killed_at + 2 * LENGTH_MS)
            it.start("d")
            back_at = time.time_ns() // 10**6
            it.wait(lambda: send(0.2) or windows() * LENGTH_MS + it.start_ms > back_at + 2 * LENGTH_MS)
            it.wait(lambda: windows() * LENGTH_MS + it.start_ms > back_at + 4 * LENGTH_MS)
            it.wait(lambda: it.log("d"))  # it runs, and takes signals
            it.end(*"acd")
            check(it, KEYS)


def closing_producer(address):
    class It:
        it = confluent_kafka.Producer({"bootstrap.servers": address, "linger.ms": 1, "log_level": 0})

        def close(self):
            self.it.purge()
            self.it.flush(1)

    return It()


@contextmanager
def two_on_redis(folder):
    client = redis_server.connect()
    name = f"test-{secrets.token_hex(6)}"
    source = {"url": f"redis://127.0.0.1:6379/0?stream={name}&patience=2", "name": name}
    with closing(client), fleet(folder, source) as it:
        yield it, client, name
        client.delete(name)


def test_one_process_answers_and_another_stands_by(folder):
    with two_on_redis(folder) as (it, client, name):
        it.start("a")
        it.wait(it.releases)
        it.start("b")
        serving, standing = it.roles()
        assert "starting over" not in it.log("a") or "has not answered" in it.log("a")
        for _ in range(20):
            client.xadd(name, {"data": record(it)[1]})
        it.processes[serving].kill()
        for _ in range(20):
            client.xadd(name, {"data": record(it)[1]})
        last = time.time_ns() // 10**6
        it.wait(lambda: it.releases()[-1].window_open_ms > last)
        assert not it.stands_by(standing)
        it.end(standing)
        check(it, [None])


def is_answered(it, moment_ms):
    found = it.releases()
    return bool(found) and found[-1].window_open_ms > moment_ms


def test_a_stopped_process_is_replaced_within_seconds_and_stands_by_when_it_wakes_up(folder):
    with two_on_redis(folder) as (it, client, name):
        it.start("a")
        it.sends_until(client, name, it.releases)
        it.start("b")
        stopped, _ = it.roles()
        it.processes[stopped].send_signal(signal.SIGSTOP)
        stopped_ms = time.time_ns() // 10**6
        it.sends_until(client, name, lambda: is_answered(it, stopped_ms))
        it.processes[stopped].send_signal(signal.SIGCONT)
        it.sends_until(client, name, lambda: it.stands_by(stopped))
        woken_ms = time.time_ns() // 10**6
        it.sends_until(client, name, lambda: is_answered(it, woken_ms))
        it.end("a", "b")
        check(it, [None])


def test_a_process_whose_ledger_is_out_of_reach_is_replaced_within_seconds(folder):
    with two_on_redis(folder) as (it, client, name), Proxy(5432) as of_a, Proxy(5432) as of_b:
        it.start("a", of_a.port)
        it.sends_until(client, name, it.releases)
        it.start("b", of_b.port)
        lost, _ = it.roles()
        proxy = {"a": of_a, "b": of_b}[lost]
        proxy.is_silent = True
        silent_ms = time.time_ns() // 10**6
        it.sends_until(client, name, lambda: is_answered(it, silent_ms))
        proxy.is_silent = False
        it.sends_until(client, name, lambda: it.stands_by(lost))
        it.end("a", "b")
        check(it, [None])
