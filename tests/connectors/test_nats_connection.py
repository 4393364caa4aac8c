"""Connections to JetStream: cut off, locked, restarted, behind TLS, and addresses that cannot be used."""

import base64
import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from support.nats_server import HOST, cuttable, sink, source
from support.proxy import Proxy
from support.sources import CONTENT, SECRET, bodies, drain, everything, until

from fcstream.connectors import is_live, open_live, open_sink
from fcstream.errors import ConfigError, FcstreamError, SinkError, SourceError
from fcstream.testing import sample_release


def test_a_cut_connection_is_mended(nats_server, nats_stream):
    """In the middle of batches: nothing is lost, nothing comes twice."""
    count, found, places = 30_000, [], random.Random(1)
    nats_server.add(nats_stream, [b"%d" % i for i in range(count)])
    with cuttable() as proxy, source(nats_stream, host=proxy.host, patience_s=30.0) as opened:
        until = time.monotonic() + 100
        for turn in itertools.count():
            if turn % 3 == 0:
                proxy.cut_after(places.randrange(60_000), *[places.randrange(3000) for _ in range(turn % 2)])
            for chunk in opened.poll(500, 0.1):
                found += chunk.bodies
                opened.commit({nats_stream: int(chunk.offsets[-1])})
            if len(found) >= count or time.monotonic() > until:
                break
        assert proxy.cuts > 20
    assert found == [b"%d" % i for i in range(count)]


def test_a_restarted_server(private_nats):
    server = private_nats()
    server.js("add_stream", name="s", subjects=["s"])
    server.add("s", [b"%d" % i for i in range(10)])
    with source("s", host=server.host, patience_s=60.0) as opened, sink("s", host=server.host) as out:
        first = drain(opened, 10)
        opened.commit({"s": 5})
        found = []
        reader = threading.Thread(target=lambda: found.extend(opened.poll(10, 60.0)))
        reader.start()
        time.sleep(0.3)
        server.stop()
        time.sleep(0.5)
        server.start()
        server.add("s", [b"after"])
        reader.join()
        assert [chunk.bodies for chunk in found] == [[b"after"]]
        assert not opened.behind(opened.ends())
        out.write([sample_release(1)])
        assert out.last() == sample_release(1)
    with source("s", host=server.host) as opened:
        assert drain(opened, 8)[:6] == first[4:]


def test_patience_ends(private_nats):
    server = private_nats()
    server.js("add_stream", name="s", subjects=["s"])
    with source("s", "&patience=0.5", host=server.host) as opened, sink("s", "&patience=0.5", server.host) as out:
        server.stop()
        assert until(lambda: opened._wire.client.is_closed and out._wire.client.is_closed)
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
        assert opened.poll(1, 0.1) == []
        opened.commit({"s": 5})
        out.write([sample_release(1)])
    for closed in (opened.ends, out.last):
        with pytest.raises(FcstreamError, match="was closed"):
            closed()
    opened.close()


def test_an_address_where_nobody_answers_is_reported_at_once():
    started = time.monotonic()
    for make in (source, sink):
        with pytest.raises(FcstreamError, match="cannot be reached"), make("s", host="127.0.0.1:1", patience_s=60.0):
            pass
    assert time.monotonic() - started < 30


def test_the_next_host_is_tried(nats_server, nats_stream):
    with source(nats_stream, host=f"127.0.0.1:1,{HOST}") as opened:
        assert opened.poll(1, 0.1) == []


def test_what_must_exist(nats_server, nats_stream):
    for make, match in (
        (lambda: source("fcstream_none"), "refuses: stream not found"),
        (lambda: sink("fcstream_none"), "refuses"),
        (lambda: source(nats_stream, "&subject=elsewhere"), None),
    ):
        with pytest.raises(FcstreamError, match=match), make() as opened:
            opened.poll(1, 0.1)
    with pytest.raises(SinkError, match="add it to the stream"):
        open_sink(f"nats://{HOST}/fcstream_none?subject={nats_stream}")
    with pytest.raises(ConfigError, match="without wildcards"):
        open_sink(f"nats://{HOST}/{nats_stream}?subject={nats_stream}.*")
    with pytest.raises(ConfigError, match="must be nats://host/STREAM"):
        open_live(f"nats://{HOST}/a.b", "n")


LOCKED = """
accounts: {
  A: { jetstream: enabled, users: [
    {user: all, password: "SECRET"}
    {user: reader, password: "SECRET", permissions: {publish: {deny: "$JS.API.CONSUMER.>"}}}
    {user: writer, password: "SECRET", permissions: {publish: {deny: "s"}}}
  ] }
}
""".replace("SECRET", SECRET)


