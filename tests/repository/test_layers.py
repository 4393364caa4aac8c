"""The house rules that an import graph can show."""

import ast
import inspect
from pathlib import Path

import pytest

import fcstream

ROOT = Path(fcstream.__file__).parent
# Top to bottom; imports point strictly downward, none within a row.
ROWS = [
    ["__main__"],
    ["cli"],
    ["plots", "spark"],
    ["service", "doctor", "local"],
    ["reloading", "status"],
    ["metrics", "logs", "notify"],
    ["live"],
    ["session"],
    ["clocks", "gaps"],
    ["warming", "checking"],
    ["oneshot", "clustering"],
    ["runner", "planning", "reports", "simulate", "arrays", "series", "scoring"],
    ["drawable", "keyed"],
    ["engine", "testing"],
    ["admission", "intake", "closing", "exhaustion", "first_run"],
    ["textfiles"],
    ["config", "connectors"],
    ["sinks", "speeds", "policies", "history"],
    ["releases", "sources"],
    ["sampled", "replaced", "shards"],
    ["ledgers", "cores", "generators", "frames"],
    [
        "windows",
        "predicates",
        "budgets",
        "rows",
        "payloads",
        "coins",
        "ladders",
        "users",
        "oracles",
        "moments",
        "alarms",
        "held",
    ],
    ["friends", "synthetic", "decoders", "arrow"],
    ["tiles", "pool"],
    ["noise", "lattice", "records", "zcdp", "totals"],
    ["placeholders", "collector", "health", "waiting", "libpq", "http"],
    ["_kernels"],
    ["compiled"],
    ["errors"],
]
# Inside a package, files may use each other in this order only.
INSIDE = {
    "cli": ["__init__", "budget", "local", "stream", "tools", "base"],
    "config": ["__init__", "loading", "job", "fields", "specification", "durations", "sections"],
    "plots": ["__init__", "releases", "matrices", "places", "pieces", "budget", "marginals", "base"],
    "releases": [
        "registry",
        "gate",
        "tracking",
        "diameter",
        "covariance",
        "dp",
        "synthetic",
        "paper",
        "points",
        "marginals",
        "tables",
        "variance",
        "mean",
        "count",
        "histogram",
        "quantiles",
        "columns",
        "mixtures",
        "centers",
        "cluster_plan",
        "clusters",
        "ktuples",
        "closeness",
        "tuples",
        "search",
        "averages",
        "stages",
        "floors",
        "options",
        "base",
        "reasons",
    ],
    "ledgers": [
        "__init__",
        "retiring",
        "snapshot",
        "sqlite",
        "sqlite_tables",
        "lead",
        "postgres",
        "postgres_tables",
        "sessions",
        "memory",
        "files",
        "witness",
        "journal",
        "agreement",
        "users",
        "base",
    ],
    "connectors": [
        "__init__",
        "probes",
        "files",
        "letters",
        "kafka",
        "kafka_ranges",
        "kafka_cluster",
        "redis_streams",
        "redis_link",
        "jetstream",
        "jetstream_reader",
        "jetstream_wire",
        "rabbitmq_streams",
        "rabbitmq_link",
        "rabbitmq_chunks",
        "amqp",
        "mqtt",
        "postgres_table",
        "webhook",
        "tables",
        "spooled",
        "spool",
        "places",
        "libraries",
        "retry",
        "tls",
        "urls",
        "base",
    ],
    "predicates": ["__init__", "tuples", "matrices", "bits", "users", "base"],
    "local": [
        "__init__",
        "settings",
        "mqtt",
        "web",
        "gateway",
        "simulation",
        "series",
        "record",
        "counting",
        "density",
        "neighbors",
        "threshold",
        "queries",
        "elimination",
        "widths",
        "device",
        "books",
        "journal",
        "accounts",
        "questions",
        "spaces",
        "functions",
        "noise",
    ],
    "spark": [
        "__init__",
        "service",
        "files",
        "answers",
        "processor",
        "source",
        "checkpoint",
        "sessions",
        "pairs",
        "stores",
        "tasks",
        "blocks",
    ],
    "synthetic": ["__init__", "microaggregation", "convex", "mixtures", "counts", "cells", "bingham", "codes"],
    "_kernels": [],
}
COUNTING = (
    "friends",
    "ladders",
    "coins",
    "tiles",
    "predicates",
    "cores",
    "releases",
    "shards",
    "moments",
    "noise",
    "local",
    "synthetic",
)  # may call kernels
RANK = {name: i for i, row in enumerate(ROWS) for name in row}


def modules():
    return sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def place(path):
    """(top-level module, file within its package)"""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[0], parts[1] if len(parts) > 1 else None


