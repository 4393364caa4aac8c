"""Connections to Redis: cut off, restarted, demoted, behind TLS, and addresses that cannot be used."""

import contextlib
import itertools
import random
import re
import shutil
import subprocess
import sys
import threading
import time

import pytest
from support.redis_server import Relay, add, cuttable, entry_id, listening, offset, sink, source
from support.sources import CONTENT, SECRET, bodies, drain, everything

from fcstream.connectors import is_live, open_live, open_sink
from fcstream.connectors.urls import parse
from fcstream.errors import ConfigError, FcstreamError, SinkError, SourceError
from fcstream.testing import sample_release


def refusing(answer):
    """A server that answers everything so."""

    def serve(near):
        with near, contextlib.suppress(OSError):
            while data := near.recv(1 << 16):
                near.sendall(answer * len(re.findall(rb"(?:^|\r\n)\*\d+\r\n", data)))

    return listening(serve)


def test_a_login_that_may_not_ask_for_the_time(private_redis):
    server = private_redis()
    with server.client() as client:
        add(client, "s", [b"1"])
        client.execute_command("ACL", "SETUSER", "other", "on", f">{SECRET}", "~*", "+@all", "-time")
    with contextlib.closing(open_live(f"redis://other:{SECRET}@{server.host}?stream=s", "n")) as opened:
        assert opened.clock() is None


def test_an_answer_that_makes_no_sense():
    with refusing(b"-MOVED 1\r\n") as host:
        for make in (source, sink):
            with pytest.raises(FcstreamError, match=r"refuses: (ValueError|MOVED)"), make("s", host=host):
                pass


def test_a_server_that_will_change_its_mind_is_waited_for():
    for code in ("UNBLOCKED", "CLUSTERDOWN", "MISCONF", "NOREPLICAS", "BUSY", "READONLY"):
        with refusing(f"-{code} {CONTENT.decode()}\r\n".encode()) as host:
            with (
                pytest.raises(SourceError, match=rf"cannot serve now: {code}; repair") as caught,
                source("s", host=host),
            ):
                pass
            assert CONTENT.decode() not in everything(caught.value)
    with refusing(b"-BUSYGROUP x\r\n") as host, pytest.raises(SourceError, match="refuses: BUSYGROUP"):
        source("s", host=host)


def test_a_poll_outlives_that_its_server_is_demoted(private_redis):
    server = private_redis()
    with server.client() as client, source("s", host=server.host) as opened:
        demotion = threading.Timer(0.3, client.replicaof, ("127.0.0.1", 1))
        demotion.start()
        assert opened.poll(10, 0.6) == []
        demotion.join()


def test_reach_without_scripts(private_redis, monkeypatch):
    server = private_redis()
    with server.client() as client:
        ids = add(client, "s", [b"1", b"2", b"3"])
        client.execute_command("ACL", "SETUSER", "other", "on", f">{SECRET}", "~*", "+@all", "-eval")
    with contextlib.closing(open_live(f"redis://other:{SECRET}@{server.host}?stream=s", "n")) as opened:
        assert opened.reach("s", 0, 2) == offset(ids[1]) + 1
    monkeypatch.setattr("fcstream.connectors.redis.source._REACH", "return redis.error_reply('OOM x')")
    with source("s", host=server.host) as opened, pytest.raises(SourceError, match="refuses: "):
        opened.reach("s", 0, 2)


def test_a_cut_connection_is_mended(private_redis):
    """Again and again while it reads: nothing is lost, nothing comes twice."""
    server, count, found, places = private_redis(), 40_000, [], random.Random(1)
    with server.client() as client:
        add(client, "s", [b"%d" % i for i in range(count)])
    with cuttable(server) as proxy, source("s", host=proxy.host, patience_s=30.0) as opened:
        until = time.monotonic() + 100
        for turn in itertools.count():
            if turn % 3 == 0:
                proxy.cut_after(places.randrange(60_000), *[places.randrange(1000) for _ in range(turn % 2)])
            for chunk in opened.poll(500, 0.1):
                found += chunk.bodies
                opened.commit({"s": int(chunk.offsets[-1])})
            if len(found) >= count or time.monotonic() > until:
                break
        assert proxy.cuts > 20
    assert found == [b"%d" % i for i in range(count)]


