"""TLS and logins against servers of our own: an authority of ours, certificates asked for on both sides, passwords from
the environment and from files. RabbitMQ has such a test beside its others; so have webhooks."""

import asyncio
import contextlib
import gc
import logging
import shutil
import ssl
import subprocess
import time
import traceback
import urllib.parse
import warnings

import pytest
from support.certificates import certificates
from support.helpers import free_port, service
from support.proxy import Proxy

from fcstream.connectors import open_live, open_sink
from fcstream.connectors.spool import Spool
from fcstream.connectors.spooled import SpooledSource
from fcstream.errors import ConfigError, FcstreamError, SourceError
from fcstream.testing import SourceContract, sample_release

PASSWORD = "s3cret/W@rd:100%?#&"
WRONG = "an0ther/W@rd:5%"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return certificates(tmp_path_factory.mktemp("certificates"))


class Redis:
    client, command = "redis", "redis-server"

    def arguments(self, folder, files):
        tls = {"port": self.port, "cert-file": files.server, "key-file": files.server_key, "ca-cert-file": files.ca}
        yield from ("--port", "0", "--bind", "127.0.0.1", "--save", "", "--dir", folder)
        yield from (part for name, value in tls.items() for part in (f"--tls-{name}", str(value)))
        yield from ("--user", "me", "on", f">{PASSWORD}", "~*", "&*", "+@all", "--user", "default", "off")

    def url(self, login, files, host="localhost"):
        return f"rediss://me:{login}@{host}:{self.port}/0?stream=s"

    def look(self, files):
        open_live(f"{self.url(urllib.parse.quote(PASSWORD, safe=''), files)}&{files.login}", "look").close()


class Nats:
    client, command = "nats", "nats-server"

    def arguments(self, folder, files):
        (folder / "nats.conf").write_text(
            f"""
host: "127.0.0.1", port: {self.port}, jetstream {{store_dir: "{folder}/data"}}
authorization {{user: me, password: "{PASSWORD}"}}
tls {{cert_file: "{files.server}", key_file: "{files.server_key}", ca_file: "{files.ca}", verify: true}}
"""
        )
        yield from ("-c", folder / "nats.conf")

    def url(self, login, files, host="localhost"):
        return f"nats://me:{login}@{host}:{self.port}/s?subject=s&tls=yes"

    def look(self, files):
        import nats

        async def make():
            context = ssl.create_default_context(cafile=files.ca)
            context.load_cert_chain(files.client, files.client_key)
            login = {"user": "me", "password": PASSWORD, "allow_reconnect": False, "tls": context}
            client = await nats.connect(f"nats://localhost:{self.port}", error_cb=ignore, **login)
            await client.jetstream().add_stream(name="s", subjects=["s"])
            await client.close()

        async def ignore(_):
            pass

        asyncio.run(make())


class Mosquitto:
    client, command = "paho.mqtt.client", "mosquitto"

    def arguments(self, folder, files):
        subprocess.run(["mosquitto_passwd", "-b", "-c", folder / "logins", "me", PASSWORD], check=True)
        (folder / "mosquitto.conf").write_text(
            f"""\
listener {self.port} 127.0.0.1
cafile {files.ca}
certfile {files.server}
keyfile {files.server_key}
require_certificate true
allow_anonymous false
password_file {folder}/logins
user root
"""
        )
        yield from ("-c", folder / "mosquitto.conf")

    def url(self, login, files, host="localhost"):
        return f"mqtts://me:{login}@{host}:{self.port}/s?patience=5"

    def look(self, files):
        open_live(f"{self.url(urllib.parse.quote(PASSWORD, safe=''), files)}&{files.login}", "look").close()


