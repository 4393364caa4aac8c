"""Pictures of several keys and answers, of texts and totals, and maps: what lies where, and what is left out."""

import math

import numpy as np
import pytest
from click.testing import CliRunner
from support.releases import HOUR, lines_of, refused, release

from fcstream.cli import main
from fcstream.errors import ConfigError
from fcstream.plots import plot_all
from fcstream.reporting.series import read_all

matplotlib = pytest.importorskip("matplotlib")


def drawn(releases, path, **chosen):
    """The text of a picture of all that was chosen."""
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        plot_all(read_all(lines_of(*releases), **chosen), str(path / "x.svg"))
    return (path / "x.svg").read_text()


def of_keys(number, windows=3, **more):
    """Counts of several keys, the larger the later the key."""
    names = [f"k{i:02d}" for i in range(number)]
    return [
        release(w, [float(i * w)], [1.0], kind="count", stream=f"s/{name}", key=name, **more)
        for i, name in enumerate(names)
        for w in range(windows)
    ]


def grid(releases, **chosen):
    """The panels of a picture, as title -> axes."""
    from unittest import mock

    found = {}

    def keep(figure, *_args, **_more):
        for axes in figure.axes:
            if axes.get_title(loc="left"):
                found.setdefault(axes.get_title(loc="left"), []).append(axes)
        found["title"] = figure._suptitle.get_text()

    with mock.patch("matplotlib.figure.Figure.savefig", keep):
        plot_all(read_all(lines_of(*releases), **chosen), "x.svg")
    return found


# -- several series ------------------------------------------------------------------------------------------------


def test_each_key_has_a_panel_at_the_same_times_and_scale():
    panels = grid([*of_keys(3), refused(3, kind="count", stream="s/k01", key="k01")])
    assert "stream 's': 3 keys, count per window" in panels.pop("title")
    assert list(panels) == ["k00", "k01", "k02"]
    shown = [axes for (axes,) in panels.values()]
    assert len({axes.get_xlim() for axes in shown}) == 1
    assert shown[0].get_xlim() == (0, 4 * HOUR / 86_400_000)
    assert len({axes.get_ylim() for axes in shown}) == 1
    lines = [axes.get_lines()[0].get_ydata().tolist() for axes in shown]
    assert [line[:3] for line in lines] == [[0, 0, 0], [0, 1, 2], [0, 2, 4]]


def test_a_key_that_would_be_flat_keeps_its_own_scale():
    panels = grid([*of_keys(2), release(0, [1e6], [1.0], kind="count", stream="s/z", key="z")])
    tops = [panels[name][0].get_ylim()[1] for name in ("k00", "z")]
    assert tops[0] < 10 < tops[1]


@pytest.mark.slow
def test_more_keys_than_panels_are_told(tmp_path):
    panels = grid(of_keys(40, 1))
    assert "the first 24 of 40 keys" in panels.pop("title")
    assert list(panels) == [f"k{i:02d}" for i in range(24)]
    assert "keys" not in drawn(of_keys(40, 1), tmp_path, key="k39")


def test_each_answer_has_panels_of_its_own():
    found = []
    for w in range(2):
        found += [
            release(w, [4.0], [1.0], kind="count", name="number", place=0),
            release(w, [1.0, 2.0], [0.1, 0.1], name="middle", place=1, features=["x", "y"], transform=["none"] * 2),
            release(w, [5.0, 1.0], [1.0, 1.0], kind="histogram", name="bins", place=2, parts={"edges": [0, 1, 2]}),
        ]
    panels = grid(found)
    assert "3 answers per window" in panels.pop("title")
    assert list(panels) == ["number (count)", "middle (mean)", "bins (histogram)"]
    assert [axes.get_ylabel() for axes in panels["middle (mean)"]] == ["x", "y"]
    alone = grid(found, answer="number")
    assert "answer 'number': count" in alone["title"]


