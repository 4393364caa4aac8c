"""What the documents say is run."""

import doctest
import runpy

import pytest
from support import REPOSITORY

import fcstream.arrays.clusters
import fcstream.arrays.statistics
import fcstream.counting.exact
from fcstream.config import Config
from fcstream.errors import UnusablePlan
from fcstream.planning.plan import plan

EXAMPLES = sorted([*(REPOSITORY / "examples").glob("*.toml"), *(REPOSITORY / "examples" / "spark").glob("*.toml")])


@pytest.mark.parametrize(
    "module", [fcstream.counting.exact, fcstream.arrays.statistics, fcstream.arrays.clusters], ids=lambda m: m.__name__
)
def test_docstring_examples(module):
    done = doctest.testmod(module)
    assert done.attempted > 0
    assert done.failed == 0


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_example_configurations_plan(path):
    config = Config.load(path)
    if path.stem == "rooms_1m":  # the documented refusal
        with pytest.raises(UnusablePlan, match="60 records"):
            plan(config)
    else:
        found = plan(config)  # of clusters only the data tell
        assert found.probability is None or found.probability > 0.99


def test_there_are_examples():
    assert len(EXAMPLES) >= 5


def test_embedded_example(capsys):
    runpy.run_path(str(REPOSITORY / "examples" / "embedded.py"), run_name="__main__")
    out = capsys.readouterr().out
    assert out.count(" C, noise ") >= 3


def blocks(language):
    inside, found = None, []
    for line in (REPOSITORY / "README.md").read_text().splitlines():
        if inside is None and line.strip() == f"```{language}":
            inside = []
        elif inside is not None and line.strip() == "```":
            found.append("\n".join(inside))
            inside = None
        elif inside is not None:
            inside.append(line)
    return found


def test_python_in_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = blocks("python")
    assert found
    for block in found:
        exec(compile(block, "README.md", "exec"), {})


def test_documents_do_not_speak_of_workplaces():
    for name in ("README.md", "PRIVACY.md", "CHANGELOG.md", "SECURITY.md", "pyproject.toml"):
        text = (REPOSITORY / name).read_text()
        assert "/work/" not in text
        assert "/tmp/" not in text
