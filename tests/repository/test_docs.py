"""What the documents say is run."""

import ast
import doctest
import pkgutil
import re
import runpy

import pytest
from support import REPOSITORY
from support.stubs import stubs

import fcstream.arrays.frequent
import fcstream.arrays.functions
import fcstream.counting.friends
import fcstream.engine.stream
import fcstream.reporting.released
from fcstream.config import Config
from fcstream.planning.plan import plan

EXAMPLES = sorted([*(REPOSITORY / "examples").glob("*.toml"), *(REPOSITORY / "examples" / "spark").glob("*.toml")])


@pytest.mark.parametrize(
    "module",
    [
        fcstream.counting.friends,
        fcstream.arrays.frequent,
        fcstream.engine.stream,
        fcstream.reporting.released,
    ],
    ids=lambda m: m.__name__,
)
def test_docstring_examples(module):
    done = doctest.testmod(module)
    assert done.attempted > 0
    assert done.failed == 0


ABOUT_ARRAYS = [value for name, value in vars(fcstream.arrays.functions).items() if name.startswith("private_")]


@pytest.mark.parametrize("function", ABOUT_ARRAYS, ids=lambda function: function.__name__)
def test_examples_of_functions_about_arrays(function, capsys):
    doctest.run_docstring_examples(function, {})
    assert ">>>" in function.__doc__
    assert capsys.readouterr().out == ""


def test_stubs_are_those_of_the_functions():
    """`python tests/support/stubs.py` writes them."""
    for path, text in stubs().items():
        assert _without_imports(path.read_text()) == _without_imports(text)


def _without_imports(text):
    return [ast.dump(node) for node in ast.parse(text).body if not isinstance(node, ast.ImportFrom)]


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_example_configurations_plan(path):
    found = plan(Config.load(path))  # of clusters only the data tell
    assert found.probability is None or found.probability > 0.99


def test_there_are_examples():
    assert len(EXAMPLES) >= 5


def test_embedded_example(capsys):
    runpy.run_path(str(REPOSITORY / "examples" / "gallery" / "embedded.py"), run_name="__main__")
    out = capsys.readouterr().out
    assert out.count(" C, noise ") >= 3


def test_documents_do_not_speak_of_workplaces():
    for name in ("README.md", "PRIVACY.md", "CHANGELOG.md", "SECURITY.md", "pyproject.toml"):
        text = (REPOSITORY / name).read_text()
        assert "/work/" not in text
        assert "/tmp/" not in text


DECISIONS = REPOSITORY / "docs" / "decisions"
PAGES = sorted(path for path in DECISIONS.glob("*.md") if path.name != "README.md")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_decisions_say_what_why_and_what_would_change_them(path):
    text = path.read_text()
    assert text.startswith("# ")
    for part in ("\n**Choice.** ", "\n## Why\n", "\n## What would change our mind\n"):
        assert part in text
    assert len(text.splitlines()) <= 60
    assert f"]({path.name})" in (DECISIONS / "README.md").read_text()


@pytest.mark.parametrize("path", [*PAGES, REPOSITORY / "CONTRIBUTING.md"], ids=lambda path: path.stem)
def test_commands_and_links_lead_somewhere(path):
    text = path.read_text()
    for script in re.findall(r"python (bench/\w+\.py)", text):
        assert (REPOSITORY / script).is_file()
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (path.parent / link).exists(), link
    groups = {
        f"fcstream.{name}" for name in ("releases", "sources", "queues", "sinks", "probes", "ledgers")
    }  # of entry points
    for name in set(re.findall(r"`(fcstream(?:\.\w+)+)`", text)) - groups:
        assert pkgutil.resolve_name(name)


def test_the_glossary_defines_each_term_once():
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", (REPOSITORY / "docs" / "glossary.md").read_text(), re.MULTILINE)
    terms = [row for row in rows if row not in ("term", "not", "---")]
    assert len(terms) > 100
    assert len(set(terms)) == len(terms)
