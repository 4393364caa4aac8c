"""Tests of the site: they need the extra `docs`, and the gate runs them in a step of their own."""

import contextlib

from support import pages


def pytest_terminal_summary(terminalreporter):
    """Says which blocks of the pages are not run."""
    excuses = []
    for path in pages.paths():
        with contextlib.suppress(pages.PageError):  # the page's test says it
            excuses += pages.read(path).excuses
    terminalreporter.write_line(f"{len(excuses)} blocks of the pages are not run")
    for line in excuses:
        terminalreporter.write_line(f"  {line}")