def test_no_secret_and_no_content_in_any_error(private_nats, caplog, monkeypatch, tmp_path):
    caplog.set_level(0)
    server = private_nats(LOCKED, user="all", password=SECRET)
    server.js("add_stream", name="s", subjects=["s"])
    server.add("s", [CONTENT])
    wrong, login = f"{SECRET}Wrong", f"all:{SECRET}"
    monkeypatch.setenv("FCSTREAM_TEST_PASSWORD", wrong)
    (tmp_path / "creds").write_text(f"nothing {SECRET}")
    seen = []
    for url in (
        f"nats://all:{wrong}@{server.host}/s?subject=s",
        f"nats://all:${{FCSTREAM_TEST_PASSWORD}}@{server.host}/s?subject=s",
        f"nats://{server.host}/s?subject=s&token={SECRET}",
        f"nats://{SECRET}@{server.host}/s?subject=s",
        f"nats://{login}@{server.host}/s?subject=s&unknown=1",
        f"nats://{login}@{server.host}/?subject=s",
        f"nats://{login}@{server.host}/none?subject=none",
        f"nats://{login}@127.0.0.1:1/s?subject=s",
        f"nats://{login}@{server.host}/s?subject=s&tls=yes",
        f"nats://{login}@{server.host}/s?subject=s&ca=/none/{SECRET}".replace(f"/{SECRET}", ""),
        f"nats://{login}@{server.host}/s?subject=s&patience=x",
        f"nats://{SECRET}@{server.host}/",
        f"nats://{login}@{server.host}/s?subject=s&creds=/none",
        f"nats://{server.host}/s?subject=s&creds={tmp_path}/creds",
    ):
        for open_one in (lambda url: open_live(url, "n"), open_sink):
            with pytest.raises(FcstreamError) as caught:
                open_one(url)
            seen.append(everything(caught.value))
    assert "refuses: authorization" in seen[0]
    assert "***@" in seen[0]
    with contextlib.closing(open_sink(f"nats://{login}@{server.host}/s?subject=s")) as out:
        with pytest.raises(SinkError, match="holds something else") as caught:
            out.last()
        seen.append(everything(caught.value))
    monkeypatch.setattr("fcstream.connectors.nats.connection.REQUEST_S", 3.0)  # what is forbidden is never answered
    reader = open_live(f"nats://reader:{SECRET}@{server.host}/s?patience=1", "n")
    writer = open_sink(f"nats://writer:{SECRET}@{server.host}/s?subject=s&patience=1")
    with contextlib.closing(reader), contextlib.closing(writer):
        for call in (lambda: reader.poll(1, 0.1), lambda: writer.write([sample_release(1)])):
            with pytest.raises(FcstreamError, match="refuses: permissions") as caught:
                call()
            seen.append(everything(caught.value))
    for text in [*seen, caplog.text]:
        assert SECRET not in text
        assert CONTENT.decode() not in text


def token(signer, subject, **claims):
    """A signed JSON Web Token, as `nsc` makes them."""

    def part(content):
        return base64.urlsafe_b64encode(content).rstrip(b"=")

    claim = {"jti": "x", "iat": 1, "iss": signer.public_key.decode(), "sub": subject.public_key.decode()}
    head, body = {"typ": "JWT", "alg": "ed25519-nkey"}, {**claim, "name": "x", "nats": {**claims, "version": 2}}
    text = b".".join(part(json.dumps(each).encode()) for each in (head, body))
    return (text + b"." + part(signer.sign(text))).decode()


def test_a_file_of_credentials(private_nats, tmp_path):
    import nkeys

    kinds = (nkeys.PREFIX_BYTE_OPERATOR, nkeys.PREFIX_BYTE_ACCOUNT, nkeys.PREFIX_BYTE_ACCOUNT, nkeys.PREFIX_BYTE_USER)
    operator, system, account, user = (
        nkeys.from_seed(bytearray(nkeys.encode_seed(os.urandom(32), kind))) for kind in kinds
    )
    limits = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
    storage = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)
    tokens = {
        system: token(operator, system, type="account", limits=limits),
        account: token(operator, account, type="account", limits=limits | storage),
    }
    preload = ", ".join(f"{key.public_key.decode()}: {text}" for key, text in tokens.items())
    creds = tmp_path / "user.creds"
    creds.write_text(
        f"-----BEGIN NATS USER JWT-----\n{token(account, user, type='user', subs=-1, data=-1, payload=-1)}\n"
        f"------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n"
        "------END USER NKEY SEED------\n"
    )
    server = private_nats(
        f"operator: {token(operator, operator, type='operator')}\nresolver: MEMORY\n"
        f"system_account: {system.public_key.decode()}\nresolver_preload: {{ {preload} }}\n",
        user_credentials=str(creds),
    )
    server.js("add_stream", name="s", subjects=["s"])
    server.add("s", [b"1"])
    with source("s", f"&creds={creds}", host=server.host) as opened:
        assert bodies(drain(opened, 1)) == [b"1"]
    with pytest.raises(SourceError, match="refuses: authorization"), source("s", host=server.host):
        pass
    for torn in (creds.read_text().replace("BEGIN USER", ""), creds.read_text().replace("\nSU", f"\n{SECRET}"), ""):
        creds.write_text(torn)
        with pytest.raises(SourceError) as caught, source("s", f"&creds={creds}", host=server.host):
            pass
        assert SECRET not in everything(caught.value)
        assert user.seed.decode() not in everything(caught.value)


