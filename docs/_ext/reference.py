"""Writes the reference from the code: a line `<!-- made from the code: NAME -->` of a page becomes what NAME returns.

Meanings stand in the code: of a key, in the docstring under it; of a field, in the docstring of its class.
"""

import re
from typing import Any

import api_pages
import connector_pages
import extra_pages
import output_pages
import section_pages
from sphinx.application import Sphinx

MADE = {**section_pages.MADE, **connector_pages.MADE, **output_pages.MADE, **extra_pages.MADE}
_LINE = re.compile(r"^<!-- made from the code: (\w+) -->$", re.MULTILINE)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("config-inited", api_pages.write)
    app.connect("source-read", _fill)
    app.connect("env-get-outdated", _pages_of_the_reference)
    return {"parallel_read_safe": True}


def _fill(_app: Sphinx, _name: str, source: list[str]) -> None:
    source[0] = _LINE.sub(lambda found: MADE[found[1]](), source[0])


def _pages_of_the_reference(_app: Sphinx, env: Any, *_: Any) -> list[str]:
    """They are read at every build, since the code may have changed."""
    return [name for name in env.found_docs if name.startswith("reference/") and "/api/" not in name]
