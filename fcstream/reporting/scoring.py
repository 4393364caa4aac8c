"""Compares a synthetic table with the real one. Only for the owner of the data, since nothing here is private."""

from __future__ import annotations

import csv
import itertools
import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, SourceError, extra_missing, needs_package
from .text_files import read_lines

_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
MAX_LEVELS = 1024
MAX_LINES = 10_000_000
"""Largest number of rows of a file that is compared."""
MAX_TABLES = 2000
"""Largest number of three-way tables that are compared; if there are more, evenly spaced ones are chosen."""
MAX_ROWS = 20_000
"""Largest number of rows from which a classifier learns."""


@dataclass(frozen=True)
class Score:
    """Errors as shares of the records. `lines` formats them for people, `as_dict` for programs.

    Attributes
    ----------
    columns : tuple of str
    real_rows, synthetic_rows : int
    marginal_errors : tuple of float
        Root-mean-square error of the cells of all one-, two- and three-way tables (nan where columns are too few).
    distances : dict
        Total variation distance of each column.
    accuracy, real_accuracy, guess_accuracy : float or None
        On one half of the real records: of a classifier of `target` that learned from synthetic rows, of one that
        learned from the other half, and of always guessing the most frequent level.
    target : str or None
    pairs : float64 (2, cells)
        Real and synthetic two-way marginals, for a picture.
    left_out : tuple of str
        Columns that only one file has, if there is no release beside the rows that names the columns of the table.
    """

    columns: tuple[str, ...]
    real_rows: int
    synthetic_rows: int
    marginal_errors: tuple[float, float, float]
    distances: dict[str, float]
    pairs: NDArray[np.float64]
    target: str | None = None
    accuracy: float | None = None
    real_accuracy: float | None = None
    guess_accuracy: float | None = None
    left_out: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        names = ("real_rows", "synthetic_rows", "distances", "target", "accuracy", "real_accuracy", "guess_accuracy")
        errors = [None if math.isnan(error) else error for error in self.marginal_errors]
        return {"columns": list(self.columns), "left_out": list(self.left_out), "marginal_errors": errors} | {
            name: getattr(self, name) for name in names
        }

    def lines(self) -> list[str]:
        """Format the errors for people."""
        errors = [f"{k}-way {error:.4f}" for k, error in enumerate(self.marginal_errors, 1) if not math.isnan(error)]
        largest = max(self.distances, key=lambda name: self.distances[name])
        lines = [
            f"{self.synthetic_rows:,} synthetic rows against {self.real_rows:,} real ones, {len(self.columns)} columns",
            f"marginals, root-mean-square error: {', '.join(errors)}",
            f"one-way total variation distance: mean {np.mean(list(self.distances.values())):.4f}, largest "
            f"{self.distances[largest]:.4f} ({largest})",
        ]
        if self.accuracy is not None:
            lines.append(
                f"a classifier of {self.target!r}: {self.accuracy:.3f} right when it learned from synthetic rows, "
                f"{self.real_accuracy:.3f} from real ones, {self.guess_accuracy:.3f} by the most frequent level"
            )
        if self.left_out:
            lines.append(f"left out, because only one file has them: {', '.join(self.left_out)}")
        return [*lines, "these figures are exact, so not private: they are for the owner of the data"]


