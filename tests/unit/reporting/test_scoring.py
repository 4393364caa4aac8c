"""`fcstream score`: figures against slow ones, files of every kind, and what it refuses."""

import csv
import gzip
import io
import itertools
import json
import math

import numpy as np
import pytest
from click.testing import CliRunner

import fcstream
from fcstream import Noise, SeededEntropy
from fcstream.cli import main
from fcstream.connectors import open_sink
from fcstream.errors import ConfigError, SourceError
from fcstream.reporting.scoring import score

NAMES = ("on", "state", "hot")
LEVELS = (["false", "true"], ["idle", "busy", "down"], ["false", "true"])


def rows(n, seed):
    rng = np.random.default_rng(seed)
    lean = rng.random(n)
    return [[levels[int(min(len(levels) - 1, (x + e) / 1.2 * len(levels)))] for levels in LEVELS]
            for x, e in zip(lean, rng.random(n) * 0.2, strict=True)]  # fmt: skip


def write_csv(path, table, names=NAMES):
    out = io.StringIO(newline="")
    csv.writer(out).writerows([names, *table])
    data = out.getvalue().encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


def slow_error(real, made, order):
    squares = []
    for columns in itertools.combinations(range(3), order):
        for cell in itertools.product(*(LEVELS[a] for a in columns)):
            parts = [
                np.mean([all(row[a] == k for a, k in zip(columns, cell, strict=True)) for row in t])
                for t in (real, made)
            ]
            squares.append((parts[0] - parts[1]) ** 2)
    return math.sqrt(np.mean(squares))


def test_figures_are_the_slow_ones_from_every_kind_of_file(tmp_path):
    real, made = rows(300, 0), rows(500, 1)
    first = write_csv(tmp_path / "real.csv.gz", real)
    second = str(tmp_path / "made.jsonl")
    with open(second, "w") as file:
        for on, state, hot in made:  # truth values are as good as their text
            file.write(json.dumps({"state": state, "on": on == "true", "hot": hot == "true"}) + "\n")
    found = score(first, second, learn=False)
    assert found.marginal_errors == pytest.approx([slow_error(real, made, order) for order in (1, 2, 3)])
    assert found.distances["hot"] == pytest.approx(
        abs(np.mean([row[2] == "true" for row in real]) - np.mean([row[2] == "true" for row in made]))
    )
    assert (found.real_rows, found.synthetic_rows, found.accuracy) == (300, 500, None)
    pyarrow = pytest.importorskip("pyarrow.parquet")
    import pyarrow as arrow

    columns = [list(column) for column in zip(*made, strict=True)]
    pyarrow.write_table(arrow.table(dict(zip(NAMES, columns, strict=True))), tmp_path / "made.parquet")
    again = score(first, str(tmp_path / "made.parquet"), learn=False)
    assert again.marginal_errors == pytest.approx(found.marginal_errors)
    assert score(first, first, learn=False).marginal_errors == (0.0, 0.0, 0.0)


def test_a_classifier_learns_from_what_hangs_together(tmp_path):
    pytest.importorskip("sklearn")
    real = write_csv(tmp_path / "real.csv", rows(2000, 0))
    good = score(real, write_csv(tmp_path / "good.csv", rows(2000, 1)), "hot")
    assert good.accuracy == pytest.approx(good.real_accuracy, abs=0.04)
    assert good.accuracy > good.guess_accuracy + 0.2
    columns = zip(*rows(2000, 1), strict=True)
    torn = list(zip(*(np.random.default_rng(k).permutation(c) for k, c in enumerate(columns)), strict=True))
    bad = score(real, write_csv(tmp_path / "bad.csv", torn), "hot")
    assert bad.accuracy < good.accuracy - 0.1
    assert bad.marginal_errors[1] > 5 * good.marginal_errors[1]


