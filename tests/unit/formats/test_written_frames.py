"""Tables written in the library that another table is from."""

import pytest

from fcstream.errors import ConfigError
from fcstream.formats.written_frames import library_of, table_like

COLUMNS = {
    "when": ("time", [0, -1, 1_700_000_000_000]),
    "what": ("text", ["a", None, "ü"]),
    "much": ("number", [1, None, 0.5]),
}


def test_pandas():
    pandas = pytest.importorskip("pandas")

    class Own(pandas.DataFrame):
        """A data frame of a package that builds on pandas."""

    for like in (pandas.DataFrame(), pandas.DataFrame({"x": [1]}, index=["y"]), Own()):
        found = table_like(like, COLUMNS)
        assert library_of(like) == "pandas"
        assert found.when.tolist() == pandas.to_datetime(COLUMNS["when"][1], unit="ms", utc=True).tolist()
        assert found.what.tolist() == ["a", None, "ü"]
        assert found.much.isna().tolist() == [False, True, False]
        assert found.index.tolist() == [0, 1, 2]


def test_polars():
    polars = pytest.importorskip("polars")
    found = table_like(polars.DataFrame(), COLUMNS)
    assert found["when"].dt.timestamp("ms").to_list() == COLUMNS["when"][1]
    assert found["what"].to_list() == ["a", None, "ü"]
    assert found["much"].to_list() == [1.0, None, 0.5]


@pytest.mark.parametrize("kind", ["Table", "RecordBatch"])
def test_arrow(kind):
    pyarrow = pytest.importorskip("pyarrow")
    like = getattr(pyarrow, kind).from_pydict({"x": [1]})
    found = table_like(like, COLUMNS)
    assert type(found) is type(like)
    assert found.column("when").cast("int64").to_pylist() == COLUMNS["when"][1]
    assert found.column("what").to_pylist() == ["a", None, "ü"]
    assert found.column("much").to_pylist() == [1.0, None, 0.5]


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_no_rows_have_types_too(library):
    module = pytest.importorskip(library)
    like = module.table({}) if library == "pyarrow" else module.DataFrame()
    empty = {name: (kind, []) for name, (kind, _) in COLUMNS.items()}
    full = {name: (kind, cells[:1]) for name, (kind, cells) in COLUMNS.items()}
    one, other = table_like(like, empty), table_like(like, full)
    if library == "pandas":
        assert one.dtypes.to_dict() == other.dtypes.to_dict()
    else:
        assert one.schema == other.schema
    assert len(one) == 0


@pytest.mark.parametrize("other", [{"a": [1]}, [[1]], None, 5])
def test_what_is_no_table_is_refused(other):
    assert library_of(other) is None
    with pytest.raises(ConfigError, match="must be a data frame of pandas or polars, or a table of Arrow, got"):
        table_like(other, COLUMNS)
