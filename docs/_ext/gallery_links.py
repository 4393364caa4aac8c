"""Pages link to the programs in examples/gallery, so that the links also work where the pages are read as files. On the
site such a link leads to the page that the program makes.
"""

import re

from sphinx.application import Sphinx

_LINK = re.compile(r"\]\((?:\.\./)+examples/gallery(?:/(\w+)\.py)?\)")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", _lead_to_pages)
    return {"parallel_read_safe": True}


def _lead_to_pages(_app: Sphinx, _name: str, source: list[str]) -> None:
    source[0] = _LINK.sub(lambda found: f"](/gallery/{found[1] or 'index'}.rst)", source[0])
