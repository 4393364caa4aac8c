"""A headless Chromium of this machine, and a visit to a page in it."""

import contextlib
import os
import shutil
from urllib.parse import urlsplit

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SECONDS = 120
"""How long anything is waited for."""


def found():
    """The browser's path, or why there is none."""
    named = os.environ.get("FCSTREAM_BROWSER")
    path = named or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        return None, "no Chromium is here: install the system's package `chromium`, or name one in FCSTREAM_BROWSER"
    return path, ""


@pytest.fixture(scope="module")
def browser():
    """One browser for a file of tests; skips without one, and fails with FCSTREAM_REQUIRE_BROWSER=1."""
    path, why = found()
    if path is None:
        (pytest.fail if os.environ.get("FCSTREAM_REQUIRE_BROWSER") == "1" else pytest.skip)(why)
    from playwright.sync_api import sync_playwright

    # Its own sandbox needs a user who is not root, or rights that containers lack.
    with (
        sync_playwright() as driver,
        contextlib.closing(
            driver.chromium.launch(executable_path=path, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        ) as it,
    ):
        yield it


@contextlib.contextmanager
def visiting(browser, port, fragment="", interrupted=False, **options):
    """A page that was opened. At the end: the console had no error, and nothing came from elsewhere.

    Parameters
    ----------
    interrupted : bool
        The server goes away meanwhile, of which the console says so.
    options
        Of a context of Playwright: ``viewport``, ``color_scheme``, ...
    """
    with contextlib.closing(browser.new_context(**options)) as context:
        context.set_default_timeout(1000 * SECONDS)
        page = context.new_page()
        said, asked = [], []
        page.on("console", lambda message: said.append((message.type, message.text)))
        page.on("pageerror", lambda error: said.append(("error", str(error))))
        page.on("dialog", lambda dialog: said.append(("error", dialog.message)) or dialog.dismiss())
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"http://127.0.0.1:{port}/{fragment}")
        yield page
    assert {urlsplit(url).netloc for url in asked} == {f"127.0.0.1:{port}"}
    assert {urlsplit(url).path for url in asked} <= PATHS
    errors = [text for kind, text in said if kind in ("error", "warning")]
    assert [text for text in errors if not (interrupted and "net::ERR_" in text)] == []


PATHS = {"/", "/page.css", "/page.js", "/charts.js", "/forms.js", "/icon.svg", "/events"}
