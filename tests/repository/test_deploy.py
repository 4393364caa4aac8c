"""The files that are given to operators: they load, they agree with each other, and what can be run of them runs."""

import importlib.metadata
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import tomllib
import types
from pathlib import Path

import pytest
from support import REPOSITORY
from support.helpers import free_port, sample
from support.status import watched

import fcstream
from fcstream import errors
from fcstream.cli.templates import template
from fcstream.config import Config
from fcstream.connectors import is_live
from fcstream.engine.engine import Engine
from fcstream.planning.plan import plan
from fcstream.service.build import build
from fcstream.service.metrics import exposition
from fcstream.service.status import SLOWEST_BEAT_S, StatusServer, split_address

DEPLOY = REPOSITORY / "examples" / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
UNIT = (DEPLOY / "fcstream.service").read_text()


def setting(name):
    found = re.findall(rf"^{name}=(.*)$", UNIT, re.M)
    assert len(found) == 1, name
    return found[0]


def test_the_configuration_loads_and_will_release(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    config = Config.load(DEPLOY / "fcstream.toml")
    assert is_live(config.source.url)
    assert plan(config).probability > 0.99
    assert split_address(config.service.listen) == ("127.0.0.1", 9100)
    build(config)


def test_credentials_are_named_and_not_in_the_configuration():
    text = (DEPLOY / "fcstream.toml").read_text()
    named = set(re.findall(r"\$\{(\w+)\}", text))
    given = dict(line.split("=", 1) for line in (DEPLOY / "fcstream.env").read_text().splitlines() if line[0] != "#")
    assert named == given.keys() != set()
    assert all(value.startswith("change-me") for value in given.values())
    assert not re.search(r"://[^@\"]*:(?!\$\{)[^@/\"]*@", text)


def test_the_unit_and_the_program_agree():
    assert setting("Type") == "notify"
    assert setting("ExecStart").endswith("fcstream run /etc/fcstream/fcstream.toml")
    assert "-HUP" in setting("ExecReload")
    assert setting("WorkingDirectory") == f"/var/lib/{setting('StateDirectory')}"
    assert setting("UMask") == "0077"
    assert "MemoryDenyWriteExecute=yes" not in UNIT


def test_systemd_takes_the_unit(tmp_path):
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    path = tmp_path / "fcstream.service"
    path.write_text(UNIT.replace("/opt/fcstream/bin/fcstream", sys.executable))
    done = subprocess.run([program, "verify", str(path)], capture_output=True, text=True)
    assert done.returncode == 0
    assert "fcstream.service" not in done.stdout + done.stderr  # a key that it does not know


def test_the_image_is_made_of_what_is_there():
    extras = re.search(r"ARG EXTRAS=(\S+)", DOCKERFILE)[1].split(",")
    assert (
        set(extras)
        <= tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"].keys()
    )
    assert re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.M) == ["dist/fcstream-*.whl"]
    last = DOCKERFILE.rpartition("FROM ")[2]
    assert last.index("USER fcstream") < last.index("ENTRYPOINT")
    assert "STOPSIGNAL SIGTERM" in last


def test_the_health_check_of_the_image(tmp_path):
    """Run as it stands, against a service that lives, one that hangs, and none."""
    command = json.loads(re.search(r"HEALTHCHECK.*?CMD (\[.*?\])$", DOCKERFILE, re.S | re.M)[1])
    assert command[0] == "python"
    each, port = watched(), free_port()
    status = StatusServer([each])
    environment = {**os.environ, "FCSTREAM_HEALTH": f"http://127.0.0.1:{port}/live"}

    def check():
        return subprocess.run([sys.executable, *command[1:]], env=environment, capture_output=True).returncode

    assert check() != 0
    status.listen(f"127.0.0.1:{port}")
    try:
        assert check() == 0
        each.service._health.good()
        each.service._health.beat = time.monotonic() - SLOWEST_BEAT_S - 1
        assert check() != 0
    finally:
        status.close()


