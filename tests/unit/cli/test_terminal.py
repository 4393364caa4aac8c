"""What a terminal shows of budgets and runs: color, bars and sparklines; and that everything else stays as it was."""

import re
import sys

import pytest
from click.testing import CliRunner
from support.terminal import on_terminal, plain

from fcstream.cli import main
from fcstream.reporting.rows import BAR, ReportRow

pytest.importorskip("rich")
CROSS = "\u00d7"
CONFIG = """
stream.name = "t"
stream.unit = "stream"
window = {length = "10s", start = "1970-01-01T00:00:00Z", end = "1970-01-01T00:01:00Z"}
release = {kind = "count", rho = 0.25}
budget = {rho = 1.0, delta = 0.0, exhausted = "refuse"}
source.url = "jsonl:in.jsonl"
sink.url = "jsonl:out.jsonl"
ledger.url = "sqlite:l.db"
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A folder in which four windows of six were released, two refused, and what the terminal showed of it."""
    folder = tmp_path_factory.mktemp("ran")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        (folder / "c.toml").write_text(CONFIG)
        counts = [40, 10, 80, 20, 30, 30]
        lines = [f'{{"ts_ms": {10_000 * k + i}}}\n' for k, count in enumerate(counts) for i in range(count)]
        (folder / "in.jsonl").write_text("".join(lines))
        return folder, *on_terminal("run", "c.toml")


@pytest.fixture
def folder(ran, monkeypatch):
    monkeypatch.chdir(ran[0])
    return ran[0]


def test_a_run_ends_with_a_sparkline_and_colors(ran):
    _, text, code = ran
    assert code == 3
    line = next(line for line in plain(text).splitlines() if line.startswith("windows "))
    marks = re.fullmatch(rf"windows (.{{6}}) the last 6, by their noisy number of records, {CROSS} refused", line)[1]
    heights = ["▁▂▃▄▅▆▇█".find(mark) for mark in marks]
    assert marks[4:] == 2 * CROSS
    assert heights[2] == 7
    assert heights[0] > heights[1]
    assert "\x1b[32m4 released\x1b[0m" in text
    assert "\x1b[33m2 refused (budget_exhausted 2)\x1b[0m" in text
    assert "6 windows: 4 released, 2 refused (budget_exhausted 2)" in plain(text)


def test_a_budget_on_a_terminal_has_bars_and_says_the_same(folder):
    piped = CliRunner().invoke(main, ["budget", "show", "l.db"]).stdout
    text, code = on_terminal("budget", "show", "l.db", columns=300)
    assert code == 0
    assert "\x1b[1;32mguarantee" in text
    shown = plain(text)
    for line in piped.splitlines():
        words = re.sub(r"#+", "", line).split()
        found = [row for row in shown.splitlines() if re.sub("[━╸]+", "", row).split() == words]
        assert len(found) == 1, line
    bars = re.findall(r"UTC  [\d.]+ +\x1b\[0m\x1b\[(\d+)m([━╸]*)\x1b", text)
    assert bars == [("32", "━" * 12 + "╸"), ("32", "━" * 25), ("33", "━" * 37 + "╸"), ("31", "━" * 50)]
    assert "each window          ████ 0.25 in the last 4" in shown


def test_panes_have_a_sparkline(ran, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sliding = CONFIG.replace('"stream"', '"event"').replace('"10s"', '"10s", slide = "5s"')
    (tmp_path / "c.toml").write_text(sliding.replace("in.jsonl", f"{ran[0]}/in.jsonl"))
    assert CliRunner().invoke(main, ["run", "c.toml"]).exit_code == 0
    text, code = on_terminal("budget", "show", "l.db")
    assert code == 0
    assert "each pane            ▅██████████▅ 0.25 to 0.5 in the last 12" in plain(text)


def test_a_narrow_terminal_gets_no_line_that_is_longer(folder):
    text, _ = on_terminal("budget", "show", "l.db", columns=60)
    labeled = [line for line in plain(text).splitlines() if re.match(r"[a-z_]+ {2,}", line)]
    assert labeled
    assert max(map(len, labeled)) <= 60
    assert "only if the end was fixed in advance" in " ".join(plain(text).split())


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": ""}])
def test_who_wants_no_color_gets_what_a_pipe_gets(folder, environment):
    piped = CliRunner().invoke(main, ["budget", "show", "l.db"])
    assert on_terminal("budget", "show", "l.db", **environment) == (piped.stdout, 0)
    again = CliRunner().invoke(main, ["run", "c.toml"])
    text, code = on_terminal("run", "c.toml", **environment)
    assert code == again.exit_code
    assert "\x1b[3" not in text
    assert [line for line in text.splitlines() if "; 0." not in line] == [
        line for line in again.stderr.splitlines() if "; 0." not in line
    ]


def test_without_rich_lines_are_plain(folder, monkeypatch):
    piped = CliRunner().invoke(main, ["budget", "show", "l.db"])
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert on_terminal("budget", "show", "l.db") == (piped.stdout, 0)


def test_json_has_no_color(folder):
    piped = CliRunner().invoke(main, ["budget", "show", "l.db", "--json"])
    assert on_terminal("budget", "show", "l.db", "--json") == (piped.stdout, 0)


def test_a_terminal_without_unicode_gets_signs_that_it_has(folder):
    text, code = on_terminal("budget", "show", "l.db", encoding="ascii")
    assert code == 0
    assert "====" in plain(text)
    assert "%%%% 0.25 in the last 4" in plain(text)


def test_the_line_of_progress_has_a_bar_and_fits():
    from rich.console import Console

    from fcstream.cli.progress import PaintedProgress

    progress = PaintedProgress(Console(width=40, force_terminal=True, color_system="standard"))
    assert plain(progress.painted("12 records read", 0.5)) == "━" * 20 + " 12 records read"
    assert progress.painted("12 records read", 0.5).startswith("\x1b[32m━━━━━━━━━━\x1b[0m")
    assert plain(progress.painted("x" * 50, None)) == "x" * 38 + "…"


def test_windows_of_several_keys_and_answers_are_one_mark(capsys):
    from rich.console import Console
    from support.releases import refused, release

    from fcstream.cli.progress import PaintedProgress
    from fcstream.cli.terminal import LATEST

    progress = PaintedProgress(Console(file=sys.stdout, width=200))
    for key in ("a", "b"):
        for k in range(3 * LATEST):
            progress.saw([release(k, [1.0], count=k % 2, key=key, place=0), refused(k, key=key, place=1)])
    progress.saw([refused(3 * LATEST, count=None)])
    progress.tell()
    marks = f"{'█▁' * 29}█{CROSS}"
    expected = f"windows {marks} the last 60, by their noisy number of records, {CROSS} refused\n"
    assert capsys.readouterr().out == expected


def test_a_name_that_looks_like_the_place_of_a_bar_stays():
    assert str(ReportRow("", f"stream '{BAR}'")) == f"stream '{BAR}'"
    assert str(ReportRow("spent", BAR, 0.5)) == f"spent                {BAR}"
    assert str(ReportRow("", f"a {BAR} b", 0.5)) == f"a {'#' * 15}{' ' * 15} b"
