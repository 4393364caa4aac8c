"""The client of schema registries against a server that speaks their documented interface."""

import socket
import threading
import time

import pytest
from support.schema_registry import schema_registry

from fcstream.connectors import open_decoder
from fcstream.connectors import schema_registry as client
from fcstream.connectors.schema_registry import SchemaRegistry
from fcstream.connectors.urls import parse
from fcstream.errors import ConfigError, SchemasUnreachable
from fcstream.formats.batch import Schema
from fcstream.formats.schemas import FoundSchema

TEXT = '{"type": "record", "name": "R", "fields": [{"name": "at", "type": "long"}]}'


def registry_of(url):
    return SchemaRegistry(parse(url, "source.registry"))


def test_schemas_are_found_by_number_and_guid():
    with schema_registry() as (url, server):
        guid = server.add(7, TEXT)
        server.add(8, "syntax = 'proto3';", kind="PROTOBUF")
        found = registry_of(url).find(["ids/7", f"guids/{guid}", "ids/8"])
    assert found["ids/7"] == found[f"guids/{guid}"] == FoundSchema(TEXT, "AVRO")
    assert found["ids/8"].kind == "PROTOBUF"


def test_references_come_before_what_refers_to_them(monkeypatch):
    monkeypatch.setattr(client, "UNKNOWN_S", 0.0)
    with schema_registry() as (url, server):
        server.add(1, '"int"', subject="deep/er")
        server.add(2, '"long"', subject="box", references=[("n", "deep/er", 1)])
        server.add(3, TEXT, references=[("m", "box", 1), ("n", "deep/er", 1)])
        server.add(4, TEXT, references=[("m", "none", 1)])
        server.add(5, '"x"', subject="ring", references=[("m", "ring", 1)])
        server.add(6, TEXT, references=[("m", "ring", 1)])
        registry = registry_of(url)
        assert registry.find(["ids/3"])["ids/3"] == FoundSchema(TEXT, "AVRO", ('"int"', '"long"'))
        assert registry.find(["ids/4", "ids/6"]) == {"ids/4": None, "ids/6": None}


def test_an_unknown_id_is_asked_for_again_for_a_bounded_time(monkeypatch):
    monkeypatch.setattr(client, "UNKNOWN_S", 0.5)
    with schema_registry() as (url, server):
        registry = registry_of(url)
        assert registry.find(["ids/9", "ids/10"]) == {"ids/9": None, "ids/10": None}
        asked = len(server.asked)
        assert asked > 3
        assert registry.find(["ids/9"]) == {"ids/9": None}
        assert len(server.asked) == asked + 1, "its time is over: asked once, and not waited for"
        server.add(9, TEXT)
        assert registry.find(["ids/9"])["ids/9"] is not None, "it is known from now on"


def test_made_up_ids_ask_the_registry_little_and_hold_nothing_up(monkeypatch):
    """Six bytes make an id: many would be a question each, and one every ten seconds a stream that always waits."""
    monkeypatch.setattr(client, "UNKNOWN_S", 0.3)
    with schema_registry() as (url, server):
        server.add(7, TEXT)
        registry = registry_of(url)
        registry.find(["ids/8"])
        until = time.monotonic() + 2
        for name in map("ids/{}".format, range(1000, 1020)):  # each for the first time, each alone
            registry.find([name])
        assert time.monotonic() < until, "each was waited for"
        assert registry.find(["ids/7"])["ids/7"] is not None
        names = [f"ids/{i}" for i in range(2000, 12_000)]
        assert set(registry.find(names).values()) == {None}
        assert len(server.asked) < client.QUESTIONS + 20
        monkeypatch.setattr(client, "QUESTIONS_PER_S", 1e6)
        assert registry.find(["ids/7"])["ids/7"] is not None, "some time later"


def test_an_id_that_appears_meanwhile_is_found(monkeypatch):
    monkeypatch.setattr(client, "UNKNOWN_S", 60.0)
    with schema_registry() as (url, server):

        def register():
            while not server.asked:
                time.sleep(0.01)
            server.add(9, TEXT)

        thread = threading.Thread(target=register)
        thread.start()
        assert registry_of(url).find(["ids/9"])["ids/9"] == FoundSchema(TEXT, "AVRO")
        thread.join()


def test_a_registry_that_is_away_or_troubled_is_waited_for_and_rejects_nothing():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(SchemasUnreachable, match=r"did not answer within 0\.2 s: .*messages wait for it"):
        registry_of(f"http://127.0.0.1:{port}?patience=0.2").find(["ids/7"])
    with schema_registry() as (url, server):
        server.add(7, TEXT)
        for trouble in (500, 503, 429, 401, 302):
            server.trouble = trouble
            with pytest.raises(SchemasUnreachable, match=f"status {trouble}"):
                registry_of(f"{url}?patience=0.2").find(["ids/7"])
        server.trouble = None
        with pytest.raises(SchemasUnreachable, match="status 404"):  # a wrong path is no unknown id
            registry_of(f"{url}/api?patience=0.2").find(["ids/7"])
        registry = registry_of(url)
        assert registry.check().endswith("answers")
        server.trouble = 500
        timer = threading.Timer(0.3, lambda: setattr(server, "trouble", None))
        timer.start()
        assert registry.find(["ids/7"])["ids/7"] is not None
        timer.join()


def test_an_old_registry_knows_no_guids(monkeypatch):
    monkeypatch.setattr(client, "UNKNOWN_S", 0.0)
    with schema_registry() as (url, server):
        server.knows_guids = False
        assert list(registry_of(url).find(["guids/x"]).values()) == [None]


def test_logins_are_sent_and_never_told():
    with schema_registry() as (url, server):
        server.login = "anna:s3cret"
        server.add(7, TEXT)
        address = url.replace("://", "://anna:s3cret@")
        assert registry_of(address).find(["ids/7"])["ids/7"] is not None
        with pytest.raises(SchemasUnreachable) as caught:
            registry_of(url.replace("://", "://anna:wr0ng@") + "?patience=0.1").find(["ids/7"])
        assert "wr0ng" not in str(caught.value)
        with pytest.raises(SchemasUnreachable):
            registry_of(f"{url}?token=t0ken&patience=0.1").find(["ids/7"])
        assert server.authorization[-1] == "Bearer t0ken"


def test_addresses_that_cannot_be_used_are_refused():
    schema = Schema("at", "ms", ())
    for url in ("kafka://localhost", "http://a,b", "http://localhost:1?tpken=x"):
        with pytest.raises(ConfigError, match=r"^source\.registry: ") as caught:
            open_decoder("avro", schema, {"registry": url})
        assert "=x" not in str(caught.value)
