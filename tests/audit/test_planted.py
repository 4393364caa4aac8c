"""Known faults are noticed: a few are planted in every run, all of them by the command `planted.py`, once a week.

Every run sees to it that each fault still has its place in the source, and its tests.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from audit.planted import FAULTS, REPOSITORY, Fault, caught_by, copied, main, planted


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return copied(tmp_path_factory.mktemp("planted"))


def named(faults):
    return [pytest.param(fault, id=fault.name) for fault in faults]


@pytest.mark.parametrize("fault", named(FAULTS))
def test_a_fault_has_its_place_and_its_tests(fault, folder):
    path = folder / "fcstream" / fault.file
    before = path.read_text()
    with planted(fault, folder):
        assert path.read_text() != before
        compile(path.read_text(), str(path), "exec")
    assert path.read_text() == before
    for test in fault.tests:
        file, _, name = test.partition("::")
        text = (Path(REPOSITORY) / "tests" / file).read_text()
        name = name.partition("[")[0]
        assert f"def {name}(" in text or f"class {name}(" in text


def test_names_tell_faults_apart():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize("fault", named(fault for fault in FAULTS if fault.quick))
def test_a_planted_fault_is_caught(fault, folder):
    assert caught_by(fault, folder) is not None


HARMLESS = Fault(
    "a comment",
    "stream/totals.py",
    "WIDE = 2**62\n",
    "WIDE = 2**62  # no fault\n",
    ("unit/stream/test_totals.py::test_costs_of_a_quantile_do_not_wrap",),
)


def test_what_no_test_notices_is_not_called_caught(folder):
    assert caught_by(HARMLESS, folder) is None


def test_a_place_that_has_moved_is_no_caught_fault(folder):
    with pytest.raises(LookupError, match="0 times"):
        caught_by(replace(HARMLESS, old="WIDE = 2**61\n"), folder)


def test_a_test_that_is_not_there_is_no_caught_fault(folder):
    with pytest.raises(RuntimeError, match="cannot be run"):
        caught_by(replace(HARMLESS, tests=("unit/stream/test_totals.py::test_of_nothing",)), folder)


def test_the_command_names_faults_and_tests(capsys):
    assert main(["--list", "ball"]) == 0
    assert (
        "half the noise of a ball's sum (releases/averages.py): audit/test_mechanisms.py::" in capsys.readouterr().out
    )