def score(real: str, synthetic: str, target: str | None = None, *, learn: bool = True) -> Score:
    """Compare two files of rows: ``.csv``, ``.jsonl`` (both also ``.gz``) or ``.parquet``.

    Parameters
    ----------
    real, synthetic : str
        Paths. If the release lies beside the synthetic rows (``NAME.json``), its columns and edges are used; else all
        columns that both files have.
    target : str, optional
        Column that a classifier learns to predict, by default the last one. This needs scikit-learn (the extra
        ``score``); if that is not installed and no target is given, the classifier is left out.
    learn : bool
        False leaves the classifier out.

    Raises
    ------
    ConfigError, SourceError
        Files that cannot be read, columns that are not in both, too many levels.
    """
    first, second = read_table(real), read_table(synthetic)
    described = _described(synthetic)
    names, rows, sizes = _aligned(first, second, described)
    unmatched = () if described else tuple(sorted(first.keys() ^ second.keys()))
    sets = [_some(list(itertools.combinations(range(len(names)), order))) for order in (1, 2, 3)]
    gaps = [np.concatenate([_gap(rows, sizes, one) for one in part], axis=1) if part else None for part in sets]
    errors = [math.nan if gap is None else math.sqrt(float(np.mean((gap[0] - gap[1]) ** 2))) for gap in gaps]
    distances = {name: float(np.abs(np.subtract(*_gap(rows, sizes, (a,)))).sum() / 2) for a, name in enumerate(names)}
    pairs = gaps[1] if gaps[1] is not None else np.empty((2, 0))
    if target is not None and target not in names:
        raise ConfigError("must be a column of both files", "--target", got=target)
    found = Score(tuple(names), len(rows[0]), len(rows[1]), (errors[0], errors[1], errors[2]), distances, pairs)
    found = replace(found, left_out=unmatched)
    if not learn or len(names) < 2:
        return found
    return _learned(found, rows, sizes, target)


def read_table(path: str) -> dict[str, list[Any]]:
    """Read the columns of a file of rows.

    Raises
    ------
    ConfigError, SourceError
    """
    plain = path.removesuffix(".gz")
    try:
        if plain.endswith(".parquet"):
            return _read_parquet(path)
        if plain.endswith((".csv", ".jsonl")):
            lines = (line.decode() for line in read_lines(path, MAX_LINES))
            if plain.endswith(".csv"):
                return _read_csv(path, lines)
            records = [json.loads(line) for line in lines if line.strip()]
            names = list(dict.fromkeys(name for record in records for name in record))
            return {name: [record.get(name) for record in records] for name in names}
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or 'it is damaged'}") from None
    except (ValueError, AttributeError, TypeError, RecursionError, csv.Error):
        raise SourceError(f"{path} does not hold a table of rows") from None
    raise ConfigError("must end in .csv, .jsonl or .parquet", "score", got=os.path.basename(path))


def _read_csv(path: str, text: Iterable[str]) -> dict[str, list[Any]]:
    header, *lines = list(csv.reader(text)) or [[]]
    if not header or any(len(line) != len(header) for line in lines):
        raise SourceError(f"{path} must have a header and as many cells on every line")
    return {name: [line[k] for line in lines] for k, name in enumerate(header)}


def _read_parquet(path: str) -> dict[str, list[Any]]:
    with needs_package("pyarrow", "arrow", "score"):
        import pyarrow
        import pyarrow.parquet
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            if file.metadata.num_rows > MAX_LINES:
                raise SourceError(f"{path} is longer than {MAX_LINES:,} rows", remedy="give a part of it")
            return dict(file.read().to_pydict())
    except pyarrow.ArrowException:
        raise SourceError(f"{path} is not a Parquet file") from None