@pytest.mark.parametrize("origin", ["checkout", "wheel", "unknown"])
def test_messages_that_name_an_extra_give_a_command_that_installs_it(origin, tmp_path, monkeypatch):
    """The package is in no index, so its bare name installs nothing."""
    root = REPOSITORY
    monkeypatch.setattr(errors, "__file__", str(REPOSITORY / "fcstream" / "errors.py"))
    if origin != "checkout":
        monkeypatch.setattr(errors, "__file__", str(tmp_path / "site-packages" / "fcstream" / "errors.py"))
        (tmp_path / "a b.whl").touch()
        told = json.dumps({"url": (tmp_path / "a b.whl").as_uri()}) if origin == "wheel" else None
        monkeypatch.setattr(importlib.metadata.Distribution, "from_name", lambda _: _installed_from(told))
        root = tmp_path / "a b.whl" if origin == "wheel" else "fcstream"
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    for extra in extras["optional-dependencies"]:
        command = shlex.split(errors.extra_missing(extra))
        assert command == [sys.executable, "-m", "pip", "install", f"{root}[{extra}]"]
    named = {
        name
        for path in Path(fcstream.__file__).parent.rglob("*.py")
        for name in re.findall(r"(?:extra_missing\('|needs_package\(\"[\w-]+\", \")(\w+)", path.read_text())
    }
    assert named <= set(extras["optional-dependencies"])
    assert len(named) > 5


def _installed_from(told):
    return types.SimpleNamespace(read_text=lambda name: told if name == "direct_url.json" else None)


@pytest.mark.slow
def test_a_taken_address_is_tried_again_by_systemd(tmp_path):
    """What trying again does not mend has codes of its own; a port that the former process still holds is not that."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        text = template().split("[source]")[0]
        text = re.sub(r'clock = "\w+"', 'clock = "broker"', text)
        rest = f"""
            [source]
            url = "redis://127.0.0.1:1/0?stream=s"
            [sink]
            url = "jsonl:out"
            [ledger]
            url = "sqlite:l.db"
            [service]
            listen = "{address}"
        """
        (tmp_path / "c.toml").write_text(text + rest)
        command = [sys.executable, "-m", "fcstream", "run", "c.toml"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert f"service.listen: {address} cannot be used: another process listens there" in done.stderr
    assert str(done.returncode) not in setting("RestartPreventExitStatus").split()
    assert done.returncode == 1
    assert setting("Restart") == "on-failure"
    assert setting("StartLimitIntervalSec") == "0"


def test_alerts_name_metrics_that_there_are():
    each = watched()
    each.service.counters.last_close_ms = each.service.counters.due_ms = 1
    each.service._health.warn("late", "records are late")
    each.note({"s": Engine(sample())})
    told = set(re.findall(r"^(fcstream_\w+)[{ ]", exposition([each])[0].decode(), re.M))
    named = set(re.findall(r"fcstream_\w+", (DEPLOY / "alerts.yml").read_text()))
    assert named <= told
    for label in ("serving", "taken"):
        assert f'"{label}"' in (DEPLOY / "alerts.yml").read_text()


def test_alerts_stay_silent_when_one_process_serves_and_others_stand_by():
    """Each expression that looks at states, on what a leader and two that stand by tell."""
    told = []
    for is_leader in (True, False, False):
        each = watched()
        if is_leader:
            each.service._health.good()
            each.service.counters.last_close_ms, each.service.counters.due_ms = 1, 2**52
        else:
            each.service._ending.set()
            each.service._stand_by("another process serves this stream")
        told.append(exposition([each])[0].decode())
    serving = [int(float(re.search(r'state{state="serving",stream="s"} (\S+)', text)[1])) for text in told]
    assert serving == [1, 0, 0]  # their maximum is 1
    assert all('fcstream_ready{stream="s"} 1.0' in text for text in told)
    assert [re.findall(r'^fcstream_lag_seconds{stream="s"} (\S+)', text, re.M) for text in told] == [["0.0"], [], []]