def test_a_restarted_server_that_kept_nothing(private_redis):
    """Streams and positions are gone; what is added then is read."""
    server = private_redis()
    with source("s", host=server.host, patience_s=60.0) as opened:
        with server.client() as client:
            add(client, "s", [b"before"])
        [(_, offset, _, body)] = drain(opened, 1)
        assert body == b"before"
        opened.commit({"s": offset + 1})
        found = []
        reader = threading.Thread(target=lambda: found.extend(opened.poll(10, 60.0)))
        reader.start()  # it waits in the middle of a command
        time.sleep(0.3)
        server.stop()
        time.sleep(0.5)
        server.start()
        with server.client() as client:
            add(client, "s", [b"after"])
            reader.join()
            assert [chunk.bodies for chunk in found] == [[b"after"]]
            assert found[0].offsets[0] > offset
            assert not opened.behind(opened.ends())
            opened.commit({"s": int(found[0].offsets[0]) + 1})
            assert client.hget("fcstream:s:positions", "s") == entry_id(int(found[0].offsets[0]) + 1).encode()


def test_patience_ends(private_redis):
    server = private_redis()
    with source("s", "&patience=0.5", host=server.host) as opened, sink("r", "&patience=0.5", server.host) as out:
        server.stop()
        for call, error in (
            (lambda: opened.poll(1, 0.1), SourceError),
            (opened.ends, SourceError),
            (lambda: opened.commit({"s": 5}), SourceError),
            (lambda: out.write([sample_release(1)]), SinkError),
            (out.last, SinkError),
        ):
            started = time.monotonic()
            with pytest.raises(error, match="cannot be reached: Connection refused"):
                call()
            assert time.monotonic() - started < 30
        server.start()
        out.write([sample_release(1)])
        assert opened.poll(1, 0.1) == []
        assert not opened.behind(opened.ends())
        opened.commit({"s": 5})


def test_an_address_where_nobody_answers_is_reported_at_once():
    started = time.monotonic()
    for make in (source, sink):
        with pytest.raises(FcstreamError, match="cannot be reached"), make("s", host="127.0.0.1:1", patience_s=60.0):
            pass
    assert time.monotonic() - started < 30


def test_no_secret_and_no_content_in_any_error(private_redis, caplog, monkeypatch):
    caplog.set_level(0)
    server = private_redis("--requirepass", SECRET)
    right, wrong = f"{SECRET}", f"{SECRET}Wrong"
    monkeypatch.setenv("FCSTREAM_TEST_PASSWORD", wrong)
    seen = []
    urls = [
        f"redis://:{wrong}@{server.host}?stream=s",
        f"redis://user:{wrong}@{server.host}?stream=s",
        f"redis://:${{FCSTREAM_TEST_PASSWORD}}@{server.host}?stream=s",
        f"redis://:{right}@{server.host}?stream=s&unknown=1",
        f"redis://:{right}@{server.host}/x?stream=s",
        f"redis://:{right}@{server.host}/9999?stream=s",
        f"redis://:{right}@{server.host}",
        f"redis://:{right}@{server.host}?stream=,",
        f"redis://:{right}@{server.host},other:1?stream=s",
        f"redis://:{right}@127.0.0.1:1?stream=s",
        f"rediss://:{right}@{server.host}?stream=s",
        f"redis://:{right}@{server.host}?stream=s&patience=x",
    ]
    for url in urls:
        for open_one in (lambda url: open_live(url, "n"), open_sink):
            if "stream=," in url and open_one is open_sink:
                continue
            if url.startswith("rediss"):  # a server without TLS never answers
                monkeypatch.setattr("fcstream.connectors.redis.connection._SOCKET_S", 1.0)
            with pytest.raises(FcstreamError) as caught:
                open_one(url)
            monkeypatch.setattr("fcstream.connectors.redis.connection._SOCKET_S", 15.0)
            seen.append(everything(caught.value))
    with pytest.raises(SourceError, match="refuses: AuthenticationError"):
        open_live(f"redis://{server.host}?stream=s", "n")
    with pytest.raises(SourceError, match=r"redis://\*\*\*@.* refuses: "):
        open_live(urls[0], "n")
    with server.client(password=SECRET) as client:
        client.set("s", CONTENT)
        with pytest.raises(FcstreamError) as caught:
            open_live(f"redis://:{right}@{server.host}?stream=s", "n")
        assert "WRONGTYPE" in str(caught.value)
        client.delete("s")
        opened = open_live(f"redis://:{right}@{server.host}?stream=s&patience=1", "n")
        client.set("s", CONTENT)
        for call in (lambda: opened.poll(1, 0.1), opened.ends, lambda: opened.behind({"s": 9})):
            with pytest.raises(SourceError) as caught:
                call()
            seen.append(everything(caught.value))
        client.config_set("requirepass", "another")
        server_side = [c for c in client.client_list() if c["cmd"] != "client|list"]
        client.execute_command("CLIENT", "KILL", "TYPE", "normal")
        assert server_side
        with pytest.raises(SourceError, match="refuses") as caught:
            opened.poll(1, 0.1)
        seen.append(everything(caught.value))
        opened.close()
        assert SECRET not in repr(parse(urls[3], "x"))
    for text in [*seen, caplog.text]:
        assert SECRET not in text
        assert CONTENT.decode() not in text


