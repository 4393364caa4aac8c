"""The dashboard, the rules and the compose file of examples/deploy fit the metrics and each other."""

import json
import re
import tomllib

import pytest
from support import REPOSITORY
from support.helpers import sample
from support.status import watched

from fcstream.config import Config
from fcstream.engine.engine import Engine
from fcstream.service.metrics import exposition
from fcstream.testing import sample_release

yaml = pytest.importorskip("yaml")
DEPLOY = REPOSITORY / "examples" / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana" / "fcstream.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
RULES = [rule for group in yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"] for rule in group["rules"]]
COMPOSE = yaml.safe_load((DEPLOY / "compose.yml").read_text())
SINGLE = {"datasource", "stream"}


def expressions():
    found = [target["expr"].replace("$stream", ".*") for panel in PANELS for target in panel["targets"]]
    return [*found, *(rule["expr"] for rule in RULES)]


@pytest.fixture(scope="module")
def labels():
    """What a service tells: names of metrics, and the labels of each."""
    each = watched(counters=True, values=True)
    counters = each.service.counters
    counters.last_close_ms = counters.due_ms = counters.spool_bytes = 1
    counters.rejected["late"] = counters.bodies_refused["too_large"] = 1
    counters.answers["speed", "too_few"] = 1
    each.service._health.clock_gap_ms = 1
    counters.add([sample_release(0)])
    each.service._health.warn("late", "records are late")
    each.note({"s": Engine(sample())})
    found = {}
    for name, told in re.findall(r"^(fcstream_\w+)\{(.*)\} ", exposition([each])[0].decode(), re.M):
        found.setdefault(name, set()).update(re.findall(r'(\w+)="', told))
    return found


@pytest.mark.parametrize("expression", expressions())
def test_an_expression_is_promql_about_metrics_that_there_are(expression, labels):
    parser = pytest.importorskip("promql_parser")
    parser.parse(expression)
    named = re.findall(r"fcstream_\w+", expression)
    assert named
    assert set(named) <= set(labels)
    for name, selected in re.findall(r"(fcstream_\w+)\{(.*?)\}", expression):
        assert set(re.findall(r"(\w+)(?:=~|!=|=)", selected)) <= labels[name]
    for grouped in re.findall(r"by \((.*?)\)", expression):
        assert set(grouped.split(", ")) <= set.union(*(labels[name] for name in named))


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_names_its_lines_by_labels_that_it_has(panel, labels):
    assert panel["datasource"]["uid"] == "${datasource}"
    for target in panel["targets"]:
        assert target["datasource"]["uid"] == "${datasource}"
        assert 'stream=~"$stream"' in target["expr"]
        grouped = re.match(r"(?:\w+ - )?(?:time\(\) - )?\w+ by \((.*?)\)", target["expr"])
        (name, *_) = re.findall(r"fcstream_\w+", target["expr"])
        has = set(grouped[1].split(", ")) if grouped else labels[name]
        assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= has


def test_the_dashboard_asks_for_its_data_source_and_streams():
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    assert set(variables) == SINGLE
    assert variables["datasource"]["query"] == "prometheus"
    assert variables["stream"]["definition"] == "label_values(fcstream_ready, stream)"
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    for panel in DASHBOARD["panels"]:  # the grid has 24 columns, and no two panels share a place
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in DASHBOARD["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))


def mounted(service):
    """Files of a service that lie here: where they are mounted, and where they lie."""
    pairs = [volume.split(":")[:2] for volume in COMPOSE["services"][service]["volumes"]]
    return {there: DEPLOY / here for here, there in pairs if here.startswith(".")}


def test_what_is_mounted_is_there():
    volumes = [volume for service in COMPOSE["services"].values() for volume in service["volumes"]]
    assert all(volume.startswith("./") or volume.partition(":")[0] in COMPOSE["volumes"] for volume in volumes)
    assert all(path.exists() for service in COMPOSE["services"] for path in mounted(service).values())
    for service in COMPOSE["services"].values():
        assert set(service.get("depends_on", [])) <= set(COMPOSE["services"])
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:")


def test_prometheus_scrapes_the_stream_and_knows_the_rules():
    config = tomllib.loads((DEPLOY / "compose.toml").read_text())
    here = {there: path.read_text() for there, path in mounted("prometheus").items()}
    scraped = yaml.safe_load(here["/etc/prometheus/prometheus.yml"])
    (job,) = scraped["scrape_configs"]
    (target,) = job["static_configs"][0]["targets"]
    host, port = target.split(":")
    assert host in COMPOSE["services"]
    assert config["service"]["listen"] == f"0.0.0.0:{port}"
    assert set(scraped["rule_files"]) <= set(here)


def test_grafana_finds_prometheus_and_the_dashboard():
    folder = "grafana/provisioning"
    (source,) = yaml.safe_load((DEPLOY / folder / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert source["url"].removeprefix("http://").split(":")[0] in COMPOSE["services"]
    assert source["type"] == "prometheus"
    (provider,) = yaml.safe_load((DEPLOY / folder / "dashboards" / "fcstream.yml").read_text())["providers"]
    there = mounted("grafana")
    assert f"{provider['options']['path']}/fcstream.json" in there
    assert there["/etc/grafana/provisioning"] == DEPLOY / folder


def test_the_stream_reads_the_broker_and_keeps_its_ledger_in_a_volume():
    config = Config.load(mounted("fcstream")["/etc/fcstream/fcstream.toml"])
    assert re.fullmatch(r"redis://(\w+):6379/0\?stream=rooms", config.source.url)[1] in COMPOSE["services"]
    kept = [volume.split(":")[1] for volume in COMPOSE["services"]["fcstream"]["volumes"] if volume[0] != "."]
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    assert kept == re.findall(r"^VOLUME (.*)$", dockerfile, re.M)
    assert config.ledger.url.removeprefix("sqlite:").startswith(kept[0])
    assert config.sink.url.removeprefix("jsonl:").startswith(kept[0])
    assert COMPOSE["services"]["fcstream"]["build"]["dockerfile"] == "examples/deploy/Dockerfile"
    assert '"run", "/etc/fcstream/fcstream.toml"' in dockerfile
