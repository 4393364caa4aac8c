"""Docstrings of fcstream for numpydoc: sections that it does not know become notes, and bars are no substitutions."""

import re
import warnings
from typing import Any

from sphinx.application import Sphinx

OURS = ("Privacy", "Complexity", "Source")
_HEAD = re.compile(r"-{3,}\s*$")
_CODE = re.compile(r"(``.*?``|`.*?`)")


def setup(app: Sphinx) -> dict[str, bool]:
    warnings.filterwarnings("ignore", "Unknown section", module="numpydoc")  # it looks at them once more, unchanged
    app.connect("autodoc-process-docstring", _process, priority=100)  # before numpydoc
    return {"parallel_read_safe": True}


def _process(_app: Sphinx, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    sections = _sections(lines)
    notes = [line for name, body in sections if name == "Notes" for line in body]
    for name, body in sections:
        if name in OURS:
            text = [line for line in body if line.strip()] and body
            notes += ["", f"**{name}.** {text[0].strip()}" if text else "", *text[1:]]
    kept = [(name, body) for name, body in sections if name not in (*OURS, "Notes")]
    lines[:] = [line for name, body in kept for line in _written(name, body)]
    if notes:
        lines += _written("Notes", notes)
    lines[:] = ["".join(_escaped(part) for part in _CODE.split(line)) for line in lines]


def _sections(lines: list[str]) -> list[tuple[str, list[str]]]:
    """What is above the first heading, without a name, and the sections."""
    found: list[tuple[str, list[str]]] = [("", [])]
    for i, line in enumerate(lines):
        if (
            i + 1 < len(lines)
            and line.strip()
            and _HEAD.match(lines[i + 1])
            and len(line.strip()) == len(lines[i + 1].strip())
        ):
            found.append((line.strip(), []))
        elif not (found[-1][0] and not found[-1][1] and _HEAD.match(line)):
            found[-1][1].append(line)
    return found


def _written(name: str, body: list[str]) -> list[str]:
    return body if not name else ["", name, "-" * len(name), *body]


def _escaped(part: str) -> str:
    return part if part.startswith("`") else part.replace("|", "\\|")