def test_answers_of_keys_are_rows_of_the_same_columns():
    found = [
        release(0, [1.0], [1.0], kind=kind, stream=f"s/{key}", key=key, name=kind, place=i)
        for key in ("a", "b")
        for i, kind in enumerate(("count", "sum", "c", "d", "e"))
    ]
    panels = grid(found)
    assert "4 of 5 numbers of each key" in panels.pop("title")
    rows = {name: axes.get_subplotspec().rowspan.start for name, (axes,) in panels.items()}
    assert rows == {
        f"{key}: {kind} ({kind})": row for row, key in enumerate("ab") for kind in ("count", "sum", "c", "d")
    }


def test_a_key_without_an_answer_leaves_its_place_empty():
    facts = [("a", "x"), ("a", "y"), ("b", "y")]
    found = [
        release(0, [1.0], [1.0], kind="count", stream=f"s/{key}", key=key, name=name, place="xy".index(name))
        for key, name in facts
    ]
    panels = grid(found)
    panels.pop("title")
    places = {name: axes.get_subplotspec().colspan.start for name, (axes,) in panels.items()}
    assert places == {"a: x (count)": 0, "a: y (count)": 1, "b: y (count)": 1}


def test_a_search_for_keys_is_not_among_them():
    search = release(0, [7.0], [1.0], kind="frequent", stream="s/", parts={"levels": ["k00"], "threshold": 3})
    assert len(read_all(lines_of(search, *of_keys(2)))) == 2
    (alone,) = read_all(lines_of(search, *of_keys(2)), "s/")
    assert alone.first.kind == "frequent"


def test_which_series_are_chosen():
    lines = lines_of(*of_keys(3, 1), release(0, [1.0], stream="other"))
    with pytest.raises(ConfigError, match="--stream: is required: there are releases of 'other', 's'"):
        read_all(lines)
    assert [one.key for one in read_all(lines, "s")] == ["k00", "k01", "k02"]
    assert [one.key for one in read_all(lines, "s/k01")] == ["k01"]
    assert [one.key for one in read_all(lines, "s", "k02")] == ["k02"]
    for wrong, message in (
        ({"stream": "x"}, "--stream: must be one of 'other', 's', 's/k00'"),
        ({"stream": "s", "key": "x"}, "--key: must be one of 'k00', 'k01', 'k02', got 'x'"),
        ({"stream": "s/k01", "key": "k01"}, "--key: must be left out: --stream names one key already"),
        ({"stream": "other", "key": "x"}, "--key: must be left out: these releases have no keys"),
        ({"stream": "s", "answer": "x"}, "--answer: must be left out: these releases have no names"),
    ):
        with pytest.raises(ConfigError, match=message):
            read_all(lines, **wrong)
    with pytest.raises(ConfigError, match="at least one"):
        read_all([])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["centers", "covariance", "total", "frequent"])
def test_every_kind_has_a_panel(kind, tmp_path):
    """Also for a key whose windows are all refused."""
    plane = {"features": ["x", "y"], "transform": ["none"] * 2, "count": None}
    value, sigma, more = {
        "centers": ([[1.0, 2.0]], [[0.1, 0.1]], plane),
        "covariance": ([[4.0, 1.0], [1.0, 2.0]], None, plane),
        "total": ([5.0], [1.0], {"parts": {"epoch_open_ms": 0, "windows": 1, "of": "count"}}),
        "frequent": ([5.0], [1.0], {"parts": {"levels": ["maps"], "threshold": 3}}),
    }[kind]
    one = release(0, value, sigma, kind=kind, stream="s/a", key="a", **more)
    other = refused(0, kind=kind, stream="s/b", key="b", **({} if "parts" in more else more))
    text = drawn([one, other], tmp_path)
    assert ">a<" in text
    assert "no value was released" in text


