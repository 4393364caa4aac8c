"""Every bench at tiny sizes, many of them in one process: `python benches.py FOLDER NAME...`.

A run sets a bench's constants, calls its parts, and says what they must have printed. Verdicts on speed mean nothing at
such sizes, so an exit status is ignored; whatever else is raised is told. For each bench one line of JSON: its name,
processor seconds, what is wrong or null.
"""

import contextlib
import importlib.util
import io
import json
import os
import re
import resource
import sys
import time
import traceback
import types
from collections.abc import Callable
from pathlib import Path

Wanted = tuple[str, ...]
"""Patterns, each of which must be found in what a bench printed."""

LEFT_OUT = {  # what is only imported: why it is not run
    "brokers": "the servers and clients that `live` and `chaos` use, which needs them",
    "chaos": "takes minutes, and needs PostgreSQL and brokers",
    "coinpress": "has nothing to start; `accuracy` runs it",
    "live": "needs brokers, and takes minutes",
    "local_pictures": "has nothing to start; `local` runs it",
    "rival_libraries": "needs the rivals' environments",
    "rivals": "needs the rivals' environments",
    "spark": "needs Java and the extra `spark`",
    "synthetic_rival": "needs the rival's environment",
}


def main_of(bench: types.ModuleType, *arguments: str) -> None:
    sys.argv = [bench.__file__, *arguments]
    try:
        bench.main()
    except SystemExit as end:
        if end.code not in (None, 0, 1):
            raise


def accounting(bench) -> Wanted:
    bench.RUNS, bench.BLOCK, bench.CHARGES, bench.STREAMS, bench.STEPS = 1, 10, 1000, 20, 10
    bench.opendp = lambda: None
    bench.filters()
    bench.odometer()
    bench.sqlite(windows=2, turns=2)
    return "charges/s", "then takes 0.25", "rho over 6 decades +[0-9.]+%", "fsyncs of 4 kB"


def accuracy(bench) -> Wanted:
    bench.JOBS, bench.FRIENDLY, bench.SEARCH = [(800, 4, 1.0)], {(800, 4): 1.0}, [(800, 4)]
    bench.TAILS = [(800, 2)]
    bench.OUTLIERS_D, bench.FIGURE, bench.FOUND_N, bench.SAMPLED_N = (4,), [(800, 4, 1e3)], 2000, 2000
    main_of(bench, "--reps", "1")
    return (
        "FC_Avg [0-9.]+",
        "known radius",
        " 20% ",
        "800 +2 rows +[0-9. ]+[(]",
        "8e|1e[+]03",
        "FindDiam at n = 2000",
        "in a sample [0-9.]+",
        "limits",
    )


def answers(bench) -> Wanted:
    bench.main(4000, 1)
    return "reading +[0-9.]+ ms", "all ten +[0-9.]+ ms"


def cliffs(bench) -> Wanted:
    bench.main(["--smoke"])
    return "30% outliers first", "window of 100", "counted anew", "200 clusters", "sphere", "two threads"


def closes(bench) -> Wanted:
    bench.main(2000, 1)
    return tuple(rf"[|] {re.escape(name)} [|] {width} [|]" for name, width, _ in bench.cases(2000))


def clusters(bench) -> Wanted:
    from fcstream.releases.clusters import oracles

    oracles.RESTARTS = 1
    bench.FIGURE7_ROWS, bench.MIXTURES, bench.PAPER_RHOS = 20_000, ((2, 20_000),), (10,)
    main_of(bench, "figure6", "--seeds", "1", "--sizes", "20000")
    main_of(bench, "figure7", "--seeds", "1", "--dimensions", "2")
    main_of(bench, "mixtures", "--seeds", "1")
    main_of(bench, "paper")
    bench.real_jobs = lambda: iter(())
    main_of(bench, "refusals", "--seeds", "1", "--draws", "2", "--figure6", "1")
    return (
        "\nFigure 6 [|] 8 [|] 4 [|] friendly",
        "stopped wrongly: [0-9]+ of",
        "\n20000 [|]",
        "\n2 [|] [0-9]+ [|]",
        "\n2 [|] 20000 [|]",
        "\n10 [|]",
        "reached|MISSED",
    )


