"""The NATS server of this machine, with JetStream."""

import asyncio
import contextlib
import itertools
import os

import pytest

from support.helpers import service

HOST = os.environ.get("FCSTREAM_NATS", "127.0.0.1:4222")
NAMES = itertools.count()


class NatsServer:
    """What tests do behind a source's back."""

    def __init__(self, host, **options):
        self.host, self.options = host, options

    def ask(self, action):
        """The result of ``await action(client, jetstream)``."""
        import nats

        async def whole():
            options = {"connect_timeout": 30, "allow_reconnect": False, "max_reconnect_attempts": 1}
            client = await nats.connect(f"nats://{self.host}", error_cb=ignore, **options, **self.options)
            try:
                return await action(client, client.jetstream(timeout=60))
            finally:
                await client.close()

        return asyncio.run(whole())

    def js(self, what, *arguments, **options):
        return self.ask(lambda _, js: getattr(js, what)(*arguments, **options))

    def add(self, subject, bodies):
        async def publish(_, js):
            for start in range(0, len(bodies), 500):
                waiting = [await js.publish_async(subject, body) for body in bodies[start : start + 500]]
                await asyncio.gather(*waiting)

        self.ask(publish)

    def held(self, stream):
        """Bodies of a stream, by sequence."""

        async def read(_, js):
            state = (await js.stream_info(stream)).state
            return [(await js.get_msg(stream, n)).data for n in range(max(1, state.first_seq), state.last_seq + 1)]

        return self.ask(read)


async def ignore(_):
    pass


@pytest.fixture(scope="session")
def nats_server():
    found = NatsServer(HOST)
    service("NATS with JetStream (FCSTREAM_NATS names another host:port)", lambda: found.js("account_info"))
    return found


@pytest.fixture
def nats_stream(nats_server):
    """A stream of its own, and a bucket of the same name; gone afterwards."""
    name = f"fcstream_test_{os.getpid()}_{next(NAMES)}"
    nats_server.js("add_stream", name=name, subjects=[name, f"{name}.*"])
    yield name
    for each in (name, f"KV_{name}"):
        with contextlib.suppress(Exception):
            nats_server.js("delete_stream", each)
