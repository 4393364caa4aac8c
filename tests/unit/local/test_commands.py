"""``fcstream local``: files, devices that serve in processes of their own, an analyst who asks them."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import numpy as np
import pytest
from click.testing import CliRunner
from support import REPOSITORY
from support.helpers import service

from fcstream.cli import main
from fcstream.errors import ConfigError, SourceError
from fcstream.local.commands import open_devices
from fcstream.local.device.values import DeviceValues
from fcstream.local.settings import Settings

EXAMPLE = REPOSITORY / "examples" / "local" / "rides.toml"
HOST = os.environ.get("FCSTREAM_MQTT", "127.0.0.1:1883")
PLACE = {"kind": "euclidean", "low": [0, 0], "high": [100, 100], "step": 0.5, "unit": 10}
COUNT = {"kind": "count", "name": "q", "component": "place", "center": [50, 50], "sides": [40, 40], "rho": 9.0}
KINDS = {
    "count": COUNT,
    "density": {"kind": "density", "name": "q", "component": "place", "at": [50, 50], "bandwidth": 9.0, "rho": 9.0},
    "nearest": {"kind": "nearest", "name": "q", "component": "place", "at": [50, 50], "k": 3, "rho": 9.0},
    "share": {"kind": "share", "name": "q", "component": "sums", "at": 30.0, "share": "0.25", "rho": 1.0},
}
SPACES = {
    "place": PLACE,
    "sums": {"kind": "records", "low": 0, "high": 100},
    "flags": {"kind": "hamming", "bits": 4},
    "kind": {"kind": "discrete", "categories": 3},
    "globe": {"kind": "great_circle"},
}


def sample(**changes):
    return {"components": SPACES, "budget": {"rho": 10.0}, "query": COUNT} | changes


ANALYST = {"devices": os.devnull}


def toml(mapping):
    """Enough TOML for these files."""
    lines = []
    for name, table in mapping.items():
        for inner, values in table.items() if name == "components" else [("", table)]:
            lines.append(f"[{name}.{inner}]" if inner else f"[{name}]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    return "\n".join(lines)


def invoke(*arguments):
    return CliRunner().invoke(main, ["local", *map(str, arguments)])


def test_plan_warns_of_a_query_beyond_the_budget(tmp_path):
    path = tmp_path / "a.toml"
    text = EXAMPLE.read_text()
    path.write_text(text)
    assert "drops out" not in invoke("plan", path).output
    path.write_text(text.replace("rho = 10.0", "rho = 1000.0"))
    assert "devices hold rho 40 and may be asked for 1000" in invoke("plan", path).output


def test_plan_says_from_where_devices_without_a_value_answer(tmp_path):
    path = tmp_path / "a.toml"
    place = {"missing": [50, 50]}
    for more, query, text in (
        ({}, COUNT, "as if they were outside the public box: they are in no box within it"),
        ({}, COUNT | {"sides": [500, 500]}, "warning: devices without a value .* in the box that is counted"),
        (place, COUNT, r"warning: .* at \[50.0, 50.0\], which is in the box that is counted"),
        (place, COUNT | {"center": [10, 10], "sides": [5, 5]}, "warning: .* takes them for devices that are there"),
        ({}, KINDS["density"], "as if they were outside the public box"),
    ):
        path.write_text(toml(sample(components=SPACES | {"place": PLACE | more}, query=query)))
        assert re.search(text, invoke("plan", path).output)
    path.write_text(toml(sample(query=KINDS["share"])))
    assert "without a value" not in invoke("plan", path).output


@pytest.mark.parametrize("kind", KINDS)
def test_plan_and_simulate(kind, tmp_path):
    path = tmp_path / "a.toml"
    path.write_text(toml(sample(query=KINDS[kind])))
    planned = invoke("plan", path, "--devices", 500)
    assert planned.exit_code == 0, planned.output
    assert "sigma" in planned.output
    assert json.loads(invoke("plan", path, "--json").output)["sigma"] > 0
    told = json.loads(invoke("simulate", path, "--devices", 500, "--seed", 3).output)
    assert told["asked"] == (1 if kind == "share" else 500)
    assert told["private"] is False
    assert 0 <= told["saving"]["mean"] < 1
    if kind == "count":
        assert abs(told["value"] - told["truth"]) < 120
    elif kind == "density":
        assert abs(told["value"] - told["truth"]) < 0.1
    elif kind == "share":
        assert told["value"] is told["truth"]
    else:
        assert len(told["value"]) == 3


def test_the_example():
    assert Settings.load(EXAMPLE).asking.queries == 4
    assert invoke("plan", EXAMPLE).exit_code == 0
    globe = Settings.of(sample(query=KINDS["nearest"] | {"component": "globe", "at": [-95.0, 29.0]}))
    assert globe.query.space.dimension == 3


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"components": {}}, "components"),
        ({"query": COUNT | {"rounds": "ten"}}, "query.rounds"),
        ({"query": COUNT | {"rouns": 10}}, "did you mean 'rounds'"),
        ({"query": COUNT | {"rounds": True}}, "query.rounds"),
        ({"query": COUNT | {"kind": "sum"}}, "query.kind"),
        ({"query": COUNT | {"component": "elsewhere"}}, "query.component"),
        ({"query": COUNT | {"component": "flags"}}, "query.component"),
        ({"query": COUNT | {"center": ["a"]}}, "query.center"),
        ({"query": COUNT | {"method": "PM7"}}, "method"),
        ({"query": {k: v for k, v in COUNT.items() if k != "rho"}}, "query.rho: is required"),
        ({"query": 5}, "query"),
        ({"budget": {"kind": "free"}}, "budget.kind"),
        ({"budget": {"rho": 1.0, "epsilon": 1.0}}, "budget.epsilon"),
        ({"components": {"a": {"kind": "cube"}}}, "components.a.kind"),
        ({"components": {"a": PLACE | {"step": 0}}}, "step"),
        ({"elsewhere": {}}, "elsewhere"),
        ({"components": {"a": PLACE | {"step": 0}}}, "components.a.step: must be a positive number"),
        ({"components": {"a": {"bits": 4}}}, "components.a.kind: must be 'euclidean', 'great_circle', "),
        ({"components": {"a": 5}}, "components.a: must be a section of keys, got int"),
        ({"budget": {}}, "budget.rho: is required"),
        ({"devices": {"keep": "all"}}, "devices.keep: must be a whole number, got text"),
        ({"query": COUNT | {"kind": "sum"}}, "query.kind: must be 'count', 'density', 'nearest' or 'share', got 'sum'"),
        ({"query": COUNT | {"beta": 2.0}}, "query.beta: must be in (0, 1), got 2.0"),
        ({"ledger": {}}, "ledger.url: is required"),
    ],
)
def test_files_are_checked(changes, place):
    with pytest.raises(ConfigError) as caught:
        Settings.of(sample(**changes))
    assert place in str(caught.value)


def test_budgets_of_files():
    for budget, kind in (
        ({"kind": "geo", "epsilon": 1}, "geo"),
        ({"kind": "approximate", "epsilon": 1, "delta": 1e-6, "distance": 2}, "approximate"),
    ):
        assert Settings.of(sample(budget=budget)).budget.kind == kind


def test_commands_say_what_is_missing(tmp_path):
    path = tmp_path / "a.toml"
    for text, command, said in (
        ("[", "plan", "not TOML"),
        (toml({"components": SPACES}), "plan", "query: is required"),
        (toml(sample()), "device", "devices.listen"),
        (toml(sample(devices={"listen": "http://h:1"})), "device", "devices.values"),
        (toml(sample(devices={"listen": "http://h:1", "values": str(tmp_path / "v")})), "device", "cannot be read"),
        (toml(sample()), "query", "analyst.devices"),
        (toml(sample(query=COUNT | {"queries": 2}, analyst=ANALYST)), "query", "ledger.url"),
        (toml(sample(ledger={"path": "x"})), "plan", "ledger.path"),
        (toml(sample(devices={"values": "v", "journal": "j", "listen": "http://h:1", "keep": True})), "device", "keep"),
        (toml(sample(analyst={"devices": str(tmp_path / "no")})), "query", "cannot be read"),
        (toml(sample(analyst={"devices": "x", "url": "redis://h"})), "query", "analyst.url"),
    ):
        path.write_text(text)
        found = invoke(command, path)
        assert found.exit_code in (1, 2), (command, found.output)
        assert said in found.output
        assert "Traceback" not in found.output
    assert "cannot be read" in invoke("plan", tmp_path / "absent.toml").output


def test_values_are_read_again_when_something_new_is_asked(tmp_path):
    path = tmp_path / "values"
    path.write_text('{"device":"a","place":[1,2]}\n')
    spaces = Settings.of(sample()).spaces
    values = DeviceValues(str(path), spaces)
    of_a = values.of("a")
    assert of_a("place").value == [1, 2]
    assert of_a("place@noon").value is None
    assert of_a("elsewhere") is None
    with open(path, "a") as file:
        file.write('{"device":"a","place@noon":[3,4]}\n')
    os.utime(path, ns=(1, 1))
    assert of_a("place@noon").value == [3, 4]
    assert of_a("place@noon").point == (6, 8)
    with open(path, "a") as file:
        file.write('{"device":"a","pla')  # half written while devices answer: like a value that is not there yet
    os.utime(path, ns=(2, 2))
    assert of_a("place@night").value is None
    assert of_a("place@noon").value == [3, 4]
    for bad in (b"5\n", b'{"place":[1,2]}\n', b"\xff\n", b'{"device":7}\n'):
        path.write_bytes(bad)
        with pytest.raises(SourceError, match="line 1"):
            DeviceValues(str(path), spaces)
    path.write_text('{"device":"a"}\n')
    with pytest.raises(ConfigError, match="journal"):
        open_devices(Settings.of(sample(devices={"values": str(path)})))


def test_a_series_ends(tmp_path):
    who, path = tmp_path / "who", tmp_path / "a.toml"
    who.write_text(json.dumps({"gateway": "http://127.0.0.1:9", "device": "d"}))
    analyst = {"devices": str(who), "timeout_s": 1.0, "tries": 1}
    ledger = {"url": f"sqlite:{tmp_path / 'analyst.db'}"}
    path.write_text(toml(sample(query=COUNT | {"queries": 2, "rounds": 2}, analyst=analyst, ledger=ledger)))
    for step in (1, 2):
        told = json.loads(invoke("query", path).output)
        assert (told["query"], told["missing"], told["value"]) == (f"q-{step}", 1, 0)
    ended = invoke("query", path)
    assert ended.exit_code == 2
    assert "has had its 2 queries" in ended.output
    path.write_text(toml(sample(query=COUNT | {"queries": 3, "rounds": 2}, analyst=analyst, ledger=ledger)))
    assert "belongs to another series" in invoke("query", path).output


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def test_a_taken_port_says_what_to_do(tmp_path):
    values = tmp_path / "values"
    values.write_text('{"device": "a", "place": [1, 2]}')
    path = tmp_path / "a.toml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"http://127.0.0.1:{taken.getsockname()[1]}"
        held = {"values": str(values), "journal": str(tmp_path / "journal"), "listen": listen}
        path.write_text(toml(sample(devices=held)))
        found = invoke("device", path)
    assert found.exit_code == 1  # it may be free later
    assert "devices.listen: 127.0.0.1:" in found.output
    assert "another process listens there" in found.output


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["http", "mqtt"])
def test_devices_in_a_process_of_their_own(scheme, tmp_path):
    """Serve, ask a series, kill the devices, serve again: what was said is said again, budgets are remembered."""
    if scheme == "http":
        listen = base = f"http://127.0.0.1:{free_port()}"
        analyst = {"devices": str(tmp_path / "who")}
    else:
        host, _, port = HOST.partition(":")
        service("MQTT", lambda: socket.create_connection((host, int(port)), 2).close())
        listen, base = f"mqtt://{HOST}/fcstream-cli-{os.getpid()}", "north"
        analyst = {"devices": str(tmp_path / "who"), "url": listen, "timeout_s": 5, "tries": 20}
    crowd = np.random.default_rng(1).normal(50, 15, (40, 2)).tolist()
    lines = [json.dumps({"device": f"d{i}", "place": place}) for i, place in enumerate(crowd)]
    (tmp_path / "values").write_text("\n".join(lines))
    (tmp_path / "who").write_text("\n".join(json.dumps({"gateway": base, "device": f"d{i}"}) for i in range(40)))
    held = {"values": str(tmp_path / "values"), "journal": str(tmp_path / "journal"), "listen": listen}
    series = COUNT | {"queries": 3, "rounds": 4}
    path, ledger = tmp_path / "a.toml", {"url": f"sqlite:{tmp_path / 'analyst.db'}"}
    path.write_text(toml(sample(devices=held | {"gateway": "north"}, query=series, analyst=analyst, ledger=ledger)))
    answers = []
    for turn in range(2):
        command = [sys.executable, "-m", "fcstream", "local", "device", str(path)]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            assert "40 devices answer" in process.stderr.readline()
            if scheme == "http":
                until = time.monotonic() + 120
                while time.monotonic() < until:
                    try:
                        urllib.request.urlopen(f"{base}/live", timeout=20).close()
                        break
                    except OSError:
                        time.sleep(0.05)
            if turn == 1:  # the analyst lost its ledger: the first query again, for nothing
                for name in tmp_path.glob("analyst.db*"):
                    name.unlink()
            for _ in range(1 + turn):
                found = invoke("query", path)
                assert found.exit_code == 0, found.output
                answers.append(json.loads(found.output))
        finally:
            process.send_signal(signal.SIGKILL if turn == 0 else signal.SIGTERM)
            assert process.wait(120) == (-signal.SIGKILL if turn == 0 else 0)  # issue: over HTTP, ended by the signal
            process.stderr.close()
    first, again, second = answers
    for one in (first, again):
        assert one.pop("window_open_ms") < one.pop("window_close_ms")
    assert first == again
    assert first["missing"] == second["missing"] == 0
    assert (first["query"], second["query"]) == ("q-1", "q-2")
    devices, journal = open_devices(Settings.load(path))
    spent = np.mean([device.spent.rho for device in devices])
    assert np.isclose(spent, 9.0 - second["remaining_rho"])
    assert np.isclose(spent, first["spent_rho"] + second["spent_rho"])
    journal.close()
    shown = {}
    for name in ("journal", "analyst.db"):
        found = CliRunner().invoke(main, ["budget", "show", str(tmp_path / name), "--json"])
        assert found.exit_code == 0, found.output
        shown[name] = json.loads(found.output)
        assert CliRunner().invoke(main, ["budget", "verify", str(tmp_path / name)]).exit_code == 0
    # The analyst's books say of the most charged device what the devices' own journal says.
    assert shown["journal"]["spent"] == shown["analyst.db"]["spent"]
    assert shown["journal"]["devices"]["count"] == 40


@pytest.mark.parametrize(
    "args",
    [("simulate", "--seed", -1), ("simulate", "--devices", -5), ("plan", "--devices", -5), ("plan", "--devices", 0)],
)
def test_numbers_that_there_cannot_be(args):
    """They ended in internal errors, or were planned with."""
    found = invoke(args[0], EXAMPLE, *args[1:])
    assert found.exit_code == 2
    assert f"Invalid value for '{args[1]}'" in found.output