@pytest.mark.slow
def test_the_command_draws_all_keys_of_a_ledger(tmp_path, monkeypatch):
    from support.helpers import sample

    from fcstream import KeyedEngine

    monkeypatch.chdir(tmp_path)
    counting = dict.fromkeys(("method", "radius", "spread", "delta", "size_hint")) | {"kind": "count", "rho": 1.0}
    keyed = {"stream": {"key": "site", "keys": ["a", "b"]}, "ledger": {"url": "sqlite:l.db"}}
    engine = KeyedEngine(sample(release=counting, **keyed))
    engine.push(np.zeros(4, np.int64), np.zeros((4, 2)), keys=["a", "a", "b", "b"])
    engine.close()
    engine.acknowledge()
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        for chosen, titles in (([], {"a", "b"}), (["--stream", "t"], {"a", "b"}), (["--stream", "t/b"], set())):
            done = CliRunner().invoke(main, ["plot", "sqlite:l.db", *chosen, "--out", "x.svg"])
            assert done.exit_code == 0, done.output
            text = (tmp_path / "x.svg").read_text()
            assert {name for name in ("a", "b") if f">{name}</text>" in text} == titles
    wrong = CliRunner().invoke(main, ["plot", "sqlite:l.db", "--stream", "x"])
    assert wrong.exit_code == 2
    assert "no stream 'x', only t/a, t/b" in wrong.output
    (tmp_path / "t.jsonl").write_text('{"window_open_ms": 0, "value": [2]}\n')
    true = CliRunner().invoke(main, ["plot", "sqlite:l.db", "--truth", "t.jsonl"])
    assert "--key: is required: true values belong to one key and one answer" in true.output


# -- texts, totals, made-up rows -----------------------------------------------------------------------------------


def table_of(*releases):
    from fcstream.plots.tables import table_of

    (series,) = read_all(lines_of(*releases))
    return table_of(series)


def texts(k, told, sigma=1.0):
    parts = {"feature": "app", "levels": list(told), "threshold": 3}
    return release(k, [float(x) for x in told.values()], [sigma] * len(told), kind="frequent", parts=parts)


@pytest.mark.slow
def test_texts_are_rows_the_most_frequent_on_top(tmp_path):
    found = table_of(texts(0, {"mail": 9, "maps": 5}), texts(1, {"maps": 8, "new\n": 4}, 2.0), texts(2, {}))
    assert found.names == ["maps", "mail", "new "]
    assert found.downward
    assert found.values[0] == pytest.approx([5, 9, math.nan], nan_ok=True)
    assert found.values[HOUR] == pytest.approx([8, math.nan, 4], nan_ok=True)
    assert found.errors == [0, 0, 0]  # the newest window tells none
    text = drawn([texts(0, {"$mail$ at": 9, "地図": 5}), texts(1, {"maps": 8})], tmp_path)
    for label in ("$mail$ at", "told from 3 on", "app"):
        assert label in text
    assert "no text was told" in drawn([texts(0, {}), texts(1, {})], tmp_path)
    many = drawn([texts(0, {f"t{i}": 5 for i in range(80)})], tmp_path)
    assert "60 of 80 texts" in many


def test_made_up_rows_are_shown_as_they_are_drawn():
    """A twin: the rows themselves, which are drawn from the same mixture."""
    from fcstream import Release, synthetic_rows
    from fcstream.plots.tables import _dependence

    columns = [
        {"name": "load", "levels": [0.5, 1.5, 3.0], "edges": [0, 1, 2, 4]},
        {"name": "on", "levels": ["false", "true"]},
    ]
    parts = {"columns": columns, "unit": 10_000, "weights": [0.5, 0.25, 0.25], "rows": 40_000, "seed": 5}
    points = [[9000, 10_000, 0, 0], [2000, 2000, 3000, 5000], [0, 0, 10_000, 0]]  # Booleans come first
    one = release(0, points, kind="synthetic", parts=parts | {"counts": [2, 1, 1]})
    found = table_of(one)
    assert found.names == ["load 0 to 1", "load 1 to 2", "load 2 to 4", "on = false", "on = true"]
    rows = synthetic_rows(Release.from_bytes(one.to_bytes()))
    load, on = np.array(rows["load"]), np.array(rows["on"])
    shares = [*(np.mean(load == level) for level in (0.5, 1.5, 3.0)), np.mean(~on), np.mean(on)]
    assert found.values[0] == pytest.approx([100 * share for share in shares], abs=0.5)
    (series,) = read_all(lines_of(one))
    names, table = _dependence(series)
    joint = np.array([[np.mean((load == level) & (on == state)) for state in (False, True)] for level in (0.5, 1.5, 3)])
    alone = np.outer(joint.sum(1), joint.sum(0))
    assert names == ["load", "on"]
    assert table[0, 1] == pytest.approx(math.sqrt(((joint - alone) ** 2 / alone).sum()), abs=0.02)
    assert table[0, 0] == 1


