"""The live page in a real browser: it opens, keeps up, comes back, has what the ledger has, and can be read by all."""

import json
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing, contextmanager

import pytest
from support.browser import SECONDS, visiting
from support.helpers import counting_job, free_port
from support.live_page import LENGTH_MS, ShownStream, serving
from support.release_kinds import RELEASES
from support.sources import until

from fcstream import Release
from fcstream.ledgers import open_reader

MEAN = {"kind": "mean", "method": "ball", "center": [20.0, 50.0], "radius": 3.0, "delta": None, "size_hint": None}
LISTED = "#last tbody tr"
VALUES = f"""() => [...document.querySelectorAll("{LISTED}")].map((row) =>
    [...row.querySelectorAll("td data")].map((each) => Number(each.value)))"""
NUMBERS = (
    """() => [...document.querySelectorAll("#value data")].map((each) => [Number(each.value), each.textContent])"""
)
POINTS = """() => Math.max(...[...document.querySelectorAll("svg path")].map((path) =>
    path.getAttribute("d").split(/[MLV]/).length))"""
KINDS = ("histogram", "marginals", "synthetic", "points", "quantiles", "total")


def shown(**fields):
    """A release of a mean of one feature, with some fields changed."""
    about = {"stream": "rooms", "status": "released", "reason": None, "kind": "mean", "value": [5.0], "sigma": [1.0]}
    costs = {"count": 5, "core_count": 5, "rho": 0.5, "delta": 0.0, "guarantee": {"rho": 4.0, "delta": 0.0}}
    rest = {"spent": {"rho": 0.5, "delta": 0.0}, "private": True, "features": ["a"], "transform": ["none"]}
    return Release(**(about | costs | rest | {"window_open_ms": 0, "window_close_ms": LENGTH_MS} | fields))


def row_of(release):
    return [*(release.value or []), release.count, release.rho]


@pytest.fixture(scope="module")
def kinds():
    """A server with a stream of each of some kinds."""
    streams = []
    for kind in KINDS:
        answer = {"rho": 0.5, **RELEASES["points/cells" if kind == "points" else kind][0]}
        streams.append(ShownStream(kind, release=answer, budget={"rho": 400.0, "delta": 0.0}))
    with serving(*streams) as server:
        for each in streams:
            each.release(server.page, 2000, 3, 2000)
        yield server


# -- contents --------------------------------------------------------------------------------------------------------


def test_it_shows_what_the_ledger_has_and_goes_on_by_itself(browser, tmp_path):
    url = f"sqlite:{tmp_path / 'l.db'}"
    stream = ShownStream(ledger=url, release=MEAN | {"rho": 1.0}, stream={"unit": "stream"}, budget={"rho": 40.0})
    with serving(stream) as server:
        stream.release(server.page, 2000, 2000, 2, 2000)
        with visiting(browser, server.port) as page:
            page.wait_for_selector(f"{LISTED}:nth-child(4)")
            assert page.title() == "fcstream: live streams"
            assert page.inner_text("#connection") == "Connected: what you see is live"
            assert "serving" in page.inner_text("#streams")
            assert page.evaluate(VALUES) == [row_of(each) for each in stream.releases[::-1]]
            stream.release(server.page, 2000)
            page.wait_for_selector(f"{LISTED}:nth-child(5)")
            assert page.evaluate(VALUES) == [row_of(each) for each in stream.releases[::-1]]
            assert "too_few" in page.inner_text("#refusals")
            assert "use longer windows" in page.inner_text("#refusals")
            assert "more windows" in page.inner_text("#budget")
            assert page.locator("#charts svg").count() == 3  # of each feature, and of the number of records
            assert page.locator("#exact-section").is_hidden()
            assert "value" in page.inner_text("#value table")
    stream.engine.abort()
    with closing(open_reader(url)) as reader:
        assert [Release.from_bytes(line) for line in reader.releases()] == stream.releases


