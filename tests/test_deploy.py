"""The files that are given to operators: they load, they agree with each other, and what can be run of them runs."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from test_operations import free_port, watched

from fcstream.config import Config
from fcstream.connectors import is_live
from fcstream.planning import plan
from fcstream.service import build
from fcstream.status import SLOWEST_BEAT_S, Status, split

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "examples" / "deploy"
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
    assert split(config.service.listen) == ("127.0.0.1", 9100)
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
        set(extras) <= tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"].keys()
    )
    for line in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.M):
        assert all((ROOT / name).exists() for name in line.split())
    last = DOCKERFILE.rpartition("FROM ")[2]
    assert last.index("USER fcstream") < last.index("ENTRYPOINT")
    assert "STOPSIGNAL SIGTERM" in last


def test_the_health_check_of_the_image(tmp_path):
    """Run as it stands, against a service that lives, one that hangs, and none."""
    command = json.loads(re.search(r"HEALTHCHECK.*?CMD (\[.*?\])$", DOCKERFILE, re.S | re.M)[1])
    assert command[0] == "python"
    each, port = watched(), free_port()
    status = Status([each])
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
