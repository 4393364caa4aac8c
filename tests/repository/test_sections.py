"""`fcstream.sections`: every section and kind has a class there, and a type checker knows their keys."""

import inspect
import os
import re
import subprocess
import sys

import msgspec
import pytest
from support import REPOSITORY

from fcstream import Stream, sections
from fcstream.releases import registry

EXAMPLE = REPOSITORY / "examples" / "embedding" / "data_frames.py"
CLASSES = [value for name, value in vars(sections).items() if name[0].isupper() and isinstance(value, type)]
TYPED = """
import polars

from fcstream import Stream
from fcstream.sections import Budget, Count, Mean, Quantiles, Records, Window

window, budget = Window(length="1h", start="2026-01-01"), Budget(rho=1.0, delta=1e-6)
answers = [Count(rho=1.0), Quantiles(rho=1.0, quantiles=[0.5])]
stream = Stream("t", window=window, budget=budget, release=answers, ledger=None)
reveal_type(stream.run(polars.DataFrame()))
reveal_type(stream.run([polars.DataFrame()]))
reveal_type(stream.frame(stream.releases, like=polars.DataFrame()))
"""
WRONG = {  # an expression -> what a type checker says of it
    "Mean(raduis=3.0, rho=1.0)": 'Unexpected keyword argument "raduis" for "SearchOptions"; did you mean "radius"?',
    "Mean(radius=3.0)": 'Missing named argument "rho" for "SearchOptions"',
    'Mean(radius="look", rho=1.0)': 'Argument "radius" to "SearchOptions" has incompatible type',
    "Quantiles(rho=1.0, quantiles=0.5)": 'expected "list[float]"',
    "Window(length=10, start='2026')": 'Argument "length" to "WindowSection" has incompatible type "int"',
    "Window(length='1h', start='2026', clock='sun')": 'Argument "clock" to "WindowSection" has incompatible type',
    "Stream('t', window=window, budget=budget, release=Count(rho=1.0))": 'Missing named argument "ledger" for "Stream"',
    "Stream('t', window=window, budget=budget, release=window, ledger=None)": 'Argument "release" to "Stream" has',
    "Records(unit='user')": 'Missing named argument "name" for "StreamSection"',
    "stream.run(5)": 'No overload variant of "run" of "Stream" matches argument type "int"',
}


@pytest.mark.parametrize("name", registry.KINDS)
def test_every_kind_has_a_class_that_knows_it(name):
    kind, _, method = name.partition("/")
    options = registry.find(kind, method or None)
    owner = options if options in CLASSES else sections.Mean
    assert issubclass(owner, options), f"give the kind {name} a line in fcstream/sections.py"
    defaults = {field.name: field.default for field in msgspec.structs.fields(owner)}
    assert defaults["kind"] == kind, f"{owner.__name__} needs the line: kind: str = {kind!r}"
    assert owner is sections.Mean or not method or registry.find(kind, defaults["method"]) is owner


def test_every_section_that_a_stream_takes_has_a_class():
    taken = set(re.findall(r"\w+Section", str(inspect.signature(Stream))))
    assert len(taken) == 5
    assert taken <= {cls.__name__ for cls in CLASSES}


@pytest.mark.slow
def test_the_example_runs():
    pytest.importorskip("polars")
    done = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "shape: (6, 3)"
    assert done.stdout.splitlines()[-1] == "{'too_few'}"


@pytest.mark.slow
@pytest.mark.timeout(1200)  # it reads the whole package
def test_a_type_checker_knows_the_arguments(tmp_path):
    pytest.importorskip("mypy")
    pytest.importorskip("polars")
    wrong = TYPED.strip() + "\n" + "\n".join(WRONG)
    (tmp_path / "wrong.py").write_text(wrong)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(REPOSITORY / "pyproject.toml")]
    done = subprocess.run(
        [*command, "--cache-dir", str(tmp_path / "cache"), "wrong.py", str(EXAMPLE)],
        cwd=tmp_path,
        env=os.environ | {"MYPYPATH": str(REPOSITORY), "COLUMNS": "1000"},
        capture_output=True,
        text=True,
    )
    lines = done.stdout.splitlines()
    told = {}
    for line in lines:
        if found := re.fullmatch(r"wrong\.py:(\d+): (error|note): (.*)", line):
            told.setdefault(wrong.splitlines()[int(found[1]) - 1], []).append(found[3])
    revealed = [note for expression, notes in told.items() if expression.startswith("reveal") for note in notes]
    assert revealed == ['Revealed type is "polars.dataframe.frame.DataFrame"'] * 3, done.stdout + done.stderr
    for expression, message in WRONG.items():
        assert any(message in note for note in told.pop(expression)), expression
    assert all(expression.startswith("reveal") for expression in told)
    assert not [line for line in lines if EXAMPLE.name in line]
