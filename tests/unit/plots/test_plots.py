"""Pictures of releases: what is read, what is refused, and that every kind is drawn with its labels."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from support.helpers import rows, sample
from support.releases import HOUR, lines_of, refused, release

from fcstream import Engine, Noise, Release, SeededEntropy
from fcstream.cli import main
from fcstream.errors import ConfigError, SourceError
from fcstream.ledgers.retired_streams import retire
from fcstream.releases.shape import Axis, Numbers, ResultShape
from fcstream.reporting.series import ReleaseSeries, read_series, read_truth

matplotlib = pytest.importorskip("matplotlib")
BARE = {"method": None, "radius": None, "spread": None, "delta": None, "size_hint": None}


def drawn(releases, tmp_path, truth=None):
    """The text of a picture."""
    from fcstream.plots import plot_releases

    series = read_series(lines_of(*releases))
    if truth is not None:
        series = read_truth([json.dumps(one).encode() for one in truth], series)
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        plot_releases(series, str(tmp_path / "x.svg"))
    return (tmp_path / "x.svg").read_text()


def streamed(sections, n=600):
    engine = Engine(sample(**sections), noise=Noise(SeededEntropy(1)))
    engine.push(np.arange(n) * (50_000 // n), rows(n))  # the last windows stay empty
    return engine.close()


KINDS = {
    "mean": ({"release": {"size_hint": 100, "rho": 2.0}}, ["a", "b", "means, with ellipses", "records in a window"]),
    "count": ({"release": {**BARE, "kind": "count", "rho": 1.0}}, ["records", "2 standard deviations of the noise"]),
    "sum": ({"release": {**BARE, "kind": "sum", "rho": 1.0}}, ["sum of a", "sum of b", "2 standard deviations"]),
    "total": (
        {"release": {**BARE, "kind": "total", "epoch": "20s", "rho": 1.0}},
        ["since the epoch began", "in a window", "a window, with 2 standard deviations of the noise"],
    ),
    "total of a histogram": (
        {"release": {**BARE, "kind": "total", "of": "histogram", "feature": "a", "edges": [20.0], "epoch": 3}},
        ["-40 to 20", "records since the epoch began", "window of 1970-01-01 00:00:50 UTC"],
    ),
    "synthetic": (
        {"release": {**BARE, "kind": "synthetic", "edges": {"a": [20.0, 20.5], "b": [49.0]}, "rho": 2.0}},
        ["a -40 to 20", "b 49 to 100", "% of the made-up rows", "Cramér", "how far made-up rows are off is not known"],
    ),
    "histogram": (
        {"release": {**BARE, "kind": "histogram", "feature": "a", "edges": [20.0, 20.5], "rho": 1.0}},
        ["-40 to 20", "20 to 20.5", "20.5 to 80", "(standard deviation of the noise: 0.707)"],
    ),
    "categories": (
        {"release": {**BARE, "kind": "histogram", "feature": "b", "categories": [50.0], "rho": 1.0}},
        ["50", "other", "b"],
    ),
    "quantiles": (
        {"release": {**BARE, "kind": "quantiles", "feature": "a", "quantiles": [0.25, 0.5, 0.75], "rho": 2.0}},
        ["quantiles 0.25 to 0.75", "quantile 0.5", "noisy number of records", "standard deviations of its rank"],
    ),
    "variance": (
        {"release": {"kind": "variance", "method": None, "spread": None, "size_hint": 100, "rho": 2.0}},
        ["variance of a", "variance of b"],
    ),
    "tree": ({"release": {**BARE, "kind": "tree", "rho": 2.0}}, ["a", "b", "records for each 1 x 1 of"]),
    "tree of one feature": (
        {"release": {**BARE, "kind": "tree", "rho": 2.0, "features": ["b"]}},
        ["records for each 1 of b"],
    ),
    "marginals": (
        {"release": {**BARE, "kind": "marginals", "edges": {"a": [20.0, 20.5], "b": [49.0]}, "order": 1, "rho": 2.0}},
        ["a -40 to 20", "a 20 to 20.5", "b 49 to 100"],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_has_a_picture(name, tmp_path):
    sections, labels = KINDS[name]
    found = streamed(sections)
    assert any(one.value is not None for one in found)
    text = drawn(found, tmp_path)
    for label in (*labels, "time (UTC)", "stream 't': ", "guarantee of one process: rho 4, delta 1e-06", "NOT PRIVATE"):
        assert f">{label}" in text or label in text, label
    if any(one.reason for one in found):
        assert "refused: too_few" in text


@pytest.mark.slow
def test_centers_in_the_plane_and_in_space(tmp_path):
    plane = {"kind": "centers", "features": ["x", "y"], "transform": ["none", "log1p"]}
    some = [release(k, [[k, 1.0], [5.0, k]], [[0.1, 0.2]] * 2, parts={"counts": [3, 50]}, **plane) for k in range(3)]
    truth = [{"window_open_ms": 0, "value": [[0, 1], [5, 0]]}]
    text = drawn([*some, refused(3, "no_match", **plane)], tmp_path, truth)
    for label in (
        "centers, larger for more records; ellipses: 2 standard deviations of their noise",
        ">x<",
        ">log1p(y)<",
        "refused: no_match (1)",
        ">truth<",
        "with true values",
    ):
        assert label in text
    own = {"weights": [0.5, 0.5], "covariances": [[[1.0, 0.5], [0.5, 2.0]], [[0.0, 0.0], [0.0, 0.0]]]}
    learned = {**plane, "kind": "mixtures"}
    some = [release(k, [[k, 1.0], [5.0, k]], [[0.1, 0.2]] * 2, parts=own, **learned) for k in range(3)]
    text = drawn([*some, refused(3, "no_match", **learned)], tmp_path)
    assert "components, larger for more records; ellipses: 2 standard deviations of their noise, dashed" in text
    space = {"kind": "centers", "features": ["x", "y", "z"], "transform": ["none"] * 3}
    some = [release(k, [[k, 1.0, 2.0]], [[0.1, float("nan"), 0.1]], **space) for k in range(2)]
    some = [Release(**{**one.as_dict(), "sigma": None}) if k else one for k, one in enumerate(some)]
    text = drawn([*some, refused(2, **space)], tmp_path, [{"window_open_ms": 0, "value": [[0, 1, 2]]}])
    for label in (">x<", ">y<", ">z<", "centers, with 2 standard", "refused: too_few (1)"):
        assert label in text


@pytest.mark.slow
def test_covariances_of_two_features_are_ellipses(tmp_path):
    named = {"kind": "covariance", "features": ["x", "y"], "transform": ["none", "log1p"], "count": None}
    matrix, sigma = [[4.0, 1.0], [1.0, 2.0]], [[0.4, 0.3], [0.3, 0.2]]
    some = [release(k, matrix, sigma, parts={"eta": 0.05}, **named) for k in range(3)]
    truth = [{"window_open_ms": 0, "value": [[4, 0], [0, 2]]}, {"window_open_ms": HOUR, "value": None}]
    text = drawn([*some, refused(3, **named)], tmp_path, truth)
    for label in (
        "variance of", ">x<", ">log1p(y)<", "covariance of", "x, log1p(y)", "x, from its center",
        "one standard deviation of the records; band: noise of the last window", ">truth<",
        "refused: too_few (1)",
    ):  # fmt: skip
        assert label in text, label
    # A matrix that is no covariance, for its noise, and one window alone.
    assert "from its center" in drawn([release(0, [[1.0, 2.0], [2.0, 1.0]], None, **named)], tmp_path)


@pytest.mark.slow
def test_covariances_of_more_features_are_correlations(tmp_path):
    named = {"kind": "covariance", "features": ["x", "y", "z"], "transform": ["none"] * 3, "count": None}
    matrix = [[4.0, -3.0, 0.0], [-3.0, 9.0, 1.0], [0.0, 1.0, 0.0]]
    truth = [{"window_open_ms": HOUR, "value": [[1, 0.25, 0], [0.25, 1, 0], [0, 0, 1]]}]
    text = drawn([release(k, matrix, matrix, **named) for k in range(2)], tmp_path, truth)
    for label in ("last released window", ">correlations, truth<", ">-0.50<", ">0.25<", ">nan<", "variance of"):
        assert label in text, label
    one = {**named, "features": ["x"], "transform": ["none"]}
    assert "variance of" in drawn([release(0, [[4.0]], [[0.1]], **one)], tmp_path)


@pytest.mark.slow
def test_points_and_marginals(tmp_path):
    plane = {"kind": "points", "features": ["x", "y"], "transform": ["none"] * 2}
    some = [
        release(k, [[k, 1.0], [5.0, k]], parts={"weights": [0.9, 0.1], "counts": [9, 1, -2]}, **plane) for k in range(2)
    ]
    text = drawn([*some, refused(2, parts={"counts": [1]}, **plane)], tmp_path)
    assert "points, larger for more records" in text
    line = {**plane, "features": ["x"], "transform": ["none"]}
    text = drawn([release(0, [[1.0], [2.0]], parts={"weights": [0.5, 0.5]}, **line), refused(1, **line)], tmp_path)
    assert ">points<" in text
    columns = [
        {"name": "on", "levels": ["no", "yes"]},
        {"name": "load", "levels": [0.5, 1.5, 5.5], "edges": [0, 1, 2, 9]},
    ]
    parts = {"columns": columns, "tables": [["on", "load"], ["on"]], "cell_sigma": 1.5}
    value = [[1.0, 2.0, 3.0, 4.0, 5.0, -1.0], [6.0, 8.0]]
    truth = [{"window_open_ms": 0, "value": [[1, 2, 3, 4, 5, 0], [6, 9]]}]
    text = drawn([release(0, value, kind="marginals", parts=parts), refused(1, kind="marginals")], tmp_path, truth)
    for label in ("on = yes, load 2 to 9", ">on = no<", "noise: 1.5", ">truth<", ">released<"):
        assert label in text, label
    with pytest.raises(SourceError, match="line 1 of the truth"):
        drawn(
            [release(0, value, kind="marginals", parts=parts)], tmp_path, [{"window_open_ms": 0, "value": [[1], [2]]}]
        )


@pytest.mark.slow
def test_histograms_stand_above_their_truth(tmp_path):
    some = [release(k, [5.0, 1.0], [0.5, 0.5], kind="histogram", parts={"edges": [0.0, 1.0, 2.0]}) for k in range(2)]
    text = drawn(some, tmp_path, [{"window_open_ms": HOUR, "value": [4, 2]}])
    assert text.count("0 to 1") == 3  # in both heat maps, and beside the bars
    for label in (">released<", ">truth<", "with true values: NOT PRIVATE"):
        assert label in text, label


@pytest.mark.slow
def test_reasons_are_distinguished_and_gaps_left_open(tmp_path):
    reasons = ["too_few", "budget_exhausted", "interrupted", "no_radius", "no_match", "something_new"]
    some = [refused(2 * k, reason) for k, reason in enumerate(reasons)]
    some += [release(2 * k + 1, [1.0, 2.0, 3.0], [0.1, 0.1, 0.1]) for k in range(5)]
    text = drawn([refused(30), *some], tmp_path, [{"window_open_ms": HOUR, "value": [1, 2, 3]}])
    for reason in reasons:
        assert f"refused: {reason} ({2 if reason == 'too_few' else 1})" in text
    assert "truth" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        *("mean", "count", "sum", "total", "histogram", "frequent", "quantiles", "variance"),
        *("centers", "mixtures", "covariance", "points", "marginals"),
    ],
)
def test_series_without_a_value(kind, tmp_path):
    bare = ("count", "total", "histogram", "frequent", "quantiles", "marginals")
    features = {} if kind in bare else {"features": ["a", "b"], "transform": ["none", "none"]}
    parts = {"parts": {"feature": "a", "quantiles": [0.5], "edges": [0.0, 1.0, 2.0]}}
    text = drawn([refused(k, kind=kind, **features, **parts) for k in range(2)], tmp_path)
    assert "refused: too_few (2)" in text
    with_truth = drawn([refused(0, kind=kind, **features, **parts)], tmp_path, [{"window_open_ms": 0, "value": [[1]]}])
    assert "with true values" not in with_truth  # nothing to compare it with


@pytest.mark.slow
def test_many_features_and_many_windows(tmp_path):
    names = [f"f{k}" for k in range(20)]
    some = [release(k, [float(k)] * 20, [1.0] * 20, features=names, transform=["none"] * 20) for k in range(300)]
    text = drawn(some[:3], tmp_path)
    assert "12 of 20 features" in text
    long = [release(k, [float(k), 1.0], [1.0, 1.0], features=["a", "b"]) for k in range(300)]
    assert drawn(long, tmp_path).count("<path") < 2500  # a dot for each, ellipses for some


def test_a_kind_of_another_package_is_drawn_by_the_shape_that_its_releases_carry(tmp_path):
    axes = Axis(name="part of the day", labels=("times",)), Axis(name="feature", labels=("features",))
    own = {"kind": "made elsewhere", "features": ["a", "b"], "parts": {"times": ["day", "night"]}}
    own["shape"] = ResultShape(axes=axes, numbers=(Numbers(axes=(0, 1)),), form="bars")
    text = drawn([release(k, [[1.0, 2.0], [3.0, 4.0]], [[0.1] * 2] * 2, **own) for k in range(2)], tmp_path)
    for label in (">a/day<", ">b/day<", ">a/night<", ">b/night<"):
        assert label in text, label
    with pytest.raises(ConfigError, match="must have as many numbers as features"):
        read_series(lines_of(release(0, [[1.0], [2.0]], **own)))


def test_what_has_no_picture(tmp_path):
    from fcstream.plots import plot_releases

    with pytest.raises(ConfigError, match="must hold a value of the shape of the kind 'made elsewhere'"):
        read_series(lines_of(release(0, [[1.0, 0.0], [0.0, 1.0]], kind="made elsewhere")))
    with pytest.raises(ConfigError, match="must hold a value of the shape of the kind 'centers'"):
        read_series(lines_of(release(0, [1.0, 0.0], kind="centers")))
    with pytest.raises(ConfigError, match=r"--out: must end in \.svg or \.png"):
        plot_releases(read_series(lines_of(release(0, [1.0]))), "x.pdf")
    with pytest.raises(ConfigError, match="years"):
        read_series(lines_of(release(10**9, [1.0])))


# -- reading -------------------------------------------------------------------------------------------------------


def test_series_are_ordered_and_counted_once():
    one, two = release(0, [1.0]), release(1, [2.0])
    series = read_series([*lines_of(two, one, two), b"\n"])
    assert series.releases == [one, two]
    other = release(0, [9.0], stream="o")
    with pytest.raises(ConfigError, match="--stream: is required: there are releases of 'o', 's'"):
        read_series(lines_of(one, other))
    assert read_series(lines_of(one, other), "o").releases == [other]
    with pytest.raises(ConfigError, match="must be one of 'o', 's', got 'x'"):
        read_series(lines_of(one, other), "x")
    with pytest.raises(ConfigError, match="at least one"):
        read_series([])
    with pytest.raises(ConfigError, match="of one kind"):
        read_series(lines_of(one, release(1, [1.0], kind="count")))
    assert ReleaseSeries([one], {}).reasons == {}


@pytest.mark.slow
def test_one_answer_of_several_is_chosen_and_named(tmp_path):
    slow, fast = (release(0, [1.0], name=name, place=i) for i, name in enumerate(("slow", "fast")))
    with pytest.raises(ConfigError, match="--answer: is required: there are releases of 'fast', 'slow'"):
        read_series(lines_of(slow, fast))
    with pytest.raises(ConfigError, match="--answer: must be one of 'fast', 'slow', got 'x'"):
        read_series(lines_of(slow, fast), None, "x")
    with pytest.raises(ConfigError, match="--answer: must be left out: these releases have no names"):
        read_series(lines_of(release(0, [1.0])), None, "slow")
    assert read_series(lines_of(slow, fast), None, "slow").releases == [slow]
    assert "answer 'slow'" in drawn([slow], tmp_path)
    assert "answer" not in drawn([release(0, [1.0])], tmp_path)


@pytest.mark.parametrize(
    "line", [b"SENTINEL", b'{"a": "SENTINEL"}', b"\xff\xfe", b"[1]", b'{"window_open_ms": "SENTINEL"}']
)
def test_lines_that_are_none_are_named_and_never_quoted(line):
    with pytest.raises(SourceError, match="line 2 is not a release") as caught:
        read_series([*lines_of(release(0, [1.0])), line])
    assert "SENTINEL" not in str(caught.value)
    with pytest.raises(SourceError, match="line 1 of the truth") as caught:
        read_truth([line], read_series(lines_of(release(0, [1.0]))))
    assert "SENTINEL" not in str(caught.value)


@pytest.mark.parametrize("value", [[1.0, 2.0], 3.0, [[1.0]], ["x"], [True], [float("nan")]])
def test_truth_has_the_shape_of_what_was_released(value):
    series = read_series(lines_of(release(0, [1.0]), refused(1)))
    line = json.dumps({"window_open_ms": 0, "value": value}).encode()
    with pytest.raises(SourceError, match="line 1 of the truth"):
        read_truth([line], series)
    good = [b'{"window_open_ms": 0, "value": [2]}', b"", b'{"window_open_ms": 3600000, "value": null}']
    assert read_truth(good, series).truth == {0: [2]}


# -- the command ---------------------------------------------------------------------------------------------------


def call(*args, **options):
    return CliRunner().invoke(main, ["plot", *map(str, args)], **options)


@pytest.mark.slow
def test_the_command_reads_files_pipes_and_ledgers(tmp_path, monkeypatch):
    import gzip

    monkeypatch.chdir(tmp_path)
    engine = Engine(sample(release={**BARE, "kind": "count", "rho": 1.0}, ledger={"url": "sqlite:l.db"}))
    engine.push(np.zeros(9, np.int64), rows(9))
    found = engine.close()
    engine.acknowledge()
    body = b"".join(lines_of(*found))
    (tmp_path / "r.jsonl").write_bytes(body)
    (tmp_path / "r.jsonl.gz").write_bytes(gzip.compress(body))
    assert call("r.jsonl").exit_code == 0
    expected = (tmp_path / "releases.svg").read_bytes()
    assert expected.startswith(b"<?xml")
    for where in ("jsonl:r.jsonl", "r.jsonl.gz", "sqlite:l.db"):
        assert call(where, "--out", "o.svg").exit_code == 0, where
        assert (tmp_path / "o.svg").read_bytes() == expected
    assert call("-", "--out", "o.svg", input=body).exit_code == 0
    assert (tmp_path / "o.svg").read_bytes() == expected
    (tmp_path / "t.jsonl").write_text('{"window_open_ms": 0, "value": [9]}\n')
    assert call("r.jsonl", "--truth", "t.jsonl", "--out", "o.png").exit_code == 0
    assert (tmp_path / "o.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["absent.jsonl"], 1, "absent.jsonl cannot be read"),
        (["r.svg", "--out", "r.svg"], 2, "must not be the file that is read"),
        (["r.svg", "--truth", "absent"], 1, "absent cannot be read"),
        (["sqlite:absent.db"], 1, "absent.db"),
        (["r.svg", "--out", "o.gif"], 2, "must end in .svg or .png"),
        (["r.svg", "--out", "no/o.svg"], 1, "cannot be written"),
        (["r.svg", "--stream", "x"], 2, "--stream: must be one of 's'"),
        (["bad.gz"], 1, "cannot be read"),
    ],
)
def test_what_the_command_refuses(args, code, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.svg").write_bytes(b"".join(lines_of(release(0, [1.0]))))
    (tmp_path / "bad.gz").write_bytes(b"\x1f\x8b\x08\x00 broken")
    done = call(*args)
    assert (done.exit_code, message in done.output) == (code, True), done.output
    assert (tmp_path / "r.svg").read_bytes().startswith(b"{")


@pytest.mark.slow
def test_a_picture_of_a_ledger_leaves_retired_streams_out(tmp_path):
    """Releases of two budgets were one curve, and the retired ones could not be chosen by their name."""
    url = f"sqlite:{tmp_path / 'l.db'}"
    for rho in (1.0, 2.0):
        count = {**BARE, "kind": "count", "rho": rho}
        changes = {"stream": {"name": "bikes"}, "release": count, "budget": {"rho": 30.0}, "ledger": {"url": url}}
        Engine(sample(**changes)).close()
        if rho == 1.0:
            retire(url, "bikes")
    costs = {}
    for name in (None, "bikes", "bikes (retired 1)"):
        out = tmp_path / "x.svg"
        with matplotlib.rc_context({"svg.fonttype": "none"}):
            done = call(url, "--out", out, *(["--stream", name] if name else []))
        assert done.exit_code == 0, done.output
        costs[name] = [f"at most rho {rho} each" in out.read_text() for rho in (1, 2)]
    assert costs == {None: [False, True], "bikes": [False, True], "bikes (retired 1)": [True, False]}
    assert call(url, "--out", out, "--stream", "cars").exit_code != 0
    retire(url, "bikes")
    alone = call(url, "--out", out)
    assert alone.exit_code == 2
    assert "--stream" in alone.output
    assert "'bikes (retired 2)'" in alone.output


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["count", "mean", "histogram", "quantiles"])
def test_pictures_call_users_users(kind, tmp_path):
    """They were called records."""
    value = {"count": [5.0], "mean": [1.0], "histogram": [3.0, 4.0], "quantiles": [1.0]}[kind]
    more = {"kind": kind, "sigma": [1.0] * len(value)}
    more |= {"features": ["a"]} if kind == "mean" else {}
    more |= {"parts": {"feature": "a", "edges": [0.0, 1.0, 2.0]}} if kind == "histogram" else {}
    more |= {"parts": {"quantiles": [0.5]}, "features": ["a"]} if kind == "quantiles" else {}
    of_users = drawn([release(k, value, unit="user", **more) for k in range(6)], tmp_path)
    of_records = drawn([release(k, value, **more) for k in range(6)], tmp_path)
    assert ">users" in of_users
    assert "records" not in of_users
    assert "records" in of_records
    assert "users" not in of_records


@pytest.mark.parametrize("lines", ["", '{"window_open_ms": 7, "value": [1.0]}\n'])
def test_a_truth_of_other_windows_is_told(tmp_path, lines):
    """Nothing was drawn of it, without a word, and the title spoke of true values."""
    (tmp_path / "r.jsonl").write_bytes(b"".join(lines_of(release(0, [5.0], [1.0], kind="count"))))
    (tmp_path / "t.jsonl").write_text(lines)
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        done = call(tmp_path / "r.jsonl", "--truth", tmp_path / "t.jsonl", "--out", tmp_path / "x.svg")
    assert done.exit_code == 0, done.output
    assert "warning: --truth holds no value for a window of these releases" in done.output
    assert "true values" not in (tmp_path / "x.svg").read_text()


@pytest.mark.parametrize(("kind", "value"), [("count", [5.0]), ("mean", [1.0, 2.0]), ("total", [5.0])])
def test_a_truth_of_one_window_can_be_seen(kind, value, tmp_path, monkeypatch):
    """It was a dashed line of one point, which is nothing."""
    from fcstream.plots import plot_releases
    from fcstream.plots.drawing import TRUTH

    seen = []

    def keep(figure, *_args, **_more):
        seen.extend(line for axes in figure.axes for line in axes.lines if line.get_color() == TRUTH)

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", keep)
    parts = {"parts": {"epoch_ms": 0, "windows": 1}} if kind == "total" else {}
    found = [release(k, value, [1.0] * len(value), kind=kind, **parts) for k in range(2)]
    truth = json.dumps({"window_open_ms": 0, "value": value}).encode()
    plot_releases(read_truth([truth], read_series(lines_of(*found))), str(tmp_path / "x.svg"))
    assert seen
    assert {line.get_marker() for line in seen} == {"x"}
