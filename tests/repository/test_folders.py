"""The house rules of the tests: what lies where, and what may import what."""

import re
from pathlib import Path

from support import REPOSITORY

import fcstream

TESTS = REPOSITORY / "tests"
FOLDERS = {"audit", "browser", "connectors", "recovery", "repository", "statistical", "support", "unit"}
FILES = sorted(TESTS.rglob("*.py"))


def imported(path):
    """Modules that a file imports, also in the programs that it holds as text."""
    text = path.read_text()
    yield from re.findall(r"^[ \t]*(?:from|import) ([\w.]+)", text, re.M)


def test_no_module_imports_a_test_module():
    """What two of them need lies in tests/support."""
    for path in FILES:
        for name in imported(path):
            parts = name.split(".")
            assert not any(part.startswith("test_") or part == "conftest" for part in parts), f"{path} imports {name}"


def test_every_file_lies_in_a_folder_that_says_what_it_is_about():
    assert {path.relative_to(TESTS).parts[0] for path in FILES} == FOLDERS | {"conftest.py"}
    assert [path.name for path in (TESTS / "support").iterdir() if path.name.startswith("test_")] == []


def test_folders_of_unit_tests_are_the_packages():
    package = Path(fcstream.__file__).parent
    for folder in (TESTS / "unit").iterdir():
        if folder.name != "__pycache__":
            assert folder.is_dir(), folder
            assert (package / folder.name / "__init__.py").exists(), f"{folder.name} is no package"