def test_totals_begin_anew_with_each_epoch():
    from matplotlib.figure import Figure

    from fcstream.plots.curves import draw_total

    found = []
    for k, value in enumerate([3.0, 5.0, 2.0, 6.0]):
        parts = {"of": "count", "epoch_open_ms": (k // 2) * 2 * HOUR, "windows": k % 2 + 1}
        found.append(release(k, [value], [0.5], kind="total", parts=parts))
    (series,) = read_all(lines_of(*found))
    axes = Figure().subplots()
    draw_total(axes, series, 0)
    curves = [line.get_xydata().tolist() for line in axes.get_lines() if line.get_linewidth() == 1.2]
    hour = HOUR / 86_400_000
    assert curves == [
        [[0, 0], [pytest.approx(hour), 3], [pytest.approx(2 * hour), 5]],
        [[pytest.approx(2 * hour), 0], [pytest.approx(3 * hour), 2], [pytest.approx(4 * hour), 6]],
    ]
    tops = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert (tops.min(), tops.max()) == (0, 6)  # 5, and two standard deviations of the noise


# -- maps ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("features", "across", "is_map"),
    [
        (["lat", "lon"], 1, True),
        (["longitude", "latitude"], 0, True),
        (["pickup_Lat", "pickup_lng"], 1, True),
        (["startLatitude", "startLong"], 1, True),
        (["platform", "salon"], 0, False),
        (["lat", "temp"], 0, False),
    ],
)
def test_longitude_lies_across(features, across, is_map):
    from matplotlib.figure import Figure

    from fcstream.plots.centers import draw_places
    from fcstream.plots.planes import plane_of

    place = {"kind": "mixtures", "features": features, "transform": ["none"] * 2}
    own = {"weights": [1.0], "covariances": [[[0.01, 0.0], [0.0, 0.04]]]}
    (series,) = read_all(lines_of(release(0, [[48.0, 16.0]], [[0.1, 0.2]], parts=own, **place)))
    figure = Figure()
    axes = figure.subplots()
    draw_places(figure, axes, series, plane_of(series))
    assert axes.get_xlabel() == features[across]
    assert axes.get_ylabel() == features[1 - across]
    assert axes.collections[0].get_offsets().tolist() == [[[48.0, 16.0][across], [48.0, 16.0][1 - across]]]
    noise, records = axes.patches
    assert noise.get_width() == pytest.approx(4 * [0.1, 0.2][across]) or noise.angle
    extents = [patch.get_extents().transformed(axes.transData.inverted()) for patch in (noise, records)]
    for box, sigmas in zip(extents, ([0.1, 0.2], [0.1, 0.2]), strict=True):
        assert box.width == pytest.approx(4 * sigmas[across], rel=0.02)
        assert box.height == pytest.approx(4 * sigmas[1 - across], rel=0.02)
    scale = 1 / math.cos(math.radians([48.0, 16.0][1 - across])) if is_map else "auto"
    assert axes.get_aspect() == (pytest.approx(scale) if is_map else "auto")


@pytest.mark.parametrize(
    ("features", "scale"),
    [(["lat", "lon"], 1 / math.cos(math.radians(60))), (["speed", "lat", "lon"], 2.0), (["a", "b"], "auto")],
)
def test_boxes_of_longitude_and_latitude_are_a_map(features, scale, monkeypatch):
    """Two boxes north of each other: 3 records in the south, 1 in the north."""
    from fcstream.plots import trees

    found = []
    monkeypatch.setattr(trees, "finish", lambda figure, *_: found.append(figure))
    low, high = [[50.0, 10.0], [60.0, 10.0]], [[60.0, 20.0], [70.0, 20.0]]
    more = [[0.0] * (len(features) - 2), [9.0] * (len(features) - 2)]
    parts = {"low": [[*more[0], *ends] for ends in low], "high": [[*more[1], *ends] for ends in high]}
    place = {"kind": "tree", "features": features, "transform": ["none"] * len(features)}
    (series,) = read_all(lines_of(release(0, [3.0, 1.0], [1.0, 1.0], parts=parts, **place)))
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda *_, **__: None)
    trees.plot_boxes(series, "x.png")
    axes = next(axes for axes in found[0].axes if axes.collections)
    assert axes.get_aspect() == (scale if scale == "auto" else pytest.approx(scale))
    assert (axes.get_xlabel(), axes.get_ylabel()) == (("lon", "lat") if scale != "auto" else ("a", "b"))
    shares = axes.collections[0].get_array().reshape(160, 160) ** 2
    if scale != "auto":
        assert (axes.get_xlim(), axes.get_ylim()) == ((10, 20), (50, 70))
        assert shares[:80].sum() == pytest.approx(3 * shares[80:].sum())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mean", "centers"])
