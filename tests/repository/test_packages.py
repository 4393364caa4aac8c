"""What is given to people who install: the wheel, the source archive and the image of a container."""

import os
import shlex
import shutil
import subprocess
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from support import REPOSITORY

import fcstream

FACTS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
DOCKERFILE = REPOSITORY / "examples" / "deploy" / "Dockerfile"


@pytest.fixture(scope="module")
def built():
    """The folder with a wheel and a source archive of this version."""
    folder = os.environ.get("FCSTREAM_DIST")
    if folder is None:
        pytest.skip("FCSTREAM_DIST names no folder that `python -m build` has filled")
    return Path(folder)


def test_the_wheel_has_the_whole_package_and_nothing_else(built):
    (path,) = built.glob("fcstream-*.whl")
    with zipfile.ZipFile(path) as wheel:
        names = {name for name in wheel.namelist() if not name.split("/")[0].endswith(".dist-info")}
        metadata = wheel.read(f"fcstream-{fcstream.__version__}.dist-info/METADATA").decode()
    package = REPOSITORY / "fcstream"
    assert names == {
        f"fcstream/{found.relative_to(package)}"
        for found in package.rglob("*")
        if found.is_file() and "__pycache__" not in found.parts
    }
    assert f"\nVersion: {fcstream.__version__}\n" in metadata
    assert {line.split(": ")[1] for line in metadata.splitlines() if line.startswith("Provides-Extra")} == set(
        FACTS["optional-dependencies"]
    )


def test_the_source_archive_can_be_tested_and_documented(built):
    (path,) = built.glob("fcstream-*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    ledgers = {str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "tests").rglob("*.sql")}
    wanted = {"pyproject.toml", "README.md", "LICENSE", "CITATION.cff", "tests/conftest.py", "docs/conf.py"}
    assert ledgers
    assert wanted | ledgers <= names


def test_the_citation_names_this_version():
    facts = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())
    assert facts["version"] == fcstream.__version__
    assert facts["license"] == FACTS["license"]
    assert {"cff-version", "message", "title", "authors", "abstract", "keywords", "references"} <= facts.keys()
    assert all({"type", "title", "authors", "year"} <= paper.keys() for paper in facts["references"])


@pytest.mark.timeout(900)
def test_an_image_is_built_from_the_wheel_and_runs(built, tmp_path):
    """With `buildah`, `podman` or `docker`, whichever has the base image; FCSTREAM_BASE_IMAGE names another one."""
    base = os.environ.get("FCSTREAM_BASE_IMAGE", "python:3.11-slim")
    tool = _tool_that_has(base)
    shutil.copytree(built, tmp_path / "dist")
    more = shlex.split(os.environ.get("FCSTREAM_BUILD_OPTIONS", ""))
    name = f"localhost/fcstream-test-{os.getpid()}"
    arguments = ["--build-arg", f"BASE={base}", "--build-arg", "EXTRAS=service", "-f", str(DOCKERFILE), "-t", name]
    try:
        subprocess.run([*tool, "build", *more, *arguments, str(tmp_path)], check=True, timeout=280)
        assert _output_in(tool, name, "id", "-u") == "10001"
        steps = (
            "cd /var/lib/fcstream",
            "fcstream init",
            "fcstream simulate --out telemetry.jsonl",
            "fcstream run rooms.toml",
        )
        assert len(_output_in(tool, name, "sh", "-c", " && ".join(steps)).splitlines()) > 100
    finally:
        subprocess.run([*tool, "rmi", "-f", name], capture_output=True)


def _tool_that_has(base):
    reasons = []
    for tool in (["buildah"], ["podman"], ["docker"]):
        if shutil.which(tool[0]) is None:
            reasons.append(f"{tool[0]} is not installed")
            continue
        image = [] if tool == ["buildah"] else ["image"]
        kind = ["--type", "image"] if tool == ["buildah"] else []
        done = subprocess.run([*tool, *image, "inspect", *kind, base], capture_output=True, text=True)
        if done.returncode == 0:
            return tool
        reasons.append(
            f"{tool[0]} does not have {base}: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}"
        )
    pytest.skip("; ".join(reasons))


def _output_in(tool, image, *command):
    if tool == ["buildah"]:
        name = subprocess.run([*tool, "from", image], check=True, capture_output=True, text=True).stdout.strip()
        try:
            run = [*tool, "run", "--isolation", "chroot", name, "--", *command]
            return subprocess.run(run, check=True, capture_output=True, text=True, timeout=280).stdout.strip()
        finally:
            subprocess.run([*tool, "rm", name], capture_output=True)
    run = [*tool, "run", "--rm", "--entrypoint", command[0], image, *command[1:]]
    return subprocess.run(run, check=True, capture_output=True, text=True, timeout=280).stdout.strip()