def imports(path):
    """(top-level module, file within its package) for every import of our own, and the foreign roots."""
    own, foreign = set(), set()
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            foreign |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level == 0:
                foreign.add(node.module.split(".")[0])
                continue
            base = package[: len(package) - node.level + 1]
            target = [*base, *(node.module.split(".") if node.module else [])]
            for alias in node.names:
                full = [*target, alias.name]
                if full[0] == "__version__":
                    continue
                own.add((full[0], full[1] if len(full) > 1 and (ROOT / full[0] / f"{full[1]}.py").exists() else None))
    return own, foreign


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_downward(path):
    module, file = place(path)
    assert module in RANK, f"{module} has no row: give it one in tests/repository/test_layers.py"
    own, _ = imports(path)
    for target, inner in own:
        if target == module:
            order = INSIDE[module]
            assert inner is not None
            assert order.index(inner) > order.index(file), f"{module}/{file} must not import {inner}"
        else:
            assert RANK[target] > RANK[module], f"{module} must not import {target}"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_doors(path):
    module, _ = place(path)
    own, foreign = imports(path)
    text = path.read_text()
    assert "click" not in foreign or module == "cli"
    assert "numba" not in foreign or module == "_kernels"
    assert "matplotlib" not in foreign or module == "plots"
    assert "dp_accounting" not in foreign or module == "reports"
    assert "sqlite3" not in foreign or module == "ledgers"
    assert "secrets" not in foreign
    assert "urandom" not in text or module == "noise", "only noise touches entropy"
    assert "np.random" not in text or module in ("noise", "simulate", "speeds") or "Examples" in text
    if any(target == "_kernels" for target, _ in own):
        assert module in COUNTING


@pytest.mark.parametrize("path", sorted((ROOT / "_kernels").glob("[a-z]*.py")), ids=lambda p: p.name)
def test_kernels_are_self_contained(path):
    own, foreign = imports(path)
    assert not own, "a cached kernel goes stale when another file of ours changes"
    assert foreign <= {"llvmlite", "numba", "numpy", "math", "functools", "__future__"}
    assert "np.random" not in path.read_text()


def test_modules_can_be_read_in_one_sitting():
    for path in modules():
        # A family of kernels that share intrinsics cannot be split: cached code does not notice other files.
        most = 700 if path.parent.name == "_kernels" else 600
        assert len(path.read_text().splitlines()) <= most, path


def public_callables(name):
    module = __import__(f"fcstream.{name}", fromlist=["x"])
    for key, value in vars(module).items():
        if (
            not key.startswith("_")
            and getattr(value, "__module__", "") == module.__name__
            and (inspect.isfunction(value) or inspect.isclass(value))
        ):
            yield f"{name}.{key}", value


NEEDS_SECTIONS = [
    "cores",
    "sampled",
    "zcdp",
    "budgets",
    "noise",
    "releases.averages",
    "releases.centers",
    "releases.cluster_plan",
    "releases.closeness",
    "releases.clusters",
    "releases.ktuples",
    "releases.mixtures",
    "releases.count",
    "releases.gate",
    "releases.histogram",
    "releases.quantiles",
    "releases.variance",
    "releases.covariance",
    "releases.diameter",
    "releases.search",
    "releases.dp",
    "generators",
    "releases.synthetic",
    "releases.paper",
    "releases.tables",
    "releases.marginals",
    "releases.points",
    "synthetic.bingham",
    "releases.mean",
    "releases.tracking",
    "releases.tuples",
    "replaced",
    "shards",
    "oracles",
    "policies",
    "users",
    "local.counting",
    "local.density",
    "local.device",
    "local.functions",
    "local.neighbors",
    "local.noise",
    "local.series",
    "local.simulation",
    "local.spaces",
    "local.threshold",
]
# Values and plumbing that add no privacy statement of their own.
EXEMPT = {
    "cores.Core",
    "cores.Counted",
    "generators.Generated",
    "sampled.Choice",
    "zcdp.to_units",
    "noise.Entropy",
    "noise.SystemEntropy",
    "noise.SeededEntropy",
    "noise.Noise",
    "noise.normal_tail",
    "releases.averages.Estimate",
    "releases.averages.gaussian_variance",
    "releases.averages.exact_sums",
    "releases.averages.to_center",
    "users.user_key",
    "oracles.has_sklearn",
    "oracles.one_thread",
    "oracles.Learner",
    "local.counting.balanced_cut",
    "local.counting.paper_cut",
    "local.density.predicted_errors",
    "local.device.Component",
    "local.simulation.Fleet",
    "local.simulation.ask_of",
    "local.simulation.read_replies",
    "local.functions.turned",
}


@pytest.mark.parametrize("name", NEEDS_SECTIONS)
def test_docstrings_say_what_it_costs_and_where_it_comes_from(name):
    for full, value in public_callables(name):
        if full in EXEMPT:
            continue
        text = inspect.getdoc(value) or ""
        assert "Privacy\n-------" in text, full
        assert "Source\n------" in text, full


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
