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
    ["spark"],
    ["service"],
    ["deployment"],
    ["planning", "plots"],
    ["engine", "local", "reporting", "sections", "testing"],
    ["arrays", "config", "connectors"],
    ["releases"],
    ["predicates"],
    ["cores", "counting", "ledgers", "synthetic"],
    ["noise"],
    ["_kernels", "stream"],
    ["accounting", "formats", "runtime"],
    ["errors"],
]
# Inside a package, files and folders may use each other in this order only.
INSIDE = {
    "_kernels": [
        "bits",
        "trees",
        "clusters",
        "few_points",
        "lane_counts",
        "local",
        "matrices",
        "moments",
        "noise",
        "pairs",
        "quantiles",
        "rows",
        "blocks",
        "samples",
        "sums",
        "synthetic",
        "tiles",
        "tuple_matching",
        "tuples",
        "users",
        "scratch",
        "vectors",
        "__init__",
    ],
    "accounting": ["filters", "__init__", "losses", "arguments", "strength"],
    "arrays": [
        "estimators",
        "trees",
        "approximate_dp",
        "clusters",
        "frequent",
        "tables",
        "__init__",
        "statistics",
        "left_out",
        "arguments",
    ],
    "cli": [
        "__init__",
        "budget",
        "local",
        "run",
        "preflight",
        "report",
        "tools",
        "templates",
        "progress",
        "terminal",
        "base",
    ],
    "config": [
        "__init__",
        "loading",
        "job",
        "key_discovery",
        "answers",
        "fields",
        "specification",
        "conversion",
        "durations",
        "sections",
    ],
    "connectors": [
        "__init__",
        "schema_registry",
        "http",
        "influx",
        "kafka",
        "mqtt",
        "nats",
        "otlp",
        "pipes",
        "postgres",
        "rabbitmq",
        "redis",
        "broker_connection",
        "dead_letters",
        "probes",
        "posting",
        "pushed",
        "spooled",
        "tls",
        "base",
        "client_loop",
        "csv_tables",
        "parquet_parts",
        "whole_files",
        "table_files",
        "files",
        "libraries",
        "line_protocol",
        "partitioners",
        "registry",
        "retry",
        "sinks",
        "sources",
        "spool",
        "quarantine",
        "urls",
    ],
    "connectors.http": ["probe", "source", "bodies", "content", "otlp", "__init__", "access", "answers", "sink"],
    "connectors.influx": ["probe", "__init__", "sink"],
    "connectors.kafka": ["probe", "ranges", "sink", "source", "__init__", "connection"],
    "connectors.mqtt": ["probe", "sink", "source", "__init__", "connection"],
    "connectors.nats": ["probe", "sink", "source", "reader", "__init__", "connection"],
    "connectors.otlp": ["probe", "sink", "__init__", "messages"],
    "connectors.pipes": ["probe", "sink", "source", "__init__"],
    "connectors.postgres": ["probe", "reader", "__init__", "sink", "long_table"],
    "connectors.rabbitmq": [
        "probe",
        "queue_sink",
        "queue_source",
        "stream_sink",
        "stream_source",
        "__init__",
        "chunks",
        "queue_connection",
        "stream_connection",
    ],
    "connectors.redis": ["probe", "sink", "source", "__init__", "connection", "ids"],
    "cores": ["replacement", "sampled_filters", "__init__", "filters", "generator"],
    "counting": [
        "multi_radius",
        "sampled",
        "friends",
        "exact",
        "views",
        "rows",
        "__init__",
        "threads",
        "tiles",
        "prefixes",
    ],
    "deployment": [
        "report",
        "registry_record",
        "html",
        "markdown",
        "hazards",
        "running",
        "mechanisms",
        "promise",
        "topics",
        "facts",
        "document",
        "__init__",
    ],
    "engine": [
        "stream",
        "batch_budget",
        "opening",
        "discovering",
        "keyed",
        "shared_users",
        "routing",
        "together",
        "engine",
        "closing",
        "epochs",
        "progress",
        "__init__",
        "exhaustion",
        "first_records",
        "first_window",
        "intake",
        "outbox",
        "records",
    ],
    "formats": [
        "written_frames",
        "frames",
        "otlp",
        "otlp_json",
        "otlp_outlines",
        "avro",
        "protobuf",
        "cbor",
        "schemas",
        "payloads",
        "tagged",
        "arrow",
        "influx_lines",
        "senml_cbor",
        "senml",
        "senml_entries",
        "nested",
        "typed",
        "registry",
        "arrow_rows",
        "decoders",
        "parsing",
        "fields",
        "json_parts",
        "columns",
        "csv_dialect",
        "rows",
        "levels",
        "__init__",
        "batch",
        "positions",
        "paths",
        "rejections",
        "envelopes",
        "cells",
        "plain_columns",
        "texts",
        "bounds",
    ],
    "ledgers": [
        "__init__",
        "retired_streams",
        "postgres",
        "sqlite",
        "terms_check",
        "groups",
        "files",
        "history",
        "hash_chain",
        "memory",
        "keeping",
        "base",
        "fence",
        "rollback_guard",
    ],
    "ledgers.postgres": [
        "leader",
        "ledger",
        "groups",
        "statements",
        "states",
        "tables",
        "__init__",
        "connection",
    ],
    "ledgers.sqlite": ["snapshot", "ledger", "opening", "__init__", "listing", "tables", "sums"],
    "local": [
        "commands",
        "__init__",
        "transport",
        "analyst",
        "settings",
        "simulation",
        "device",
        "queries",
        "spaces",
        "functions",
        "noise",
        "protocol",
    ],
    "local.analyst": ["series", "__init__", "record"],
    "local.device": [
        "device",
        "journal_reader",
        "drawing",
        "journal",
        "values",
        "__init__",
        "accounts",
        "budget",
        "components",
        "questions",
    ],
    "local.queries": ["counting", "density", "neighbors", "threshold", "base", "elimination", "__init__", "confidence"],
    "local.transport": ["mqtt", "web", "__init__", "gateway"],
    "noise": ["__init__", "samplers", "intervals"],
    "planning": [
        "plan",
        "rehearsal",
        "records",
        "truths",
        "stream_plan",
        "warmup",
        "compiling",
        "__init__",
        "simulation",
        "speeds",
    ],
    "plots": [
        "__init__",
        "deployment",
        "multiples",
        "releases",
        "rehearsal",
        "panels",
        "tables",
        "curves",
        "budget",
        "marginals",
        "matrices",
        "centers",
        "trees",
        "base",
        "drawing",
        "planes",
    ],
    "predicates": ["__init__", "bits", "matrices", "tuples", "users", "base"],
    "releases": [
        "totals",
        "statistics",
        "clusters",
        "means",
        "trees",
        "spending",
        "answers",
        "descriptions",
        "record_gate",
        "registry",
        "tables",
        "core_stage",
        "diameter_search",
        "options",
        "averages",
        "long_form",
        "intervals",
        "base",
        "__init__",
        "floors",
        "reasons",
    ],
    "releases.clusters": [
        "automatic",
        "tree_mixtures",
        "tree_release",
        "overlaps",
        "mixtures",
        "centers",
        "plan",
        "pipeline",
        "tree_centers",
        "found",
        "paper",
        "ktuples",
        "shards",
        "__init__",
        "agreement",
        "oracles",
        "tuples",
    ],
    "releases.means": [
        "automatic",
        "searched",
        "tracking",
        "__init__",
        "approximate_dp",
        "mean",
        "ball",
        "clipped_mean",
        "predictions",
        "shares",
        "zooming",
        "box_average",
        "spread_histogram",
    ],
    "releases.statistics": [
        "clipped",
        "clipped_sums",
        "learned",
        "moved",
        "correlations",
        "covariance",
        "shapes",
        "scales",
        "frequent",
        "histogram",
        "quantiles",
        "sum",
        "__init__",
        "columns",
        "count",
        "moments",
        "variance",
        "tails",
    ],
    "releases.tables": ["synthetic", "synthetic_paper", "__init__", "documents", "marginals", "points"],
    "releases.trees": ["automatic", "drawn", "release", "partition", "points", "growing", "__init__", "agreement"],
    "releases.totals": ["ranges", "total", "memory", "sums", "factor", "__init__"],
    "reporting": [
        "rehearsal",
        "scoring",
        "series",
        "released",
        "__init__",
        "budget",
        "documents",
        "rows",
        "text_files",
    ],
    "runtime": [
        "__init__",
        "compile_cache",
        "disk",
        "garbage",
        "http_server",
        "http_connections",
        "interpolation",
        "libpq",
        "undo",
        "waiting",
    ],
    "service": [
        "app",
        "build",
        "doctor",
        "reload",
        "status",
        "page",
        "metrics",
        "signals",
        "supervisor",
        "session",
        "publisher",
        "checking",
        "clocks",
        "context",
        "__init__",
        "alarms",
        "batch",
        "gaps",
        "health",
        "leases",
        "logs",
        "systemd",
    ],
    "service.page": ["site", "live", "outlook", "history", "views", "__init__"],
    "spark": [
        "files",
        "service",
        "answers",
        "pairs",
        "processor",
        "source",
        "checkpoint",
        "tasks",
        "__init__",
        "blocks",
        "sessions",
        "stores",
    ],
    "stream": [
        "admission",
        "user_groups",
        "user_values",
        "key_choice",
        "contributions",
        "__init__",
        "waiting_records",
        "lattice",
        "panes",
        "selection",
        "totals",
        "windows",
    ],
    "synthetic": [
        "__init__",
        "convex",
        "counts",
        "microaggregation",
        "cells",
        "triples",
        "mixtures",
        "bingham",
        "codes",
    ],
}
# These may call kernels.
COUNTING = ("_kernels", "counting", "predicates", "cores", "releases", "noise", "local", "synthetic")
RANK = {name: i for i, row in enumerate(ROWS) for name in row}


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
def test_imports_point_downward(path):
    own, _ = imports(path)
    here = parts_of(path)
    assert here[0] in RANK, f"{here[0]} has no row: give it one in tests/repository/test_layers.py"
    for target in own:
        depth = next(i for i, (a, b) in enumerate(zip(here, target, strict=False)) if a != b)
        if depth == 0:
            assert RANK[target[0]] > RANK[here[0]], f"{'.'.join(here)} must not import {'.'.join(target)}"
        else:
            order = INSIDE[".".join(here[:depth])]
            assert order.index(target[depth]) > order.index(here[depth]), (
                f"{'.'.join(here)} must not import {'.'.join(target)}"
            )


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_doors(path):
    module = parts_of(path)[0]
    own, foreign = imports(path)
    text = path.read_text()
    assert "click" not in foreign or module == "cli"
    assert "numba" not in foreign or module == "_kernels"
    assert "matplotlib" not in foreign or module == "plots"
    assert "dp_accounting" not in foreign or module == "reporting"
    assert "sqlite3" not in foreign or module == "ledgers"
    assert "secrets" not in foreign
    assert "urandom" not in text or module == "noise", "only noise touches entropy"
    assert "np.random" not in text or module in ("noise", "planning") or "Examples" in text
    if any(target[0] == "_kernels" for target in own):
        assert module in COUNTING


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


