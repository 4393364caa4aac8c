"""The examples that embed an engine, run as their users run them, all beside each other: they mostly wait."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request

import pytest
from support import REPOSITORY
from support.helpers import service

FOLDER = REPOSITORY / "examples" / "embedding"


@pytest.fixture(scope="module")
def running():
    began = time.monotonic()
    subprocess.run([sys.executable, str(FOLDER / "sensor_threads.py"), "1"], check=True, capture_output=True)
    seconds = str(round(max(6, 3 * (time.monotonic() - began))))  # several times what a start takes on this machine
    arguments = {"sensor_threads": seconds, "asyncio_gateway": seconds, "mqtt_callback": seconds, "wsgi_ingest": "0"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    started = {
        name: subprocess.Popen([sys.executable, str(FOLDER / f"{name}.py"), argument], **pipes, text=True)
        for name, argument in arguments.items()
    }
    yield started
    for process in started.values():
        process.kill()
        process.communicate()


def finished(process):
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    # A machine with other work may be too slow for the short lateness of an example; nothing else may be said.
    assert [line for line in err.splitlines() if "window_closed" not in line] == []
    return out.splitlines()


@pytest.mark.slow
def test_plain_wsgi(running):
    process = running["wsgi_ingest"]
    port = int(process.stdout.readline().split()[-1])

    def post(body):
        request = urllib.request.Request(f"http://127.0.0.1:{port}/readings", data=body)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    sent = []
    until = time.monotonic() + 120
    releases = []
    while time.monotonic() < until and not any(r["count"] and r["count"] > 5 for r in releases):
        now = int(time.time() * 1000)
        body = b"\n".join(b'{"ts_ms": %d, "temp_c": 21.0, "seq": %d}' % (now, len(sent) + i) for i in range(10))
        assert post(body) == 202
        assert post(body) == 202  # once more: it counts once
        sent += [now] * 10
        time.sleep(0.1)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/releases", timeout=60) as answer:
            releases = [json.loads(line) for line in answer.read().splitlines()]
    for release in releases:
        held = sum(release["window_open_ms"] <= t < release["window_close_ms"] for t in sent)
        assert abs(release["count"] - held) < 6
    assert any(release["count"] > 5 for release in releases)
    assert post(b"no reading") == 400
    with pytest.raises(urllib.error.HTTPError, match="404") as caught:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/elsewhere", timeout=60)
    caught.value.close()


@pytest.mark.slow
def test_threads(running):
    lines = finished(running["sensor_threads"])
    assert lines  # how many, depends on how long a start takes
    assert all(line.endswith((" C", "refused (too_few)")) for line in lines)


@pytest.mark.slow
def test_asyncio(running):
    counts = [json.loads(line)["count"] for line in finished(running["asyncio_gateway"])]
    assert counts
    assert sum(counts) > 20


@pytest.mark.slow
def test_a_callback_of_paho(running):
    host = "127.0.0.1"
    service("MQTT", lambda: socket.create_connection((host, 1883), timeout=3).close())
    if os.environ.get("FCSTREAM_MQTT"):
        pytest.skip("the example's server is the one of this machine")
    counts = [json.loads(line)["count"] for line in finished(running["mqtt_callback"])]
    assert counts
    assert sum(counts) > 10
