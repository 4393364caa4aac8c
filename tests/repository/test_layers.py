"""House rules of the code. Which package may import which one, pyproject.toml says (`lint-imports`)."""

import ast
import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

import fcstream

ROOT = Path(fcstream.__file__).parent
# Packages from outside, and the only packages of ours that may import them.
DOORS = {
    "click": "cli",
    "dp_accounting": "reporting",
    "matplotlib": "plots",
    "numba": "_kernels",
    "sqlite3": "ledgers",
    "secrets": "nobody: entropy is the matter of noise",
}


def modules():
    return sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def parts_of(path):
    """Where a file stands: ("releases", "means", "mean")."""
    return path.relative_to(ROOT).with_suffix("").parts


def resolve(*parts):
    """The file that an imported name comes from, as `parts_of` names it."""
    for known in (parts, parts[:-1]):
        if ROOT.joinpath(*known).with_suffix(".py").exists():
            return known
        if ROOT.joinpath(*known, "__init__.py").exists():
            return (*known, "__init__")
    raise AssertionError(f"nothing is called {'.'.join(parts)}")


def imports(path):
    """Every import of our own as `parts_of` names files, and the foreign roots."""
    own, foreign = set(), set()
    package = parts_of(path)[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            foreign |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level == 0:
                foreign.add(node.module.split(".")[0])
                continue
            base = package[: len(package) - node.level + 1]
            target = [*base, *(node.module.split(".") if node.module else [])]
            own |= {resolve(*target, alias.name) for alias in node.names if (*target, alias.name) != ("__version__",)}
    return own, foreign


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_doors(path):
    module = parts_of(path)[0]
    _, foreign = imports(path)
    text = path.read_text()
    assert [name for name in foreign if DOORS.get(name, module) != module] == []
    assert "urandom" not in text or module == "noise", "only noise touches entropy"
    assert "np.random" not in text or module in ("noise", "planning") or "\n        >>> " in text or "Examples" in text


@pytest.mark.parametrize("path", sorted((ROOT / "_kernels").glob("[a-z]*.py")), ids=lambda p: p.name)
def test_kernels_use_nothing_outside_their_folder(path):
    own, foreign = imports(path)
    assert {target[0] for target in own} <= {"_kernels"}, "a change there would not be noticed: the old code is kept"
    assert "cache=True" not in path.read_text(), (
        "`kernel` notices changes of files that are imported from, Numba does not"
    )
    assert foreign <= {"llvmlite", "numba", "numpy", "math", "functools", "__future__"}
    assert "np.random" not in path.read_text()


def test_python_calls_no_kernel_that_is_for_other_kernels():
    """It would crash the process: such kernels lack what Python needs to call them."""
    inner, homes = set(), {"kernels"}
    for path in (ROOT / "_kernels").glob("[a-z]*.py"):
        homes.add(path.stem)
        for node in ast.parse(path.read_text()).body:
            for each in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
                if "kernel" in ast.unparse(each) and node.name[0] == "_":
                    inner.add(node.name)
    assert {"_factor", "_screen"} < inner
    others = [path for folder in ("bench", "tests", "examples") for path in (ROOT.parent / folder).rglob("*.py")]
    for path in (*(path for path in modules() if parts_of(path)[0] != "_kernels"), *others):
        text = path.read_text()
        for node in nodes_that_python_runs(ast.parse(text)) if "_kernels" in text else ():
            used = [alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else []
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in homes:
                used = [node.attr]
            assert not inner.intersection(used), f"{path} uses what only kernels can"


def nodes_that_python_runs(node):
    """A tree's nodes but for those in functions that Numba compiles."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not any("njit" in ast.unparse(each) for each in getattr(child, "decorator_list", ())):
            yield from nodes_that_python_runs(child)


def test_a_file_above_800_lines_says_why():
    for path in modules():
        text = path.read_text()
        assert len(text.splitlines()) <= 800 or "\n# Long because " in text, f"{path}: split it, or say why not"


def test_no_class_name_is_used_twice():
    homes = {}
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


def who_draw(package):
    """Public classes and functions of a package that are given a source of noise."""
    folder = importlib.import_module(f"fcstream.{package}")
    for found in pkgutil.walk_packages(folder.__path__, f"{folder.__name__}."):
        module = importlib.import_module(found.name)
        for name, value in vars(module).items():
            if name[0] != "_" and getattr(value, "__module__", "") == module.__name__ and callable(value):
                functions = [each for each in vars(value).values() if inspect.isfunction(each)] or [value]
                if any("Noise" in str(getattr(each, "__annotations__", {}).get("noise")) for each in functions):
                    yield f"{found.name}.{name}", value


# What kinds share: each of them says what it costs.
SHARED = {"releases.base.Mechanism"}


@pytest.mark.parametrize("package", ["arrays", "cores", "local", "releases"])
def test_who_draws_says_what_it_costs_and_where_it_comes_from(package):
    seen = {name.removeprefix("fcstream."): inspect.getdoc(value) or "" for name, value in who_draw(package)}
    assert seen
    assert [
        name
        for name, text in seen.items()
        if name not in SHARED and not ("Privacy\n-------" in text and "Source\n------" in text)
    ] == []


def test_public_names_resolve_and_are_documented():
    for name in fcstream.__all__:
        value = getattr(fcstream, name)
        assert name == "__version__" or (value.__doc__ and value.__doc__.strip())
    with pytest.raises(AttributeError, match="nothing"):
        _ = fcstream.nothing


def test_importing_the_package_and_the_command_is_cheap():
    import subprocess
    import sys

    code = "import sys, fcstream, fcstream.cli; print([m for m in ('numba', 'scipy', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


RANGES = {
    "config/answers.py": {"_interval"},  # checks what was asked for, and takes the ends of the lattice
}


def test_ends_of_ranges_are_rounded_in_one_place():
    """Whoever needs a public range on the lattice asks `Grid.ends`, so that sensitivities know every record."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        for function in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)):
            texts = [part for text in ast.walk(function) if isinstance(text, ast.JoinedStr) for part in ast.walk(text)]
            for node in ast.walk(function):
                is_end = isinstance(node, ast.Attribute) and node.attr in ("minimum", "maximum") and node not in texts
                if is_end and getattr(node.value, "id", "") != "np":
                    found.setdefault(path.relative_to(ROOT).as_posix(), set()).add(function.name)
    assert found.pop("stream/lattice.py")
    assert found == RANGES