def covariance(bench) -> Wanted:
    import numpy as np

    bench.JOBS = [(2, 2500, 1.0, 5000)]
    bench.accuracy(1, np.random.default_rng(1))
    bench.speed(np.random.default_rng(1), 4, 400)
    return " 2 +2500 +1.0 +5000 +[01]/1 ", "d = 4, 400 shards"


def coverage(bench) -> Wanted:
    import numpy as np

    draw = np.random.default_rng(1)
    numbers = {"a": draw.integers(0, 100, 3000) * 1.0, "b": draw.integers(0, 100, 3000) * 1.0}
    bench.column = lambda name, wanted: numbers[wanted]
    bench.raw = lambda name: {key: list(map(str, map(int, values // 10))) for key, values in numbers.items()}
    bench.SETS = {"drawn": {"a": bench.Range(0, 100), "b": bench.Range(0, 200)}}
    bench.TABLES, bench.TEXTS, bench.RHOS = {"drawn": ("a", "b")}, {"drawn": ("a",)}, (1.0,)
    main_of(bench, "--runs", "2", "--processes", "1")
    main_of(bench, "--runs", "2", "--processes", "1", "--part", "sum", "--share", "2", "--turn", "0", "--wide")
    return (
        *(
            f"\n{kind} [|] drawn [|] a"
            for kind in ("mean", "variance", "sum", "histogram", "total of count", "frequent")
        ),
        "\ncovariance [|] drawn [|] a[*]b [|] 1 [|] [0-9.]+ [|] [0-9]+% [|] [0-9.]+",
        "\nmarginals [|] 1 [|] [01] [|] 0 [|] [0-9.]+, [0-9.]+",
        "reached|MISSED",
        "\n1 cells, ",
    )


def decisions(bench) -> Wanted:
    bench.sums(100)
    bench.decoding(10)
    return "floats: [0-9]+ of 100", "lattice points, step 0.001: 0 of 100", "msgspec: [0-9.]+ us"


def engine(bench) -> Wanted:
    bench.RUNS = 1
    bench.throughput(2000)
    bench.windows(2000)
    bench.close(2000, 2)
    bench.memory(((2000, 2),))
    bench.noise()
    bench.start(runs=1, has_cold=False)
    return (
        "2 windows released",
        "windows of 20 records",
        "n = 2000, d = 2",
        "peak [0-9.]+ x",
        "discrete Gaussians",
        "warm [0-9.]+ s",
    )


def format_rates(bench) -> Wanted:
    bench.N, bench.ROUNDS = 100, 1
    bench.main([])
    return tuple(rf"[|] {re.escape(name)} [|] [0-9,]+" for name in bench.CASES)


def frequent(bench) -> Wanted:
    bench.RECORDS, bench.VALUES, bench.RHOS, bench.COLUMNS = 2000, 20, (1.0,), ()
    bench.main()
    return "a stream: [0-9]", "10 records of each user", "rho 1: [1-9][0-9]* of", "same epsilon"


def http_in(bench) -> Wanted:
    main_of(bench, "--seconds", "0.1", "--rounds", "1", "1 record of JSON")
    return ('"ratio by processor time": [0-9.]+', "peak memory")


def journals(bench) -> Wanted:
    bench.TURNS = 1
    bench.spool(((2, 2),), 2)
    bench.device(((2, 2),))
    bench.ledger((500,))
    return "append of 2 messages", "letting go of all", "reply of 2 devices", "4 replies", "500 windows"


def keys(bench) -> Wanted:
    main_of(bench, "--smoke", "--json")  # in this process
    return (
        '"reopening, s": [0-9.]+',
        '"routing, us a record": [0-9.]+',
        '"closing, us a key": [0-9.]+',
        "SQLite: two flushes",
    )


def kernels(bench) -> Wanted:
    bench.REPEATS, bench.PEERS, bench.PATIENCE = 1, ("blocks32",), 0.0
    bench.CASES = {(200, 2, 0.3): (1, 1)}
    bench.peaks(((16, 256, 64),), 1000)
    bench.race((200, 2, 0.3))  # a peer that is out of patience
    bench.marginal(100)
    bench.batches(((300, 2),))
    bench.hard(300, (2,))
    bench.sparse(100)
    bench.memory(((10_000, 2),))
    bench.threads(((300, 2),))
    return (
        "of +[0-9.]+ Gdim/s",
        "blocks32 >0",
        "n = 1000, d = +2",
        "16 costs",
        "x plain",
        "grows as",
        "bytes each",
        "two threads",
    )


def learned_scales(bench) -> Wanted:
    import numpy as np

    rows = np.random.default_rng(2).normal(size=(2000, 2)) * [0.1, 10]
    bench.data_sets = lambda: iter([("normal", rows)])
    bench.SIZES, bench.WINDOW, bench.WINDOWS = ((800, 2.0),), 1000, 3
    main_of(bench, "--seeds", "1")
    return "normal [|] 2 [|] 800 [|] 2.0 [|] 0[.]0", "0 [|] window [|]", "2 [|] earlier [|]"


def local(bench) -> Wanted:
    import numpy as np

    draw = np.random.default_rng(0)
    bench.TAXIS, bench.USERS, bench.SERIES = 2000, 1000, ((2, 1e-4),)
    space, places = bench.taxis(1)
    bench.houston = lambda: (space, places[0])
    bench.digits = lambda: draw.integers(0, 256, (100, 784))
    bench.households = lambda: draw.integers(0, 100_000, 200).astype(float)
    parts = ("count", "density", "chance", "nearest", "series", "speed")
    main_of(bench, *parts, "--repeats", "1")
    main_of(bench, "threshold", "--repeats", "1", "--out", "out")
    assert [path.name for path in Path("out").iterdir()] == ["share_of_incomes_below.png"]
    return (
        "count, taxis",
        "density, b",
        "nearest by distance",
        "nearest, k 50",
        "series, m 2",
        "threshold",
        "Algorithm 3",
    )


def moments(bench) -> Wanted:
    import numpy as np

    rows = np.random.default_rng(2).normal(size=(30_000, 3)) @ np.array([[1.0, 2, 0], [0, 1, 3], [1, 0, 1]])
    bench.data_sets = lambda: iter([("normal, d = 3", rows)])
    bench.accuracy(1)
    bench.speed(1000, 4)
    return "normal, d = 3 [|] 5000 [|] 1.0 [|]", "d = 4, n = 1,000, scale declared"


def nested(bench) -> Wanted:
    bench.N, bench.RUNS = 800, 1
    bench.main()
    return "json +object", "msgpack +odd"


def predicates(bench) -> Wanted:
    bench.RUNS, bench.LESS, bench.SHAPES = 1, 20, [(2, 2)]
    main_of(bench)
    return "match k=2 d=2 bar", "matrices d=10 mixed", "hamming 1024 bits", "user's own, Euclidean d=16"


def quantiles(bench) -> Wanted:
    main_of(bench, "--reps", "1")
    return "skewed +5000 +1 +tails", "best tree"


def real_data(bench) -> Wanted:
    if "FCSTREAM_DATA" not in os.environ:
        return ()
    main_of(bench, "machines_1h")
    return "machines_1h:", "core's mean: 0[.]0[01]", "bias of the core: 0[.][1-9]", "windows: [1-9]", "spent: "


def skewed_means(bench) -> Wanted:
    main_of(bench, "--seeds", "1", "--sets", "few normal", "Pareto")
    return "few normal +n=900 d=5 rho=1 ideal", "Pareto .* clip 0[.]0[0-9]+ [(][0-2][.]"


def regress(bench) -> Wanted:
    for name in bench.CASES.keys() - {"start"}:
        bench.run_case(name, 0)
    tree = bench.Commit("now", bench.ROOT, Path.cwd())
    bench.REPETITIONS = 0
    assert tree.seconds("start") == 0.0  # in a process of its own; this case compiles nothing
    return ("0.0\n" * (len(bench.CASES) - 1),)


def scale(bench) -> Wanted:
    main_of(bench)
    return "[|] 1e[+]09/day, 1000 keys", "[|] 1,000 [|]"


def small_means(bench) -> Wanted:
    bench.WINDOWS = 2
    bench.main()
    return ("1000 records: [12] released",)


def laplace(bench) -> Wanted:
    bench.RHOS, bench.FINE = (1.0,), 100
    main_of(bench)
    return "\n1 [|] 1.09, 0.96, 1.1[67] [|] 1.18, 0.98, 0.648 [(]0.564[)], 2 [(]1[)]", "rho[)]: 1.00000"


def sums(bench) -> Wanted:
    bench.main()
    return tuple(f"{re.escape(name)} +ours [0-9]" for name in bench.RANGES)


def synthetic(bench) -> Wanted:
    import numpy as np

    bench.load = lambda name: (np.random.default_rng(0).integers(0, 2, (500, 4)), [2] * 4)
    main_of(bench, "--reps", "1", "--only", "nltcs_bool", "--skip-speed")
    bench.speed(2048, (4, 8))
    return (
        "fcstream, pure epsilon = 1 +(0|refused)",
        "kappa = 0.9",
        "direct, all 3-way",
        "p = 4, previous",
        "p = 8, learned",
    )


def totals(bench) -> Wanted:
    bench.WINDOWS, bench.EPOCHS, bench.LONG, bench.BINS = 8, 4, 40, 3
    main_of(bench)
    return "binary tree: last total", "predicted of", "a close after 39 windows of 3 bins"


def tree(bench) -> Wanted:
    bench.SPEEDS, bench.MADE = ((2000, 2, 2),), ((2, 3, 2000, 1.0),)
    rows = bench.np.random.default_rng(0).normal(size=(1500, 2))
    bench.real_jobs = lambda: [("made", rows, (-9.0, 9.0), 1e-2, (2,))]
    main_of(bench, "figure6", "--seeds", "1", "--sizes", "2000", "--rhos", "1")
    main_of(bench, "figure7", "--seeds", "1", "--dimensions", "2", "--rhos", "1")
    main_of(bench, "points", "--seeds", "1", "--sizes", "1500", "--rhos", "1")
    main_of(bench, "mixtures", "--seeds", "1", "--rhos", "1")
    main_of(bench, "speed")
    return (
        "\n2000 [|] [0-9.]+",
        "\n2 [|] [0-9.]+,",
        "\n2000 [|] 2 [|] 2 [|]",
        "\nmade [|] 1500 [|] 2 [|] 1 [|] [0-9.]+, [0-9.]+ [|] [0-9.]+",
        "\nmade [|] 2 [|] 1 [|] -?[0-9.]+ [|] -?[0-9.]+, ",
        "10 apart [|] [0-9.]+",
    )


def zooming(bench) -> Wanted:
    bench.SEEDS, bench.CASES = 1, [(1, 60, 0.25)]
    bench.main()
    return tuple(rf"\n[|] 1 [|] 60 [|] 0[.]25 [|] {name} [|] [0-9]" for name in bench.WILD)


RUNS: dict[str, Callable[[types.ModuleType], Wanted]] = {
    run.__name__: run
    for run in (
        accounting, accuracy, answers, cliffs, closes, clusters, covariance, coverage, decisions, engine, format_rates,
        frequent, http_in, journals, kernels, keys, laplace, learned_scales, local, moments, nested, predicates,
        quantiles, real_data, regress, scale, skewed_means, small_means, sums, synthetic, totals, tree, zooming,
    )
}  # fmt: skip


def used() -> float:
    """Processor seconds of this process and of its children that have ended."""
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(each.ru_utime + each.ru_stime for each in map(resource.getrusage, whose))


def loaded(name: str) -> types.ModuleType:
    """Import a bench, under a name that no package has."""
    found = importlib.util.find_spec(name)
    if found is None:
        raise ModuleNotFoundError(name)
    spec = importlib.util.spec_from_file_location(f"bench_{name}", found.origin)
    bench = importlib.util.module_from_spec(spec)
    sys.modules[bench.__name__] = bench
    spec.loader.exec_module(bench)
    return bench


def tried(name: str) -> str | None:
    """What is wrong with a bench."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            bench = loaded(name)
            wanted = RUNS[name](bench) if name in RUNS else ()
    except BaseException:
        return f"{traceback.format_exc()}\nafter it printed:\n{printed.getvalue()}"
    text = "\n" + printed.getvalue()
    missing = [pattern for pattern in wanted if not re.search(pattern, text)]
    return f"nothing like {missing} in what it printed:\n{text}" if missing else None


if __name__ == "__main__":
    sys.path[0] = sys.argv[1]  # in place of the folder of this file, whose names are like those of benches
    names, out = sys.argv[2:], sys.stdout
    for name in names:
        began, started = used(), time.perf_counter()
        wrong = tried(name)
        told = {"name": name, "seconds": round(used() - began, 2), "wall": round(time.perf_counter() - started, 2)}
        print(json.dumps(told | {"wrong": wrong}), file=out, flush=True)
