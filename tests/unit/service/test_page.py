"""The live page over a real socket: what it shows, to whom, and that it is the ledger's."""

import http.client
import re
from contextlib import closing
from dataclasses import replace
from importlib.resources import files

import msgspec
import numpy as np
import pytest
from support.live_page import COUNT, LENGTH_MS, ShownStream, listening, serving
from support.release_kinds import released

from fcstream import Release
from fcstream.accounting.losses import PrivacyLoss
from fcstream.config import ServiceSection
from fcstream.ledgers import open_reader
from fcstream.releases.long_form import named_numbers
from fcstream.releases.shape import SHAPES
from fcstream.releases.tables.documents import synthetic_codes
from fcstream.reporting.budget import Report
from fcstream.service.page.history import PageHistory, WindowCost
from fcstream.service.page.outlook import forecast
from fcstream.service.page.views import MAX_NUMBERS, MAX_ROWS, details_of, names_of, point_of

MEAN = {"kind": "mean", "method": "ball", "center": [20.0, 50.0], "radius": 3.0, "delta": None, "size_hint": None}
ON = "?stream=rooms"


def request(port, path, method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with closing(connection):
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()


def numbers(release):
    return [value for _, value, _ in named_numbers(release)]


def shown_release(**changes):
    """A release of a count, with some fields changed."""
    plain = dict.fromkeys(("reason", "features", "transform"))
    about = {"window_open_ms": 0, "window_close_ms": 10, "status": "released", "kind": "count", "value": [5.0]}
    costs = {"count": 5, "core_count": 5, "rho": 0.5, "delta": 0.0, "guarantee": {"rho": 4.0, "delta": 0.0}}
    given = {"stream": "rooms", "sigma": [1.0], "spent": {"rho": 0.5, "delta": 0.0}, "private": True}
    return Release(**(plain | about | costs | given | changes))


# -- who sees what ---------------------------------------------------------------------------------------------------


def test_it_is_off_until_its_key_says_so_and_goes_with_a_reload():
    stream = ShownStream(service={})
    with serving(stream) as server:
        stream.release(server.page, 30)
        for path in ("/", "/page.js", "/events"):
            code, _, text = request(server.port, path)
            assert (code, b"service.page" in text) == (404, True)
        stream.status.section = ServiceSection(page=True)
        stream.step(server.page)
        assert request(server.port, "/")[0] == 200
        with listening(server.port, ON) as events:
            assert events.windows()["points"]
            stream.status.section = ServiceSection()
            while events.next() is not None:
                pass
        stream.step(server.page)
        assert server.page.windows(("rooms", None), "") is None
        assert request(server.port, "/live")[0] == 200


def test_its_files_load_nothing_from_elsewhere_and_nobody_frames_or_changes_it():
    names = {each.name for each in files("fcstream.service.page").joinpath("assets").iterdir()}
    stream = ShownStream()
    with serving(stream) as server:
        for path in ["/", *(f"/{name}" for name in names - {"page.html"})]:
            code, headers, body = request(server.port, path)
            assert (code, headers["X-Content-Type-Options"]) == (200, "nosniff")
            assert headers["Content-Type"].partition(";")[0].rpartition("/")[2] in (
                "html",
                "css",
                "javascript",
                "svg+xml",
            )
            rules = headers["Content-Security-Policy"]
            assert "default-src 'none'" in rules
            assert "unsafe" not in rules
            assert "http" not in rules
            text = body.decode()
            assert not re.findall(r"""(?:https?:)?//[a-z]""", text.replace("http://www.w3.org/2000/svg", ""))
            assert not re.search(r"innerHTML\s*=|insertAdjacent|document\.write|\beval\b| on\w+=|<style|style=", text)
            assert request(server.port, path, "HEAD")[0] == 200
            assert request(server.port, path, "POST")[0] == 405
        assert request(server.port, "/events", "HEAD")[2] == b""
        assert request(server.port, "/../page.html")[0] == request(server.port, "/views.py")[0] == 404


@pytest.mark.parametrize("counters", [False, True])
def test_exact_numbers_are_there_only_where_the_stream_says_so(counters):
    stream = ShownStream(service={"page": True, "counters": counters})
    stream.service.counters.messages = 818181
    stream.service.counters.rejected = {"late": 818282}
    with serving(stream) as server:
        stream.release(server.page, 30)
        with listening(server.port, ON) as events:
            found = [events.next() for _ in range(4)]
    assert [kind for kind, _ in found] == ["index", "state", "about", "windows"]
    assert ("818211" in str(found)) == ("818282" in str(found)) == counters
    assert (found[1][1]["streams"][0]["exact"] is None) != counters


def test_of_several_streams_each_decides_whether_it_is_shown():
    one, two = ShownStream("one"), ShownStream("two", {"counters": True})
    with serving(one, two) as server:
        one.release(server.page, 30)
        two.release(server.page, 30)
        with listening(server.port, "?stream=two") as events:
            assert [each["stream"] for each in events.until("index")["series"]] == ["one"]
            assert [each["name"] for each in events.until("state")["streams"]] == ["one"]
            assert events.until("about") == {}
        assert server.page.windows(("two", None), "") is None


# -- what is told ----------------------------------------------------------------------------------------------------


def test_windows_are_those_of_the_ledger_and_go_on_from_a_cursor_and_after_a_restart(tmp_path):
    url = f"sqlite:{tmp_path / 'l.db'}"
    stream = ShownStream(ledger=url, release=MEAN | {"rho": 1.0})
    with serving(stream) as server:
        stream.release(server.page, 40, 2000, 2000)
        with listening(server.port, ON) as events:
            first = events.windows()
            assert first["whole"]
            stream.release(server.page, 50)
            fresh = events.windows()
        assert not fresh["whole"]
        assert [point[0] for point in fresh["points"]] == [3 * LENGTH_MS]
        with listening(server.port, f"{ON}&after={first['cursor']}") as events:
            assert events.windows() == fresh
        for cursor in (first["cursor"], "1.2.3", "x" * 9000, "9" * 5000, "%C2%B2"):
            with listening(server.port, f"{ON}&after={cursor}") as events:
                assert events.windows()["whole"] == (cursor != first["cursor"])
    stream.engine.abort()
    with closing(open_reader(url)) as reader:
        sealed = [Release.from_bytes(line) for line in reader.releases()]
    assert [numbers(each) for each in sealed] == [p[3] or [] for p in first["points"] + fresh["points"]]
    again = ShownStream(ledger=url, release=MEAN | {"rho": 1.0})
    with serving(again) as server:
        again.step(server.page)
        with listening(server.port, f"{ON}&after={fresh['cursor']}") as events:
            found = events.windows()
    again.engine.abort()
    assert found["whole"]
    assert found["names"] == ["a", "b"]
    assert found["points"] == first["points"] + fresh["points"]
    assert found["newest"]["groups"][0]["rows"] == [list(row) for row in named_numbers(sealed[-1])]


def test_keys_and_answers_are_series_of_their_own():
    answers = [COUNT | {"name": "n"}, MEAN | {"name": "<m>", "rho": 1.0}]
    stream = ShownStream(keys=("north", "<b>south"), release=answers)
    with serving(stream) as server:
        stream.release(server.page, 2000)
        with listening(server.port, "?stream=rooms/north&answer=%3Cm%3E") as events:
            told = events.until("index")["series"]
            found = events.windows()
        named = [(each["of"], each["stream"], each["answer"], each["kind"]) for each in told]
        assert named == [
            ("rooms", f"rooms/{key}", name, kind)
            for key in ("<b>south", "north")
            for name, kind in (("<m>", "mean"), ("n", "count"))
        ]
        mine = [each for each in stream.releases if (each.key, each.name) == ("north", "<m>")]
        assert [point[3] for point in found["points"]] == [each.value for each in mine]


def test_a_refusal_comes_with_its_remedy_and_a_budget_with_its_outlook(tmp_path):
    url = f"sqlite:{tmp_path / 'l.db'}"
    stream = ShownStream(ledger=url, stream={"unit": "stream"}, budget={"rho": 1.5, "delta": 0.0})
    with serving(stream) as server:
        stream.release(server.page, *[30] * 2)
        expected = Report.of(stream.engine._ledger)
        with listening(server.port, ON) as events:
            (gauge,) = events.until("about")["budget"]["gauges"]
            assert gauge["outlook"] == str(expected.unit.outlook)
            assert gauge["spent"] == {"rho": 1.0, "delta": 0.0}
            assert gauge["guarantee"]["epsilon"] == pytest.approx(expected.unit.guarantee)
            stream.release(server.page, 30, 30)
            told = events.until("about", lambda about: about["budget"]["gauges"][0]["state"] == "exhausted")
            assert "fcstream budget show" in told["hints"]["budget_exhausted"]
        assert server.page.windows(("rooms", None), "").points[-1].count(b"budget_exhausted") == 1
    stream.engine.abort()


def test_answers_about_other_records_cost_as_much_as_the_dearest_of_them():
    parts = {"low": {"max": 10.0}, "high": {"min": 10.5}}
    answers = [COUNT | {"name": name, "where": {"a": part}} for name, part in parts.items()]
    stream = ShownStream(release=answers, stream={"unit": "stream"}, budget={"rho": 9.0, "delta": 0.0})
    with serving(stream) as server:
        stream.release(server.page, 30, 30, 30)
        told = msgspec.json.decode(server.page.about("rooms"))["budget"]["gauges"][0]
    assert told["spent"]["rho"] == 1.5
    assert told["outlook"].startswith("at 1970-01-01 00:03:00 UTC, after 15 more windows, at (rho=0.5,")


@pytest.mark.parametrize(
    ("spent", "reserved", "block", "state"),
    [([4, 4, 4], 5, "stream", "lasts"), ([0, 0], 0, "stream", "never"), ([4], 5, None, "own_filters")],
)
def test_the_outlook_goes_by_what_windows_cost_lately(spent, reserved, block, state):
    costs = [(WindowCost(10 * i, 10 * i + 10, {}, True), PrivacyLoss(rho)) for i, rho in enumerate(spent)]
    costs.append((WindowCost(100, 110, {}, False), PrivacyLoss()))  # refused without a charge
    found = forecast(block, costs, PrivacyLoss(reserved), PrivacyLoss(21))
    assert found.state == state
    if state == "lasts":
        assert found.windows == (21 - 5) // 4 + 1
    assert forecast(block, [], PrivacyLoss(reserved), PrivacyLoss(21)).state in ("unknown", "own_filters")


# -- a release as it is drawn ----------------------------------------------------------------------------------------


def test_a_point_has_the_numbers_of_its_window_and_says_when_their_names_are_others():
    frequent = shown_release(
        kind="frequent", value=[7.0, 5.0], sigma=[2.0, 2.0], parts={"feature": "app", "levels": ["<b>", "y"]}
    )
    names = names_of(frequent)
    assert names == ["app/<b>", "app/y"]
    point = point_of(frequent, names)
    assert (point.values, point.sigmas, point.labels) == ([7.0, 5.0], 2.0, None)
    other = replace(frequent, value=[9.0], sigma=[2.0], parts={"feature": "app", "levels": ["z"]})
    assert point_of(other, names).labels == ["app/z"]
    refusal = shown_release(value=None, sigma=None, status="refused", reason="too_few")
    assert (point_of(refusal, names).reason, point_of(refusal, names).values) == ("too_few", None)
    large = shown_release(value=[1.0] * (MAX_NUMBERS + 1), sigma=[None] * (MAX_NUMBERS + 1))
    assert point_of(large, []).values is None
    assert point_of(replace(large, value=[1.0, 2.0], sigma=[1.0, None]), []).sigmas == [1.0, None]


FORMS = {
    "count": "numbers",
    "sum": "numbers",
    "histogram": "bars",
    "total": "numbers",
    "quantiles": "numbers",
    "marginals": "tables",
    "synthetic": "bars",
    "points/cells": "places",
}


@pytest.mark.parametrize("kind", FORMS)
def test_each_kind_has_a_form(kind):
    release = released(kind)
    found = msgspec.json.decode(msgspec.json.encode(details_of(release)))
    assert (found["form"], found["left_out"]) == (FORMS[kind], 0)
    if kind == "marginals":
        cells = [n for table in found["tables"] for row in table["cells"] for n in row]
        cells += [n for group in found["groups"] for _, n, _ in group["rows"]]
        assert sorted(cells) == sorted(n for table in release.value for n in table)
    elif kind == "synthetic":
        columns, codes = synthetic_codes(release)
        for group, column, drawn in zip(found["groups"], columns, codes.T, strict=True):
            shares = np.bincount(drawn, minlength=len(column["levels"])) / len(drawn)
            assert group["title"] == column["name"]
            assert [share for _, share, _ in group["rows"]] == pytest.approx(shares.tolist(), abs=0.02)
    elif kind == "points/cells":
        assert [place["at"] for place in found["places"]] == release.value
        assert [place["size"] for place in found["places"]] == release.parts["weights"]
    else:
        assert [n for _, n, _ in found["groups"][0]["rows"]] == numbers(release)
        assert len(found["groups"]) == (2 if kind == "total" else 1)


def test_clusters_and_matrices_have_their_widths_and_sigmas():
    parts = {"weights": [0.4, 0.6], "covariances": [[[4.0, 0.0], [0.0, 9.0]], [[1.0, 0.0], [0.0, -1.0]]]}
    both = {"value": [[1.0, 2.0], [3.0, 4.0]], "sigma": [[0.1, 0.2], [0.3, 0.4]], "features": ["a", "b"]}
    mixtures = details_of(shown_release(kind="mixtures", parts=parts, **both))
    assert mixtures["places"][0] == {"at": [1.0, 2.0], "sigma": [0.1, 0.2], "size": 0.4, "width": [2.0, 3.0]}
    assert mixtures["places"][1]["width"] == [1.0, 0.0]
    matrix = details_of(shown_release(kind="covariance", **both))
    assert (matrix["form"], matrix["cells"], matrix["sigmas"]) == ("matrix", both["value"], both["sigma"])
    variance = details_of(
        shown_release(
            kind="variance", value=[4.0], sigma=[0.1], features=["a"], parts={"mean": [2.0], "mean_sigma": [0.2]}
        )
    )
    assert [group["rows"] for group in variance["groups"]] == [[("a", 4.0, 0.1)], [("a", 2.0, 0.2)]]


def test_what_is_too_much_for_a_page_is_left_out_and_counted():
    many = details_of(
        shown_release(
            kind="histogram", value=[1.0] * 300, sigma=[1.0] * 300, parts={"feature": "a", "edges": list(range(301))}
        )
    )
    assert (len(many["groups"][0]["rows"]), many["left_out"]) == (MAX_ROWS, 300 - MAX_ROWS)
    points = details_of(shown_release(kind="points", value=[[1.0, 2.0]] * 300, sigma=None, features=["a", "b"]))
    assert (len(points["places"]), points["left_out"]) == (MAX_ROWS, 300 - MAX_ROWS)


# -- what is kept ----------------------------------------------------------------------------------------------------


def test_of_many_windows_the_last_ones_are_kept(monkeypatch):
    monkeypatch.setattr("fcstream.service.page.history.MAX_WINDOWS", 30)
    history = PageHistory(7)
    history.keep(["rooms"])
    at = [shown_release(window_open_ms=10 * i, window_close_ms=10 * i + 10) for i in range(50)]
    history.load("rooms", at[:40])
    first = history.read(("rooms", None))
    assert (len(first.points), first.is_whole) == (30, True)
    history.add(at[39:50])  # one is known
    fresh = history.read(("rooms", None), first.cursor)
    assert (len(fresh.points), fresh.is_whole) == (10, False)
    assert history.read(("rooms", None), fresh.cursor) is None
    history.add(at[:3])  # they come again after a crash
    assert history.read(("rooms", None), fresh.cursor) is None
    history.load("rooms", at)
    assert history.read(("rooms", None), fresh.cursor).is_whole
    history.keep(["elsewhere"])
    assert history.read(("rooms", None)) is None
    monkeypatch.setattr("fcstream.service.page.history.ALL_BYTES", 25 * len(first.points[0]))
    history.load("rooms", at)
    assert 20 <= len(history.read(("rooms", None)).points) <= 25


def test_the_answers_of_a_window_cost_together_and_keys_share_the_room(monkeypatch):
    monkeypatch.setattr("fcstream.service.page.history.ALL_WINDOWS", 80)
    history = PageHistory(7)
    history.keep([f"rooms/{key}" for key in "abcd"])
    assert history.limit == 20
    history.add([shown_release(name="n"), shown_release(name="m", rho=0.25)])
    assert [sum(loss.rho for loss in cost.losses.values()) for cost in history.costs("rooms")] == [0.75]
    refused = {"reason": "budget_exhausted", "status": "refused", "value": None, "sigma": None, "rho": 0.0}
    history.add([shown_release(name="n", window_open_ms=10, window_close_ms=20, **refused)])
    assert [cost.is_charged for cost in history.costs("rooms")] == [True, False]
    assert list(history.names().values()) == ["count", "count"]


def test_a_ledger_that_cannot_be_read_leaves_the_page_without_earlier_windows(monkeypatch, caplog):
    from fcstream.errors import LedgerError

    stream = ShownStream()
    monkeypatch.setattr(
        stream.engine._ledger, "latest_sealed", lambda count: (_ for _ in ()).throw(LedgerError("away"))
    )
    with serving(stream) as server:
        stream.release(server.page, 30)
        assert "the page lacks earlier windows of rooms: away" in caplog.text
        stream.release(server.page, 30)
        assert len(server.page.windows(("rooms", None), "").points) == 2


ODD = [
    ({"parts": {"quantiles": ["low"]}}, [5.0]),
    ({"parts": {"tables": [["a"]], "columns": []}}, [5.0]),
    ({"parts": {"tables": [["a"]], "columns": []}, "shape": SHAPES["marginals"]}, None),
    ({"parts": {"levels": 3}, "shape": SHAPES["frequent"]}, None),
    ({"parts": [1]}, None),
    ({"value": 3.0}, [3.0]),
    ({"value": {"a": 1}}, None),
]


@pytest.mark.parametrize(("odd", "shown"), ODD)
def test_a_kind_of_another_package_with_a_form_of_its_own_does_not_stop_the_stream(odd, shown):
    """What it calls its parts may mean something else here."""
    history = PageHistory(7)
    history.add([shown_release(kind="own", **odd), shown_release(kind="own", window_open_ms=10, window_close_ms=20)])
    fresh = history.read(("rooms", None))
    assert [msgspec.json.decode(point)[3] for point in fresh.points] == [shown, [5.0]]
