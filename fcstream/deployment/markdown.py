"""A report as Markdown (GitHub's kind of tables). Pictures are told in words."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .document import LEVELS, Block, Bullets, DeploymentReport, Drawing, FactTable, HazardAnswer, Paragraph

_CODE = re.compile(r"`([^`\n]*)`")
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&$])")


def to_markdown(report: DeploymentReport) -> str:
    """Format a report; everything but code between backticks is escaped."""
    lines = [f"# {plain(report.title)}", "", _text(report.subtitle), "", _text(report.made), ""]
    lines += ["Contents:", ""]
    lines += [f"{i}. {_text(section.title)}" for i, section in enumerate(report.sections, 1)]
    for i, section in enumerate(report.sections, 1):
        lines += ["", f"## {i}. {_text(section.title)}"]
        for block in section.blocks:
            lines += ["", *_block(block)]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Return a text as Markdown: what is between backticks stays code, everything else means itself."""
    return _text(text)


def _block(block: Block) -> Iterator[str]:
    match block:
        case Paragraph(text, strong):
            yield f"> {_text(text)}" if strong else _text(text)
        case Bullets(items):
            yield from (f"- {_text(item)}" for item in items)
        case FactTable(caption, head, rows):
            yield f"Table: {_text(caption)}"
            yield ""
            yield _row(head)
            yield _row("---" for _ in head)
            yield from map(_row, (map(_cell, row) for row in rows))
        case Drawing(_, _, alt, caption):
            yield f"Picture: {_text(caption)} {_text(alt)}"
        case HazardAnswer(title, origin, level, text):
            yield f"### {_text(title)}"
            yield ""
            yield f"Chapter {_text(origin)}. **{LEVELS[level]}.** {_text(text)}"


def _row(cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"  # type: ignore[call-overload]


def _cell(text: str) -> str:
    return _text(text, in_table=True)


def _text(text: str, *, in_table: bool = False) -> str:
    """Escape a text, and keep its code as code; a bar would end a cell of a table, even in code."""
    parts = _CODE.split(" ".join(text.split()))
    return "".join(
        (f"`{part.replace('|', chr(92) + '|') if in_table else part}`" if i % 2 else plain(part))
        for i, part in enumerate(parts)
    )


def plain(text: str) -> str:
    """Return a text as Markdown in which every sign means itself."""
    return _SPECIAL.sub(r"\\\1", text)
