"""Errors hold what they say as data: their text is made of it, and nobody cuts or edits a text."""

from __future__ import annotations

import ast
import pickle

import pytest
from support import REPOSITORY

from fcstream.errors import ConfigError, FcstreamError, LedgerError, Shown

_EDITS = {
    "partition", "rpartition", "split", "rsplit", "splitlines", "replace", "removeprefix", "removesuffix", "sub",
    "strip", "lstrip", "rstrip", "startswith", "endswith", "match", "fullmatch", "search", "findall",
}  # fmt: skip
_TEXTS = {"message", "finding", "rule", "remedy", "args"}
_OURS = {each.__name__ for each in [FcstreamError, *FcstreamError.__subclasses__(), *ConfigError.__subclasses__()]} | {
    each.__name__ for each in LedgerError.__subclasses__()
}


def _is_text(node: ast.AST, name: str) -> bool:
    """Tell whether an expression is a text of the error of this name."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("str", "repr"):
        return any(isinstance(each, ast.Name) and each.id == name for each in node.args)
    is_own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name
    return is_own and node.attr in _TEXTS


def _used(node: ast.AST) -> list[ast.AST]:
    """Return what an expression cuts, edits or compares, if it does so."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _EDITS:
        return [n for each in (node.func.value, *node.args) for n in ast.walk(each)]
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    return [node.value] if isinstance(node, ast.Subscript) else []


def _is_ours(kind: ast.expr | None) -> bool:
    return kind is not None and any(getattr(n, "id", getattr(n, "attr", "")) in _OURS for n in ast.walk(kind))


def _edited(source: str) -> list[int]:
    """Return the lines that cut, edit or compare a text of an error of ours."""
    scopes: list[tuple[ast.AST, str]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ExceptHandler) and node.name and _is_ours(node.type):
            scopes.append((node, node.name))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            given = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            scopes += [(node, each.arg) for each in given if _is_ours(each.annotation)]
    return [
        n.lineno for scope, name in scopes for n in ast.walk(scope) if any(_is_text(each, name) for each in _used(n))
    ]


def test_nobody_cuts_or_edits_the_text_of_an_error():
    files = sorted((REPOSITORY / "fcstream").rglob("*.py"))
    assert len(files) > 300
    found = [f"{path}:{line}" for path in files for line in _edited(path.read_text())]
    assert not found, "read rule, key, got, remedy and where in place of the text"


@pytest.mark.parametrize(
    "line",
    [
        "str(error).removeprefix('x: ')",
        "re.sub('a', 'b', error.message)",
        "error.message.partition(': ')",
        "f'{error.message}'.replace('a', 'b')",
        "error.args[0]",
        "'away' in str(error)",
    ],
)
def test_an_edited_text_is_found(line):
    assert _edited(f"try:\n    f()\nexcept errors.ConfigError as error:\n    x = {line}\n")
    assert _edited(f"def g(error: LedgerError | None):\n    return {line}\n")
    assert not _edited(f"try:\n    f()\nexcept OSError as error:\n    x = {line}\n")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConfigError("must be at least 1", "k", got=0), "k: must be at least 1, got 0"),
        (ConfigError("must be 'a'", "k", got="b", remedy="leave it out"), "k: must be 'a', got 'b': leave it out"),
        (ConfigError("must be one", got=Shown("a list")), "must be one, got a list"),
        (LedgerError("is away", where="l.db", remedy="restore it"), "l.db: is away: restore it"),
        (LedgerError("is away: no disk", remedy="restore it"), "is away: no disk; restore it"),
        (ConfigError("needs {rho} for {'x'}", "k", rho="release.rho"), "k: needs `release.rho` for {'x'}"),
    ],
)
def test_a_text_is_made_of_the_fields_and_survives_a_process(error, text):
    assert str(error) == text
    copy = pickle.loads(pickle.dumps(error))
    fields = {name: getattr(copy, name) for name in ("rule", "key", "got", "remedy", "where")}
    assert str(type(copy)(**fields, **copy.facts)) == str(copy) == text


def test_another_name_of_a_key_reaches_the_text():
    error = ConfigError("needs {other}", "release.rho", remedy="raise {other}", other="release.delta")
    error.rename(lambda key: key.removeprefix("release."))
    error.where = "stream 'a'"
    assert str(error) == "stream 'a': rho: needs `delta`: raise `delta`"
