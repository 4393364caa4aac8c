"""The hooks and the workflow name tools, files and versions that exist."""

import os
import re
import shutil
import subprocess
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from support import REPOSITORY

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


def read(name):
    path = REPOSITORY / name
    if not path.exists():
        pytest.skip("no checkout: what surrounds the package is not here")
    return yaml.safe_load(path.read_text())


def test_hooks_run_tools_that_the_extras_bring():
    repositories = read(".pre-commit-config.yaml")["repos"]
    assert [each["repo"] for each in repositories] == ["local"]
    hooks = {hook["id"]: hook for hook in repositories[0]["hooks"]}
    extras = PROJECT["optional-dependencies"]
    brought = {Requirement(text).name for text in extras["lint"] + extras["test"]}
    assert "pre-commit" in brought
    for hook in hooks.values():
        assert hook["language"] == "system"
        assert {"lint-imports": "import-linter"}.get(tool := hook["entry"].split()[0], tool) in brought
    assert hooks["fast-lane"]["stages"] == ["pre-push"]


@pytest.mark.parametrize("tool", ["ruff-check", "ruff-format"])
def test_hooks_pass_on_this_repository(tool):
    hooks = {hook["id"]: hook for hook in read(".pre-commit-config.yaml")["repos"][0]["hooks"]}
    command = hooks[tool]["entry"].split()
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed: the gate runs it in another environment")
    check = ["--check"] if tool == "ruff-format" else []
    done = subprocess.run([*command, *check, "."], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_workflow_runs_the_gate_on_every_admitted_python():
    workflow = read(".github/workflows/ci.yml")
    assert set(workflow[True]) == {"push", "pull_request"}  # YAML reads `on` as a truth value
    (job,) = workflow["jobs"].values()
    admitted = SpecifierSet(PROJECT["requires-python"])
    assert job["strategy"]["matrix"]["python"] == [f"3.{minor}" for minor in range(30) if f"3.{minor}" in admitted]
    assert job["steps"][-1]["run"].endswith(".ci/run")
    for name in re.findall(r"FCSTREAM_\w+", job["steps"][-1]["run"]):
        assert f"${{{name}:-}}" in (REPOSITORY / ".ci" / "run").read_text()


def test_every_known_fault_is_planted_once_a_week():
    workflow = read(".github/workflows/faults.yml")
    assert set(workflow[True]) == {"schedule", "workflow_dispatch"}
    (job,) = workflow["jobs"].values()
    assert job["steps"][-1]["run"] == "python tests/audit/planted.py"


def test_a_tenth_of_all_intervals_is_asked_every_day():
    workflow = read(".github/workflows/coverage.yml")
    (when,) = workflow[True]["schedule"]
    assert when["cron"].split()[2:] == ["*"] * 3
    (job,) = workflow["jobs"].values()
    assert job["steps"][-1]["run"] == "python bench/coverage.py --share 10"


@pytest.mark.parametrize("name", ["run", "lock"])
def test_scripts_can_be_run(name):
    path = REPOSITORY / ".ci" / name
    if not path.exists():
        pytest.skip("no checkout: what surrounds the package is not here")
    assert os.access(path, os.X_OK)
    subprocess.run(["bash", "-n", path], check=True)
