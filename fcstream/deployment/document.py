"""What a report is made of: sections of paragraphs, lists, tables and pictures, as values without a format.

In a text, a part between backticks is code, as in ``the key `budget.rho` ``. Everything else is plain text, whatever
signs it has: each format escapes it. What comes from a configuration goes through `code` or is plain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..runtime.words import many


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph of text; one that is `strong` is set off from the others."""

    text: str
    strong: bool = False


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list of texts."""

    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FactTable:
    """A table with a caption and a head.

    Attributes
    ----------
    rows : tuple of tuple of str
        As many texts as `head` has; the first one names the row.
    """

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture, as the values that are drawn.

    Attributes
    ----------
    name : str
        Which picture: ``losses``, ``belief`` or ``spending``.
    values : object
        What `fcstream.plots` draws it from.
    alt : str
        What somebody who cannot see it should know.
    """

    name: str
    values: Any
    alt: str
    caption: str


@dataclass(frozen=True, slots=True)
class HazardAnswer:
    """An answer to one question.

    Attributes
    ----------
    level : str
        A key of `LEVELS`.
    origin : str
        Where the question comes from.
    """

    title: str
    origin: str
    level: str
    text: str


LEVELS = {
    "met": "Avoided",
    "attention": "Attention",
    "bad": "Not avoided",
    "open": "For the operator to answer",
    "none": "Does not arise",
}
"""How a hazard is dealt with: well, partly, badly, not by the configuration; or it does not arise."""

Block = Paragraph | Bullets | FactTable | Drawing | HazardAnswer


@dataclass(frozen=True, slots=True)
class DocumentSection:
    """A section: what it is called in links, its heading, and its blocks."""

    anchor: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class DeploymentReport:
    """The whole document.

    Attributes
    ----------
    title, subtitle : str
    made : str
        When, and by which program.
    """

    title: str
    subtitle: str
    made: str
    sections: tuple[DocumentSection, ...]

    def blocks(self) -> Iterator[Block]:
        """Iterate over all blocks, in order."""
        for section in self.sections:
            yield from section.blocks

    def section(self, anchor: str) -> DocumentSection:
        """Return a section by the name that links have; raises KeyError."""
        return {each.anchor: each for each in self.sections}[anchor]


def code(value: object) -> str:
    """Return a text from outside as code: on one line, without backticks of its own."""
    text = "".join(sign if sign.isprintable() else "�" for sign in str(value)).replace("`", "'")
    return f"`{text}`" if text.strip() else "(empty)"


_UNITS = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000), ("millisecond", 1))


def spell(time_ms: int) -> str:
    """Say a duration in words, in the largest unit that divides it: ``10 minutes``, or ``day`` for one of them."""
    name, size = next(each for each in _UNITS if time_ms % each[1] == 0)
    count = time_ms // size
    return many(count, name) if count != 1 else name