def test_modules_can_be_read_in_one_sitting():
    for path in modules():
        # A family of kernels that share intrinsics cannot be split: cached code does not notice other files.
        most = 700 if path.parent.name == "_kernels" else 600
        assert len(path.read_text().splitlines()) <= most, path


def test_no_class_name_is_used_twice():
    homes = {}
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


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
    "cores.filters",
    "cores.sampled_filters",
    "accounting.losses",
    "accounting.filters",
    "noise.samplers",
    "releases.averages",
    "releases.clusters.centers",
    "releases.clusters.plan",
    "releases.clusters.agreement",
    "releases.clusters.pipeline",
    "releases.clusters.ktuples",
    "releases.clusters.paper",
    "releases.clusters.mixtures",
    "releases.clusters.automatic",
    "releases.statistics.count",
    "releases.record_gate",
    "releases.statistics.histogram",
    "releases.statistics.sum",
    "releases.totals.factor",
    "releases.totals.memory",
    "releases.totals.ranges",
    "releases.totals.sums",
    "releases.totals.total",
    "releases.statistics.frequent",
    "releases.statistics.quantiles",
    "releases.statistics.variance",
    "releases.statistics.clipped",
    "releases.statistics.clipped_sums",
    "releases.statistics.correlations",
    "releases.statistics.covariance",
    "releases.statistics.learned",
    "releases.statistics.scales",
    "releases.means.searched",
    "releases.diameter_search",
    "releases.means.approximate_dp",
    "cores.generator",
    "releases.tables.synthetic",
    "releases.tables.synthetic_paper",
    "releases.tables.documents",
    "releases.tables.marginals",
    "releases.tables.points",
    "synthetic.bingham",
    "releases.means.mean",
    "releases.means.ball",
    "releases.means.box_average",
    "releases.means.clipped_mean",
    "releases.means.zooming",
    "releases.means.tracking",
    "releases.clusters.tuples",
    "cores.replacement",
    "releases.clusters.shards",
    "releases.clusters.oracles",
    "releases.spending",
    "stream.contributions",
    "local.queries.counting",
    "local.queries.density",
    "local.device.budget",
    "local.device.device",
    "local.functions",
    "local.queries.neighbors",
    "local.noise",
    "local.analyst.series",
    "local.simulation",
    "local.spaces",
    "local.queries.threshold",
]
# Values and plumbing that add no privacy statement of their own.
EXEMPT = {
    "cores.filters.Core",
    "cores.filters.FriendCountView",
    "cores.generator.Generated",
    "cores.sampled_filters.PairSampling",
    "accounting.losses.to_units",
    "noise.samplers.Entropy",
    "noise.samplers.SystemEntropy",
    "noise.samplers.SeededEntropy",
    "noise.samplers.Noise",
    "noise.samplers.normal_tail",
    "releases.averages.Estimate",
    "releases.averages.gaussian_variance",
    "releases.averages.exact_sums",
    "releases.averages.to_center",
    "stream.contributions.user_key",
    "releases.clusters.oracles.has_sklearn",
    "releases.clusters.oracles.one_thread",
    "releases.clusters.oracles.Learner",
    "local.queries.counting.balanced_cut",
    "local.queries.counting.paper_cut",
    "local.queries.density.predicted_errors",
    "local.device.components.Component",
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
