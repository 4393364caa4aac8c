"""What `pyproject.toml` asks for: said why, bounded below, and pinned for the gate."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from support import REPOSITORY

TEXT = (REPOSITORY / "pyproject.toml").read_text()
PROJECT = tomllib.loads(TEXT)["project"]
EXTRAS = PROJECT["optional-dependencies"]
LOCKED = ("test", "lint", "spark", "docs")


def test_every_dependency_says_why_it_is_there():
    asked = TEXT.partition("\n[tool.")[0]
    lists = re.findall(r"^(?:dependencies|[a-z]+) = \[\n(.*?)^\]", asked, re.MULTILINE | re.DOTALL)
    lines = [line for part in lists for line in part.splitlines() if re.match(r'\s+"[A-Za-z0-9_-]+(\[|>|=|"|<)', line)]
    assert len(lines) >= len(PROJECT["dependencies"]) + sum(map(len, EXTRAS.values()))
    for line in lines:
        assert re.search(r'",\s+# \S', line), line


def test_every_client_of_an_extra_is_tested_with_the_bound_it_has_there():
    """The oldest versions are installed from the extra `test`: a bound that differs elsewhere would go untested."""
    tested = {Requirement(text).name: Requirement(text).specifier for text in EXTRAS["test"]}
    for extra, texts in EXTRAS.items():
        if extra not in ("test", "lint", "bench", "spark", "docs"):
            for one in map(Requirement, texts):
                assert tested.get(one.name) == one.specifier, f"{one} of the extra {extra!r}"


def test_the_lock_of_the_gate_holds_every_dependency():
    lock = REPOSITORY / ".ci" / "lock.txt"
    if not lock.exists():
        pytest.skip("no checkout: the lock of the gate is not here")
    pins = {}
    for line in lock.read_text().splitlines():
        one = Requirement(line)
        (pin,) = one.specifier
        pins.setdefault(one.name, []).append(Version(pin.version))
    asked = [*PROJECT["dependencies"], *(text for extra in LOCKED for text in EXTRAS[extra])]
    for one in map(Requirement, asked):
        assert one.name.replace("_", "-") in pins, f"{one}: run .ci/lock"
        assert any(one.specifier.contains(pin) for pin in pins[one.name.replace("_", "-")]), f"{one}: run .ci/lock"
    assert "://" not in lock.read_text()
