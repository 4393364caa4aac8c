"""Compiled code runs with our rights: nobody else may write it."""

import os
import subprocess
import sys

import pytest

from fcstream.errors import ConfigError
from fcstream.runtime.compile_cache import check_cache


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["open to all", "a folder in it", "a file in it", "what it lies in", "nothing"])
def test_compiled_code_of_others_is_refused(tmp_path, fault):
    """A cached kernel is code: who can write the folder could run theirs with our rights."""
    folder = tmp_path / "outer" / "cache"
    (folder / "friends_1").mkdir(parents=True)
    (folder / "index.nbi").write_bytes(b"")
    spoiled = {
        "open to all": folder,
        "a folder in it": folder / "friends_1",
        "a file in it": folder / "index.nbi",
        "what it lies in": folder.parent,
    }.get(fault)
    if spoiled is not None:
        spoiled.chmod(0o777)
    program = "import numpy; from fcstream import Noise; Noise().bernoulli(numpy.array([1]), 1)"
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder)}
    out = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    if spoiled is None:
        assert out.returncode == 0, out.stderr
        assert list(folder.rglob("*.nbc"))
        return
    assert "NUMBA_CACHE_DIR: must be a folder that no other user can write to" in out.stderr
    sample = subprocess.run([sys.executable, "-m", "fcstream", "init", str(tmp_path / "s.toml")], env=os.environ)
    assert sample.returncode == 0
    command = [sys.executable, "-m", "fcstream", "doctor", str(tmp_path / "s.toml")]
    said = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert said.returncode == 2
    assert "no other user can write to" in said.stdout


def test_a_cache_folder_is_made_for_this_user_alone(tmp_path):
    check_cache(str(tmp_path / "new"))
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    (tmp_path / "new").chmod(0o755)
    if os.geteuid() == 0:  # only root can give a folder away
        os.chown(tmp_path / "new", 12345, 12345)
        with pytest.raises(ConfigError, match="belongs to another user"):
            check_cache(str(tmp_path / "new"))