def test_the_command_on_what_a_sink_wrote(tmp_path):
    table = np.random.default_rng(0).random((5000, 4)) < [0.2, 0.5, 0.6, 0.9]
    release = fcstream.private_synthetic(table, rho=1.0, noise=Noise(SeededEntropy(1)))
    open_sink(f"csv-tables:{tmp_path}").write([release])
    real = write_csv(tmp_path / "real.csv", table.astype(int), [f"x{k}" for k in range(4)])
    made, picture = str(tmp_path / "array.0.csv"), tmp_path / "pairs.svg"
    done = CliRunner().invoke(main, ["score", real, made, "--plot", str(picture)])
    assert done.exit_code == 0, done.output
    assert "5,000 real ones, 4 columns" in done.output
    assert "not private" in done.output
    assert done.stderr == f"wrote {picture}\n"
    assert picture.read_text().startswith("<?xml")
    done = CliRunner().invoke(main, ["score", real, made, "--json"])
    told = json.loads(done.output)
    assert max(told["marginal_errors"]) < 0.02
    assert told["target"] == "x3"
    done = CliRunner().invoke(main, ["score", real, str(tmp_path / "none.csv")])
    assert done.exit_code == 1
    assert "cannot be read" in done.output


def test_columns_of_one_file_alone_are_named(tmp_path):
    real = write_csv(tmp_path / "real.csv", rows(50, 1), ("on", "state", "warm"))
    found = score(real, write_csv(tmp_path / "made.csv", rows(50, 2)), learn=False)
    assert found.columns == ("on", "state")
    assert found.left_out == ("hot", "warm")
    assert "left out, because only one file has them: hot, warm" in found.lines()


def test_numbers_are_compared_in_the_release_s_bins(tmp_path):
    real = write_csv(tmp_path / "real.csv", [[str(k)] for k in range(100)], ["age"])
    made = write_csv(tmp_path / "made.csv", [["25.0"]] * 50 + [["75.0"]] * 50, ["age"])
    assert score(real, made, learn=False).marginal_errors[0] > 0.03
    columns = [{"name": "age", "levels": [25.0, 75.0], "edges": [0.0, 50.0, 100.0]}]
    (tmp_path / "made.json").write_text(json.dumps({"parts": {"columns": columns}}))
    found = score(real, made, learn=False)
    assert found.marginal_errors[0] == 0
    assert math.isnan(found.marginal_errors[1])
    assert found.as_dict()["marginal_errors"][1] is None


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.txt", "a\n1\n", "must end in"),
        ("x.csv", "", "header"),
        ("x.csv", "a,b\n1\n", "as many cells"),
        ("x.csv", "b\n1\n", "rows with some columns in common"),
        ("x.csv", "a\n", "rows with some columns in common"),
        ("x.jsonl", "[1]\n", "does not hold a table"),
        ("x.jsonl", "{", "does not hold a table"),
        ("x.csv.gz", "no gzip", "cannot be read"),
        ("x.csv", "a\n" + "\n".join(map(str, range(1100))), "1100 levels"),
    ],
)
def test_what_cannot_be_scored(tmp_path, name, content, message):
    real = write_csv(tmp_path / "real.csv", [["1"], ["0"]], ["a"])
    (tmp_path / name).write_text(content)
    with pytest.raises((ConfigError, SourceError), match=message):
        score(real, str(tmp_path / name))
    with pytest.raises(ConfigError, match="--target"):
        score(real, real, "b")


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_equal_numbers_are_one_level_however_they_are_spelled(tmp_path, ending):
    """Whole numbers with and without a decimal point were different levels: a table was 1.0 apart from itself."""
    spelled = {"real": ["0", "1", "2", "-3", "1.5", "40"], "made": ["0.0", "1.0", "2.00", "-3.0", "1.50", "4e1"]}
    for name, numbers in spelled.items():
        lines = ["v", *numbers] if ending == "csv" else [f'{{"v": {number}}}' for number in numbers]
        (tmp_path / f"{name}.{ending}").write_text("\n".join(lines) + "\n")
    found = score(str(tmp_path / f"real.{ending}"), str(tmp_path / f"made.{ending}"))
    assert found.distances == {"v": 0}
    (tmp_path / "real.csv").write_text("v\n007\n7\n9007199254740993\nnan\n")
    (tmp_path / "made.csv").write_text("v\n7\n7\n9007199254740992\nnan\n")
    assert score(str(tmp_path / "real.csv"), str(tmp_path / "made.csv")).distances == {"v": 0.5}
