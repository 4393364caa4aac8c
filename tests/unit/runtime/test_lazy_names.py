"""Names that are imported when they are first used."""

import subprocess
import sys
import zipfile
from pathlib import Path

import fcstream


def test_the_package_is_imported_from_an_archive(tmp_path):
    root, archive = Path(fcstream.__file__).parents[1], tmp_path / "packed.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for path in (root / "fcstream").rglob("*.py*"):
            if path.suffix in (".py", ".pyi"):
                packed.write(path, path.relative_to(root))
    program = "import fcstream; print(fcstream.__file__, len(fcstream.__all__), fcstream.ConfigError.__module__)"
    run = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(archive)!r}); {program}"]
    done = subprocess.run(run, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [f"{archive}/fcstream/__init__.py", str(len(fcstream.__all__)), "fcstream.errors"]
