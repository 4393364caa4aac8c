"""The programs of the gallery are short, say what they show, and draw it; the site's build runs them once more."""

import runpy

import pytest
from support import REPOSITORY

FOLDER = REPOSITORY / "examples" / "gallery"
PATHS = sorted(FOLDER.glob("*.py"))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_an_example_is_short_and_has_a_title(path):
    lines = path.read_text().splitlines()
    assert len(lines) < 60
    assert lines[0] == '"""'
    assert lines[2] == "=" * len(lines[1])
    assert lines[4].endswith(".")


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in PATHS if path.stem != "embedded"], ids=lambda path: path.stem)
def test_an_example_draws_one_picture(path, monkeypatch):
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    drawn = []
    monkeypatch.setattr(plt, "show", lambda: drawn.append(plt.gcf()))
    try:
        runpy.run_path(str(path), run_name="__main__")
        assert drawn == [plt.figure(number) for number in plt.get_fignums()]
        assert len(drawn) == 1
        assert all(axes.has_data() and axes.get_xlabel() + axes.get_title() for axes in drawn[0].axes)
    finally:
        plt.close("all")