def _described(path: str) -> list[dict[str, Any]] | None:
    """Read the columns from the release that lies beside synthetic rows; None if there is none."""
    beside = path.removesuffix(".gz").rpartition(".")[0] + ".json"
    try:
        with open(beside, encoding="utf-8") as file:
            columns = json.load(file)["parts"]["columns"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return list(columns)


def _aligned(
    real: Mapping[str, Sequence[Any]], made: Mapping[str, Sequence[Any]], described: list[dict[str, Any]] | None
) -> tuple[list[str], tuple[NDArray[np.int64], NDArray[np.int64]], list[int]]:
    """Return names, codes of both tables (n, columns), and numbers of levels."""
    columns = described or [{"name": name} for name in made if name in real]
    names = [column["name"] for column in columns]
    for name in names:
        if name not in real or name not in made:
            raise ConfigError(f"must be a column of both files: {name!r}", "score")
    if not names or not len(real[names[0]]) or not len(made[names[0]]):
        raise ConfigError("both files must hold rows with some columns in common", "score")
    codes: list[list[NDArray[np.int64]]] = [[], []]
    sizes = []
    for column in columns:
        both = [_texts(table[column["name"]], column.get("edges")) for table in (real, made)]
        levels = {level: code for code, level in enumerate(sorted(set(both[0]) | set(both[1])))}
        if len(levels) > MAX_LEVELS:
            raise ConfigError(
                f"has {len(levels)} levels, but at most {MAX_LEVELS} can be compared",
                f"column {column['name']!r}",
                remedy="put the release, which holds the bins, beside the synthetic rows, or divide "
                "the numbers of both files into bins first",
            )
        sizes.append(len(levels))
        for part, texts in zip(codes, both, strict=True):
            part.append(np.array([levels[text] for text in texts], np.int64))
    return names, (np.column_stack(codes[0]), np.column_stack(codes[1])), sizes


def _texts(values: Sequence[Any], edges: Sequence[float] | None) -> list[str]:
    """Convert values to levels as text: numbers by their bin, else in one spelling; anything else as it is."""
    found = []
    for value in values:
        text = (
            str(value).lower() if isinstance(value, bool) or value in ("True", "False", "TRUE", "FALSE") else str(value)
        )
        if edges is not None:
            try:
                text = f"bin {int(np.searchsorted(edges[1:-1], float(text), side='right')):04d}"
            except ValueError:
                pass
        else:
            text = _one_spelling(text)
        found.append(text)
    return found


def _one_spelling(text: str) -> str:
    """Return the same text for equal numbers, such as ``3``, ``3.0`` and ``3e0``; 0 and 1 are truth values, too.

    What begins with a needless zero is a code and no number, and whole numbers that a float cannot hold stay as they
    are.
    """
    if not _NUMBER.fullmatch(text):
        return text
    number = float(text)
    if not abs(number) < 2**53:
        return text
    if number in (0, 1):
        return ("false", "true")[int(number)]
    return str(int(number)) if number.is_integer() else repr(number)


def _some(sets: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    step = -(-len(sets) // MAX_TABLES)
    return sets[:: max(step, 1)]


def _gap(
    rows: tuple[NDArray[np.int64], NDArray[np.int64]], sizes: list[int], columns: tuple[int, ...]
) -> NDArray[np.float64]:
    """Return the marginal table of both files, as shares of the records: (2, cells)."""
    shape = [sizes[a] for a in columns]
    return np.array(
        [
            np.bincount(np.ravel_multi_index([one[:, a] for a in columns], shape), minlength=math.prod(shape))
            / len(one)
            for one in rows
        ]
    )


def _learned(
    found: Score, rows: tuple[NDArray[np.int64], NDArray[np.int64]], sizes: list[int], target: str | None
) -> Score:
    """Add the accuracies of a classifier, if scikit-learn is installed."""
    try:
        from sklearn.linear_model import LogisticRegression
    except ImportError:
        if target is None:
            return found
        raise ConfigError("needs scikit-learn", "--target", remedy=extra_missing("score")) from None
    name = target or found.columns[-1]
    k = found.columns.index(name)

    def features(table: NDArray[np.int64]) -> NDArray[np.float64]:
        blocks = [np.eye(sizes[a])[table[:, a]][:, 1:] for a in range(len(sizes)) if a != k]
        return np.concatenate(blocks, axis=1)

    real, made = rows
    test, train = real[::2][:MAX_ROWS], real[1::2][:MAX_ROWS]
    if not len(train):
        return found
    accuracies = []
    for table in (made[:MAX_ROWS], train):
        if len(set(table[:, k].tolist())) < 2:
            accuracies.append(float(np.mean(test[:, k] == table[0, k])))
            continue
        model = LogisticRegression(max_iter=2000).fit(features(table), table[:, k])
        accuracies.append(float(np.mean(model.predict(features(test)) == test[:, k])))
    guess = float(np.bincount(test[:, k]).max() / len(test))
    return replace(found, target=name, accuracy=accuracies[0], real_accuracy=accuracies[1], guess_accuracy=guess)