@pytest.fixture(scope="module", params=[Redis, Nats, Mosquitto], ids=lambda kind: kind.__name__)
def server(request, tmp_path_factory, files):
    """One of the servers, with TLS only."""
    pytest.importorskip(request.param.client)
    made, folder = request.param(), tmp_path_factory.mktemp("server")
    made.port = free_port()

    def start():
        command = [shutil.which(made.command) or made.command, *made.arguments(folder, files)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        request.addfinalizer(lambda: (process.kill(), process.wait()))
        until = time.monotonic() + 60
        while True:
            try:
                return made.look(files)
            except Exception:
                assert process.poll() is None
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    service(f"{made.command} of our own", start)
    return made


def test_ours_is_trusted_and_trusts_us(server, files, tmp_path, monkeypatch):
    """Passwords with every odd character, from the environment and from a file."""
    monkeypatch.setenv("FCSTREAM_TEST_PASSWORD", PASSWORD)
    (tmp_path / "password").write_text(PASSWORD + "\n")
    for i, place in enumerate(("${FCSTREAM_TEST_PASSWORD}", f"${{file:{tmp_path}/password}}")):
        url = f"{server.url(place, files)}&{files.login}"
        opened = open_live(url, "n")
        if hasattr(opened, "receive"):
            opened = SpooledSource(opened, Spool(tmp_path / "spool", 1 << 20))
        with contextlib.closing(opened), contextlib.closing(open_sink(url)) as out:
            out.write([sample_release(i)])
            found = SourceContract().drain(opened, 1)
            opened.commit(opened.ends())
        assert [body for *_, body in found] == [sample_release(i).to_bytes()]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("host", "options", "what"),
    [
        ("localhost", "", "name the file of its authority as `ca`"),
        ("localhost", "&ca={files.stranger}", "name the file of its authority as `ca`"),
        ("127.1", "&{files.login}", "ismatch.*or its host as the certificate does"),
        ("localhost", "&ca={files.ca}", "(cannot be|refuses)"),
    ],
    ids=["system's authorities", "another authority", "another's certificate", "no certificate of ours"],
)
def test_unknown_servers_are_refused(server, files, host, options, what):
    """At once, and the error names the remedy."""
    url = server.url("${FCSTREAM_TEST_PASSWORD}", files, host) + options.format(files=files)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FCSTREAM_TEST_PASSWORD", PASSWORD)
        for opening in [lambda: open_live(url, "n"), lambda: open_sink(url)][: 2 if "stranger" in options else 1]:
            start = time.monotonic()
            with pytest.raises(FcstreamError, match=what):
                opening()
            assert time.monotonic() - start < 30
    with warnings.catch_warnings():  # paho leaves the sockets of refused connections to the garbage collector
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def test_kafka_names_the_remedy(files):
    """TLS before the mock cluster, which speaks none."""
    pytest.importorskip("confluent_kafka")
    from support import kafka_mock

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.server, files.server_key)
    with contextlib.ExitStack() as stack:
        address, _ = stack.enter_context(kafka_mock.mock())
        proxy = stack.enter_context(contextlib.closing(Proxy(int(address.rpartition(":")[2]), context)))
        for host, ca in (("localhost", files.stranger), ("127.1", files.ca)):
            with pytest.raises(SourceError, match=r"certificate verify failed.*name the file of its authority"):
                open_live(f"kafka://{host}:{proxy.port}/t?ca={ca}&patience=3", "n")


def test_files_that_cannot_be_used(server, files, tmp_path):
    (tmp_path / "nonsense").write_text("nonsense")
    for option in (f"ca={tmp_path}/none", f"ca={tmp_path}/nonsense", f"ca={files.ca}&cert={tmp_path}/none"):
        with pytest.raises(ConfigError, match="files `ca`, `cert` or `key` that cannot be used"):
            open_live(f"{server.url('x', files)}&{option}", "n")


def test_passwords_are_in_no_error_and_no_log(server, files, tmp_path, monkeypatch, caplog, capfd):
    """Refused logins, and servers that do not answer."""
    monkeypatch.setenv("FCSTREAM_TEST_PASSWORD", WRONG)
    (tmp_path / "password").write_text(WRONG)
    quoted = urllib.parse.quote(WRONG, safe="")
    told = []
    with caplog.at_level(logging.DEBUG):
        for place in ("${FCSTREAM_TEST_PASSWORD}", f"${{file:{tmp_path}/password}}", quoted):
            for url in (server.url(place, files), server.url(place, files).replace(str(server.port), str(free_port()))):
                with pytest.raises(SourceError) as caught:
                    open_live(f"{url}&{files.login}&patience=0.1".replace("patience=5&", ""), "n")
                told.append("".join(traceback.format_exception(caught.value)) + repr(caught.value.__dict__))
    everything = "".join(told) + caplog.text + "".join(capfd.readouterr())
    assert "***@" in everything
    for secret in (WRONG, quoted, urllib.parse.quote(WRONG), WRONG[:7]):
        assert secret not in everything
