"""README is short, its links lead somewhere, and its picture is what the program gives."""

import re
import runpy

import pytest
from support import REPOSITORY

README = (REPOSITORY / "README.md").read_text()
LINKS = re.compile(r"\]\(([^)\s]+)\)|\bsrc=\"([^\"]+)\"")


def anchors(page: str) -> set[str]:
    """What a code hoster makes of the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_it_is_short():
    assert len(README.encode()) <= 10_000


def test_its_links_lead_somewhere():
    links = [link or source for link, source in LINKS.findall(README) if "://" not in link]
    assert len(links) > 20
    for link in links:
        file, _, anchor = link.partition("#")
        assert (REPOSITORY / file).exists(), link
        assert not anchor or anchor in anchors((REPOSITORY / file).read_text()), link


def test_the_gate_finds_its_commands():
    for name in ("job", "test"):
        marked = re.findall(rf"<!-- {name} -->\n(.*?)<!-- end -->", README, re.DOTALL)
        assert len(marked) == 1
        assert re.fullmatch(r"(<!-- .* -->\n)?```sh\npython3 .*\n```\n", marked[0])


@pytest.mark.slow
def test_its_picture_is_drawn_from_a_run():
    drawing = REPOSITORY / "docs" / "_readme" / "rooms.py"
    assert runpy.run_path(str(drawing))["main"]() == drawing.with_suffix(".svg").read_text(), (
        "draw it anew: python docs/_readme/rooms.py >docs/_readme/rooms.svg"
    )