def test_tls(private_nats, tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", f"{tmp_path}/key.pem", "-out", f"{tmp_path}/cert.pem"]
    subprocess.run([*command, *names, *files], check=True, capture_output=True)
    cert, key = f"{tmp_path}/cert.pem", f"{tmp_path}/key.pem"
    import ssl

    context = ssl.create_default_context(cafile=cert)
    context.load_cert_chain(cert, key)
    server = private_nats(
        f'tls: {{cert_file: "{cert}", key_file: "{key}", ca_file: "{cert}", verify: true}}',
        tls=context,
        tls_hostname="localhost",
    )
    server.js("add_stream", name="s", subjects=["s"])
    whole = f"nats://localhost:{server.port}/s?subject=s&ca={cert}&cert={cert}&key={key}&patience=1"
    with contextlib.closing(open_sink(whole)) as out:
        out.write([sample_release(1)])
    with contextlib.closing(open_live(whole, "n")) as opened:
        assert bodies(drain(opened, 1)) == [sample_release(1).to_bytes()]
    for url in (
        whole.replace(f"ca={cert}&", ""),  # nobody vouches for it
        whole.replace("localhost", "127.0.0.1"),  # another's certificate
        whole.replace(f"cert={cert}&key={key}", ""),  # the server wants one of ours
        whole.replace("cert.pem", "none.pem"),
    ):
        with pytest.raises(FcstreamError):
            open_live(url, "n")


def test_a_server_that_does_not_ask_for_tls_gets_no_password():
    heard = b""
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]

        def listen():
            nonlocal heard
            door.settimeout(60)
            with door.accept()[0] as peer:
                peer.settimeout(60)
                info = {"server_id": "x", "version": "2.9.10", "headers": True, "max_payload": 1 << 20}
                info["auth_required"] = True
                peer.sendall(b"INFO " + json.dumps(info).encode() + b"\r\n")
                with contextlib.suppress(OSError):
                    while data := peer.recv(4096):
                        heard += data

        listener = threading.Thread(target=listen)
        listener.start()
        with pytest.raises(SourceError, match="SecureConnRequiredError"):
            open_live(f"nats://all:{SECRET}@127.0.0.1:{port}/s?tls=yes", "n")
        listener.join()
    assert SECRET.encode() not in heard


def test_a_missing_client_is_named(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "nats"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "nats", None)
    with pytest.raises(ConfigError, match=r"source.url: needs the package nats-py: .*pip install .*\[nats\]'"):
        open_live("nats://localhost/s", "n")


def test_addresses():
    assert is_live("nats://x/y")
    with pytest.raises(ConfigError, match="unknown option 'group'"):
        open_sink("nats://localhost/s?subject=s&group=x")
    with pytest.raises(ConfigError, match="must name `subject`"):
        open_sink("nats://localhost/s")


def test_names_that_cannot_work():
    for url, match in (
        (f"nats://{HOST}/s?bucket=a.b", "letters, digits"),
        (f"nats://{HOST}/s?bucket={'b' * 253}", "at most 252 bytes as a `bucket`, got 253"),
        (f"nats://{HOST}/s?group={'g' * 2001}", "at most 2000 bytes as the key of stream and `group`, got 2003"),
        (f"nats://{HOST}/s?subject={'g' * 2001}", "at most 2000 bytes as a `subject`, got 2001"),
        (f"nats://{HOST}/{'s' * 256}", "at most 255 bytes as a stream's name, got 256"),
    ):
        with pytest.raises(ConfigError, match=match):
            open_live(url, "n")
    with pytest.raises(ConfigError, match="at most 2000 bytes as a `subject`"):
        open_sink(f"nats://{HOST}/s?subject={'g' * 2001}")


def test_close_is_quick_when_the_server_is_silent(private_nats, monkeypatch):
    for name in ("sink", "reader", "connection"):
        monkeypatch.setattr(f"fcstream.connectors.nats.{name}.REQUEST_S", 60.0)
    server = private_nats()
    server.js("add_stream", name="s", subjects=["s"])
    with source("s", host=server.host) as opened:
        opened.poll(1, 0.1)
        server.signal(signal.SIGSTOP)
        try:
            started = time.monotonic()
            opened.close()
            assert time.monotonic() - started < 30
        finally:
            server.signal(signal.SIGCONT)


def test_close_does_not_connect_again(nats_server, nats_stream):
    proxy = Proxy(int(HOST.partition(":")[2]))
    with contextlib.closing(proxy), source(nats_stream, host=proxy.host) as opened:
        opened.poll(1, 0.1)
        proxy.cut()
        assert until(lambda: opened._wire.client.is_closed)
        opened.close()
        time.sleep(0.1)
        assert proxy._pairs == []
