"""A report as one HTML file: pictures are drawn into it, and nothing is loaded from anywhere."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from typing import Any

from ..plots.deployment import belief_picture, loss_picture, spending_picture
from .document import (
    LEVELS,
    Block,
    Bullets,
    DeploymentReport,
    DocumentSection,
    Drawing,
    FactTable,
    HazardAnswer,
    Paragraph,
)

_CODE = re.compile(r"`([^`\n]*)`")
_PICTURES: dict[str, Callable[[Any, str, str], str]] = {
    "losses": loss_picture,
    "belief": belief_picture,
    "spending": spending_picture,
}
_SIGNS = {"met": "✓", "attention": "!", "bad": "✗", "open": "?", "none": "·"}
STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --paper: #ffffff; --line: #d0d7de; --panel: #f6f8fa;
  --accent: #2b5d94; --warm: #a4501e; --met: #1a6b38; --bad: #a3202a; --open: #5b3a96; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --soft: #a5adb6; --paper: #14171b; --line: #3a4149;
  --panel: #1d2228; --accent: #8ab4e8; --warm: #e5a36f; --met: #7fd39b; --bad: #ff9a9a; --open: #c5aaf5; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body { margin: 0 auto; max-width: 50rem; padding: 1.5rem 1rem 4rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0.5rem 0; }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 2.75rem 0 0.75rem; padding-top: 0.75rem;
  border-top: 2px solid var(--line); }
h3 { font-size: 1rem; line-height: 1.35; margin: 0; }
p, ul, ol { margin: 0.6rem 0; }
li { margin: 0.3rem 0; }
a { color: var(--accent); }
.made, figcaption, caption { color: var(--soft); font-size: 0.9rem; }
.strong { background: var(--panel); border-left: 4px solid var(--accent); padding: 0.7rem 1rem; }
nav { background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: 0.25rem 1rem; }
nav ol { padding-left: 1.5rem; margin: 0.4rem 0; columns: 2 16rem; }
code { font: 0.875em/1.4 ui-monospace, monospace; background: var(--panel); border-radius: 3px; padding: 0.05em 0.3em;
  overflow-wrap: anywhere; }
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem; }
caption { text-align: left; font-weight: 600; color: var(--ink); padding: 0.3rem 0; }
th, td { min-width: 4.5rem; text-align: left; vertical-align: top; padding: 0.4rem 0.6rem;
  border-bottom: 1px solid var(--line); }
thead th { border-bottom: 2px solid var(--line); color: var(--soft); font-weight: 600; }
tbody th { min-width: 8rem; font-weight: 600; }
figure { margin: 1.25rem 0; }
figure svg { display: block; width: 100%; max-width: 40rem; height: auto; }
.finding { border: 1px solid var(--line); border-left: 5px solid var(--soft); border-radius: 4px; padding: 0.7rem 1rem;
  margin: 0.8rem 0; }
.finding p { margin: 0.35rem 0 0; }
.finding .origin { color: var(--soft); font-size: 0.85rem; }
.level { display: inline-block; font-size: 0.85rem; font-weight: 700; margin-right: 0.5rem; }
.is-met { border-left-color: var(--met); } .is-met .level { color: var(--met); }
.is-attention { border-left-color: var(--warm); } .is-attention .level { color: var(--warm); }
.is-bad { border-left-color: var(--bad); } .is-bad .level { color: var(--bad); }
.is-open { border-left-color: var(--open); } .is-open .level { color: var(--open); }
.skip { position: absolute; left: -100rem; } .skip:focus { left: 0; background: var(--paper); padding: 0.5rem; }
@media (max-width: 40rem) {
  body { padding: 1rem 0.8rem 3rem; }
  .stack thead { position: absolute; left: -100rem; }
  .stack tr { display: block; border-bottom: 2px solid var(--line); padding: 0.4rem 0; }
  .stack th, .stack td { display: block; min-width: 0; border: 0; padding: 0.15rem 0; }
  .stack td::before { content: attr(data-head) ": "; color: var(--soft); }
}
@media print {
  :root { --ink: #000000; --soft: #444444; --paper: #ffffff; --line: #999999; --panel: #f2f2f2; --accent: #1d4a7c;
    --warm: #8a3f10; --met: #10552b; --bad: #8a1620; --open: #4a2d80; }
  @page { margin: 18mm 16mm; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  nav, .skip { display: none; }
  h2 { break-after: avoid; margin-top: 1.6rem; } h3 { break-after: avoid; }
  .finding, figure, tr, .strong { break-inside: avoid; }
  .wide { overflow: visible; } thead { display: table-header-group; }
}
""".strip()


