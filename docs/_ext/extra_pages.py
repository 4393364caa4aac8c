"""The reference of extras, from `pyproject.toml`: what each installs, and why."""

import re
import tomllib
from pathlib import Path

_PROJECT = Path(__file__).parents[2] / "pyproject.toml"
_REASON = re.compile(r'^\s+"([^"]+)",\s+# (.+)$', re.MULTILINE)
FOR_DEVELOPERS = ("test", "lint", "bench", "docs")


def extras() -> str:
    """A table for each extra that users install."""
    text = _PROJECT.read_text()
    found = tomllib.loads(text)["project"]["optional-dependencies"]
    parts = [_table("always", text.partition("[project.optional-dependencies]")[0])]
    for name in sorted(found.keys() - set(FOR_DEVELOPERS)):
        section = re.search(rf"^{name} = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)
        assert section is not None
        parts.append(_table(f"`{name}`", section[1]))
    return "\n\n".join(parts)


def _table(title: str, lines: str) -> str:
    rows = [f"| `{package}` | {reason} |" for package, reason in _REASON.findall(lines)]
    return "\n".join([f"## {title}", "", "| package | what it is for |", "| --- | --- |", *rows])


MADE = {"extras": extras}
