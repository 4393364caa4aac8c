"""Names that the package defines hold no word that the glossary bans; locals have no rule."""

from __future__ import annotations

import ast
import re

from support import REPOSITORY

_TERMS = ("dead_letter", "record_gate", "rollback_guard", "ladder_bound")  # a ladder is a form of the odometer
_SENSES = {
    "place",
    "others",
    "outside",
    "stores",
    "standing",
    "served",
    "watched",
    "widths",
    "price",
    "strangers",
    "way",
}
"""Banned in one sense, which a test cannot tell from the others."""
_ALONE = {"again", "gate", "ladder", "least", "most", "told"}
"""Banned as a part of a name; as a whole name of few letters they are still in use."""


def _banned() -> set[str]:
    text = (REPOSITORY / "docs" / "glossary.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \|", text[text.index("## Words that are not used") :], re.MULTILINE)
    words = {word.strip() for row in rows for word in row.replace(" (in names)", "").split(",")}
    return {word for word in words if re.fullmatch("[a-z]{3,}", word)} - _SENSES - {"not"}


def _words(name: str) -> list[str]:
    snake = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()
    for term in _TERMS:
        snake = re.sub(rf"(^|_){term}(_|$)", "_", snake)
    return [word for word in snake.split("_") if word]


def _defined(node: ast.AST, in_function: bool = False) -> list[str]:
    """Return the classes, functions, parameters, attributes and names of modules and classes that a source defines."""
    found: list[str] = []
    for each in ast.iter_child_nodes(node):
        inside = in_function and not isinstance(node, ast.ClassDef)
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found += [] if inside else [each.name]
        elif isinstance(each, ast.arg):
            found.append(each.arg)
        elif isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
            found.append(each.attr)
        elif isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store) and not in_function:
            found.append(each.id)
        is_function = isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.comprehension))
        found += _defined(each, not isinstance(each, ast.ClassDef) and (in_function or is_function))
    return found


def _wrong(names: list[str], banned: set[str]) -> set[str]:
    return {
        name for name in names if (found := _words(name)) and set(found) & banned and found not in [[w] for w in _ALONE]
    }


def test_names_hold_no_word_that_the_glossary_bans():
    banned = _banned()
    assert {"most", "least", "told", "stamp", "letter", "gate"} <= banned
    names = [
        name
        for path in sorted((REPOSITORY / "fcstream").rglob("*.py"))
        for name in (path.stem, *_defined(ast.parse(path.read_text())))
        if not name.startswith("test_")
    ]
    assert len(names) > 10_000
    assert not _wrong(names, banned), "docs/glossary.md says which word to take"


def test_a_banned_word_is_found_wherever_it_is_defined():
    source = (
        "MOST_ROWS = 1\nclass LeadAt:\n    least_x: int\n    def f(self, told_x):\n        self.stamp_y = most_z = 1\n"
    )
    assert _wrong(_defined(ast.parse(source)), _banned()) == {"MOST_ROWS", "LeadAt", "least_x", "told_x", "stamp_y"}
    assert not _wrong(["dead_letter", "DeadLetterWriter", "RecordGate", "almost_all"], _banned())