def to_html(report: DeploymentReport) -> str:
    """Format a report, pictures included; needs the extra ``plot``.

    Raises
    ------
    ConfigError
        matplotlib is not installed.
    """
    pictures = iter(range(1, 1000))
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="robots" content="noindex">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{html.escape(report.title)}</title>",
        f"<style>\n{STYLE}\n</style>",
        "</head>",
        "<body>",
        '<a class="skip" href="#summary">Skip to the report</a>',
        "<header>",
        f"<h1>{html.escape(report.title)}</h1>",
        f"<p>{_text(report.subtitle)}</p>",
        f'<p class="made">{_text(report.made)}</p>',
        "</header>",
        '<nav aria-label="Contents"><ol>',
        *(f'<li><a href="#{each.anchor}">{_text(each.title)}</a></li>' for each in report.sections),
        "</ol></nav>",
        "<main>",
    ]
    for number, section in enumerate(report.sections, 1):
        parts += _section(number, section, pictures)
    return "\n".join([*parts, "</main>", "</body>", "</html>"]) + "\n"


def _section(number: int, section: DocumentSection, pictures: Iterator[int]) -> Iterator[str]:
    yield f'<section id="{section.anchor}" aria-labelledby="{section.anchor}-title">'
    yield f'<h2 id="{section.anchor}-title">{number}. {_text(section.title)}</h2>'
    for block in section.blocks:
        yield from _block(block, pictures)
    yield "</section>"


def _block(block: Block, pictures: Iterator[int]) -> Iterator[str]:
    match block:
        case Paragraph(text, strong):
            yield f'<p class="strong">{_text(text)}</p>' if strong else f"<p>{_text(text)}</p>"
        case Bullets(items):
            yield "<ul>"
            yield from (f"<li>{_text(item)}</li>" for item in items)
            yield "</ul>"
        case FactTable():
            yield from _table(block)
        case Drawing(name, values, alt, caption):
            drawn = _PICTURES[name](values, f"picture{next(pictures)}", _bare(alt))
            yield f"<figure>\n{drawn}\n<figcaption>{_text(caption)}</figcaption>\n</figure>"
        case HazardAnswer(title, origin, level, text):
            yield f'<article class="finding is-{level}"><h3>{_text(title)}</h3>'
            sign = f'<span aria-hidden="true">{_SIGNS[level]}</span> {LEVELS[level]}'
            yield f'<p><span class="level">{sign}</span><span class="origin">chapter {_text(origin)}</span></p>'
            yield f"<p>{_text(text)}</p></article>"


def _table(table: FactTable) -> Iterator[str]:
    yield f'<div class="wide" role="region" tabindex="0" aria-label="{_attribute(table.caption)}">'
    yield f'<table class="stack"><caption>{_text(table.caption)}</caption>'
    heads = "".join(f'<th scope="col">{_text(head)}</th>' for head in table.head)
    yield f"<thead><tr>{heads}</tr></thead><tbody>"
    for first, *rest in table.rows:
        cells = "".join(
            f'<td data-head="{_attribute(head)}">{_text(cell)}</td>'
            for head, cell in zip(table.head[1:], rest, strict=True)
        )
        yield f'<tr><th scope="row">{_text(first)}</th>{cells}</tr>'
    yield "</tbody></table></div>"


def _text(text: str) -> str:
    parts = _CODE.split(text)
    return "".join(f"<code>{html.escape(part)}</code>" if i % 2 else html.escape(part) for i, part in enumerate(parts))


def _bare(text: str) -> str:
    return _CODE.sub(r"\1", text)


def _attribute(text: str) -> str:
    return html.escape(_bare(text))