@contextmanager
def service(folder, port):
    """``fcstream run`` on its standard input, which a thread feeds ten times a second."""
    command = [sys.executable, "-m", "fcstream", "run", "c.toml"]
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": folder}
    with subprocess.Popen(command, **pipes) as process:
        stop = threading.Event()

        def feed():
            while not stop.wait(0.1):
                line = json.dumps({"ts_ms": time.time_ns() // 10**6, "a": 20.0}).encode() + b"\n"
                try:
                    process.stdin.write(line)
                    process.stdin.flush()
                except OSError:
                    return

        sender = threading.Thread(target=feed)
        sender.start()
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            process.wait(SECONDS)
        finally:
            stop.set()
            sender.join()
            process.kill()  # if it still runs
            _, errors = process.communicate()
    assert process.returncode == 0, errors


def test_it_keeps_up_with_a_service_and_with_its_restart(browser, tmp_path):
    port = free_port()
    text = counting_job(
        time.time() // 1,
        window={"clock": "wall", "lateness": "0s", "start": "now", "backlog": None},
        source={"url": "stdin:", "spool": "spool"},
        service={"listen": f"127.0.0.1:{port}", "page": True},
    )
    (tmp_path / "c.toml").write_text(text)
    with ExitStack() as visits:
        with service(tmp_path, port):
            until(lambda: (tmp_path / "out.jsonl").exists() and (tmp_path / "out.jsonl").read_bytes())
            page = visits.enter_context(visiting(browser, port, interrupted=True))
            page.wait_for_selector(LISTED)
            before = page.locator(LISTED).count()
            page.wait_for_selector(f"{LISTED}:nth-child({before + 2})")
        page.wait_for_function("() => document.getElementById('connection').textContent.includes('trying again')")
        known = page.locator(LISTED).count()
        assert known >= before + 2  # what was shown stays
        with service(tmp_path, port):
            page.wait_for_function("() => document.getElementById('connection').textContent.startsWith('Connected')")
            page.wait_for_selector(f"{LISTED}:nth-child({known + 1})")
            found = page.evaluate(VALUES)
    with closing(open_reader(f"sqlite:{tmp_path / 'ledger.db'}")) as reader:
        sealed = [row_of(Release.from_bytes(line)) for line in reader.releases()]
    found = found[::-1]
    at = next(i for i in range(len(sealed)) if sealed[i : i + len(found)] == found)
    assert at + len(found) >= known


def test_a_name_from_elsewhere_is_text(browser):
    hostile = '<img src=x onerror="alert(1)">'
    stream = ShownStream()
    with serving(stream) as server:
        stream.step(server.page)
        levels = {"feature": hostile, "levels": [hostile, "</script><script>alert(2)</script>"]}
        fields = {"kind": "frequent", "name": hostile, "features": None, "transform": None, "parts": levels}
        stream.service.counters.add([shown(value=[7.0, 5.0], sigma=[1.0, 1.0], **fields)])
        late = {"window_open_ms": LENGTH_MS, "window_close_ms": 2 * LENGTH_MS, "value": None, "sigma": None}
        stream.service.counters.add([shown(**fields | late | {"status": "refused", "reason": hostile})])
        stream.service._health.warn(hostile, hostile)
        with visiting(browser, server.port) as page:
            page.wait_for_selector(f"{LISTED}:nth-child(2)")
            page.wait_for_selector("#value table")
            for place in ("#notes", "#value", "#last", "#readout", "#charts"):
                assert hostile in page.inner_text(place), place
            assert hostile in page.locator("#refusals").text_content()
            assert page.locator("img, body script").count() == 0


# -- for everybody ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_kind_can_be_read_by_everybody(browser, kinds, scheme):
    from axe_playwright_python.sync_playwright import Axe

    with visiting(browser, kinds.port, color_scheme=scheme) as page:
        page.wait_for_selector("#value table")
        dark = page.evaluate("() => getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
        assert dark == (scheme == "dark")
        told = {}
        for kind in KINDS:
            page.select_option("#stream", kind)
            page.wait_for_function(f"() => location.hash === '#stream={kind}' && document.querySelector('{LISTED}')")
            page.wait_for_selector("#value table")
            found = Axe().run(page)
            assert found.violations_count == 0, (kind, found.generate_report())
            page.set_viewport_size({"width": 320, "height": 640})
            assert page.evaluate("() => document.documentElement.scrollWidth") <= 320, kind
            page.set_viewport_size({"width": 1280, "height": 720})
            told[kind] = page.evaluate(NUMBERS)
        for kind, found in told.items():
            newest = json.loads(kinds.page.windows((kind, None), "").newest)
            cells = [value for table in newest.get("tables", ()) for row in table["cells"] for value in row]
            cells += [value for group in newest.get("groups", ()) for _, value, _ in group["rows"]]
            cells += [value for place in newest.get("places", ()) for value in (*place["at"], place["size"])]
            assert [value for value, _ in found] == cells
            assert all(float(text.replace(",", "")) == pytest.approx(value, abs=0.1) for value, text in found), kind


def test_a_keyboard_reaches_everything(browser, kinds):
    with visiting(browser, kinds.port, "#stream=total") as page:
        page.wait_for_selector(f"{LISTED}:nth-child(3)")
        page.keyboard.press("Tab")
        assert page.evaluate("() => document.activeElement.textContent") == "Skip to the windows"
        page.keyboard.press("Enter")
        assert page.evaluate("() => document.activeElement.id") == "windows"
        reached = []
        for _ in range(3):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("() => document.activeElement.id"))
        assert reached == ["stream", "range", "cursor"]
        newest = page.inner_text("#readout")
        page.keyboard.press("ArrowLeft")
        page.wait_for_function(f"() => document.getElementById('readout').textContent !== {json.dumps(newest)}")
        told = page.get_attribute("#cursor", "aria-valuetext")
        assert told == page.inner_text("#readout")
        assert told.startswith("1970-01-01 00:00:10 to 1970-01-01 00:00:20 UTC: total ")
        page.focus("#pause")
        page.keyboard.press("Space")
        assert page.get_attribute("#pause", "aria-pressed") == "true"
        assert page.inner_text("#connection") == "Paused: what you see is not live"
        page.keyboard.press("Space")
        page.wait_for_function("() => document.getElementById('connection').textContent.startsWith('Connected')")


def test_thousands_of_windows_are_a_few_lines_and_can_be_read_one_by_one(browser):
    stream = ShownStream()
    with serving(stream) as server:
        stream.step(server.page)
        many = [
            shown(value=[float(i % 97)], window_open_ms=i * LENGTH_MS, window_close_ms=(i + 1) * LENGTH_MS)
            for i in range(5010)
        ]
        stream.service.counters.add(many[:5000])
        with visiting(browser, server.port, viewport={"width": 1000, "height": 700}) as page:
            page.wait_for_selector(LISTED)
            page.select_option("#range", "5000")
            page.wait_for_function("() => document.getElementById('cursor').max === '4999'")
            assert page.locator("svg *").count() < 200
            assert page.evaluate(POINTS) < 2 * 2 * 1000  # a band has two ends in each column of pixels
            page.focus("#cursor")
            page.keyboard.press("Home")
            page.wait_for_function("() => document.getElementById('readout').textContent.includes(': a 0.0 ± 2.0;')")
            for release in many[5000:]:
                stream.service.counters.add([release])
            last = "1970-01-01 13:54:50"
            page.wait_for_function(f"() => document.querySelector('{LISTED}').textContent.includes({json.dumps(last)})")
            assert page.get_attribute("#cursor", "max") == "4999"