def test_a_map_stands_beside_other_features(kind, tmp_path):
    place = {"kind": kind, "features": ["lat", "dwell", "lon"], "transform": ["none"] * 3}
    value = [48.0, 5.0, 16.0]
    one = release(0, value if kind == "mean" else [value], **place)
    text = drawn([one, refused(1, **place)], tmp_path)
    assert text.count(">lon<") == text.count(">lat<") == 2  # over time, and as the name of an axis of the map
    assert text.count(">dwell<") == 1


def test_what_is_no_degree_is_no_map():
    from matplotlib.figure import Figure

    from fcstream.plots.planes import plane_of, true_to_scale

    place = {"kind": "centers", "features": ["lat", "lon"], "transform": ["asinh", "none"]}
    (series,) = read_all(lines_of(release(0, [[1.0, 2.0]], **place)))
    assert plane_of(series) == (1, 0, False)
    axes = Figure().subplots()
    true_to_scale(axes, [48_000.0])
    assert axes.get_aspect() == "auto"
    true_to_scale(axes, [90.0])
    assert axes.get_aspect() == pytest.approx(20)


# -- what titles promise -------------------------------------------------------------------------------------------


def test_the_guarantee_of_a_user_under_several_keys_is_told():
    """The title gave that of one key, as if it were the whole."""
    whole = "guarantee for ever: rho 2, delta 1e-06"
    divided = f"{whole} under all keys together, rho 0.5, delta 0 of it for each key"
    assert divided in grid(of_keys(3, key_share={"rho": 0.5, "delta": 0.0}))["title"]
    assert whole in grid(of_keys(3))["title"]
    assert "all keys" not in grid(of_keys(3))["title"]


def test_what_the_answers_of_a_window_cost_is_added_up():
    """The title gave the cost of the dearest answer for that of a window."""
    costs = {"a": 0.3, "b": 0.05, "c": 0.01}
    found = [
        release(w, [5.0], [1.0], kind="count", name=name, place=place, rho=rho, delta=0.0)
        for place, (name, rho) in enumerate(costs.items())
        for w in range(2)
    ]
    assert "at most rho 0.36 a window" in grid(found)["title"]