def test_tls(private_redis, tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", f"{tmp_path}/key.pem", "-out", f"{tmp_path}/cert.pem"]
    subprocess.run([*command, *names, *files], check=True, capture_output=True)
    cert, key = f"{tmp_path}/cert.pem", f"{tmp_path}/key.pem"
    server = private_redis(
        *["--port", "0", "--tls-port", "PORT", "--tls-cert-file", cert, "--tls-key-file", key],
        *["--tls-ca-cert-file", cert],
    )
    whole = f"rediss://localhost:{server.port}?stream=s&ca={cert}&cert={cert}&key={key}"
    with contextlib.closing(open_sink(whole.replace("stream=s", "stream=r"))) as out:
        out.write([sample_release(1)])
    with contextlib.closing(open_live(whole.replace("stream=s", "stream=r"), "n")) as opened:
        assert bodies(drain(opened, 1)) == [sample_release(1).to_bytes()]
    for url in (
        whole.replace(f"ca={cert}&", ""),  # nobody vouches for it
        whole.replace("localhost", "127.0.0.1"),  # another's certificate
        whole.replace(f"cert={cert}&key={key}", ""),  # the server wants one of ours
        whole.replace("cert.pem", "none.pem"),
        whole.replace("rediss", "redis"),
    ):
        with pytest.raises(FcstreamError):
            open_live(url, "n")


def test_tls_trusts_the_named_authority_alone(private_redis, tmp_path, monkeypatch):
    """Not the system's besides."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificates")
    for name in ("server", "other"):
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
        files = ["-keyout", f"{tmp_path}/{name}.key", "-out", f"{tmp_path}/{name}.pem"]
        subprocess.run([*command, "-addext", "subjectAltName=DNS:localhost", *files], check=True, capture_output=True)
    cert, other = f"{tmp_path}/server.pem", f"{tmp_path}/other.pem"
    server = private_redis(
        *["--port", "0", "--tls-port", "PORT", "--tls-cert-file", cert, "--tls-key-file", f"{tmp_path}/server.key"],
        *["--tls-ca-cert-file", cert, "--tls-auth-clients", "no"],
    )
    monkeypatch.setenv("SSL_CERT_FILE", cert)
    open_live(f"rediss://localhost:{server.port}?stream=s", "n").close()
    open_live(f"rediss://localhost:{server.port}?stream=s&ca={cert}", "n").close()
    with pytest.raises(SourceError, match="its certificate is refused"):
        open_live(f"rediss://localhost:{server.port}?stream=s&ca={other}", "n")


def test_a_missing_client_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ConfigError, match=r"source.url: needs the package redis: .*pip install .*\[redis\]'"):
        open_live("redis://localhost?stream=s", "n")


def test_addresses():
    assert is_live("redis://x?stream=y")
    assert is_live("rediss://x?stream=y")
    with pytest.raises(ConfigError, match="unknown option 'ca'"):
        open_live("redis://localhost?stream=s&ca=x", "n")
    with pytest.raises(ConfigError, match="must name `stream`"):
        open_sink("redis://localhost")


def test_a_demoted_master_is_left(private_redis):
    """Its name leads to the new one, its connections do not."""
    old, new = private_redis(), private_redis()
    relay = Relay(old.port)
    with old.client() as client, new.client() as other, listening(relay.serve) as host:
        with sink("r", host=host) as out, source("s", host=host) as opened:
            out.write([sample_release(0)])
            opened.poll(1, 0.1)
            relay.port = new.port
            client.replicaof("127.0.0.1", 1)
            out.write([sample_release(1), sample_release(2)])
            out.send([b"letter"])
            opened.commit({"s": offset(b"5-0")})
        assert other.xlen("r") == 3
        assert other.hgetall("fcstream:s:positions") == {b"s": b"5-0"}
