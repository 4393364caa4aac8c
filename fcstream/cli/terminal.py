"""Reports and runs on a terminal: color, bars and sparklines, through rich.

Whoever pipes the output, sets ``NO_COLOR``, has no terminal that can do it (``TERM=dumb``) or has not installed the
extra ``terminal`` gets plain lines.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from ..reporting.budget import FilterReport, Report
    from ..reporting.rows import ReportRow

_STEPS, _PLAIN_STEPS = "▁▂▃▄▅▆▇█", ".:-=+*#%"
_LABEL = 21  # characters of the column of labels
_HIGH, _MIDDLE = 0.9, 0.6
LATEST = 60
"""Windows of a sparkline at most."""


def console_of(stream: TextIO | None) -> Console | None:
    """Return what paints on a stream; None where lines are to be plain."""
    term = os.environ.get("TERM", "")
    if os.environ.get("NO_COLOR") or term in ("", "dumb", "unknown"):
        return None
    if stream is None or not stream.isatty():
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(file=stream, markup=False, emoji=False, highlight=False, no_color=False, force_terminal=True)


# -- runs ----------------------------------------------------------------------------------------------------------


def say(line: str) -> None:
    """Print a line on standard error: what needs attention is in color on a terminal."""
    console = console_of(sys.stderr)
    if console is None:
        click.echo(line, err=True)
        return
    from rich.text import Text

    text = Text(line)
    text.highlight_regex(r"^warning:", "bold yellow")
    text.highlight_regex(r"[1-9]\d* released", "green")
    text.highlight_regex(r"[1-9]\d* (refused|rejected)( \([^)]*\))?", "yellow")
    text.highlight_regex(r"^[a-z_]+(?=: )", "bold")
    console.print(text, soft_wrap=True)


# -- budgets -------------------------------------------------------------------------------------------------------


def print_reports(console: Console, reports: Sequence[Report], below: Sequence[ReportRow]) -> None:
    """Print reports on budgets, and what is said of all streams together."""
    for place, report in enumerate(reports):
        if place:
            console.print()
        _print_report(console, report)
    if below:
        console.print()
    for row in below:
        _print_row(console, row)


def _print_report(console: Console, report: Report) -> None:
    from ..reporting.budget import amount

    readings = iter([report.unit, *([] if report.total is None else [report.total])])
    reading: FilterReport | None = None
    rows = report.rows()
    for row, after in zip(rows, [*rows[1:], None], strict=True):
        if row.label == "guarantee":
            reading = next(readings)
        elif reading is not None and not row.label and row.share is None and not row.text.startswith(" "):
            console.print()  # the total begins
        _print_row(console, row)
        if row.label == "spent" and row.share is not None:
            console.print(" " * _LABEL, bar(console, row.share, _room(console, _LABEL)), sep="")
        is_last = row.around_bar()[1] is not None and (after is None or after.around_bar()[1] is None)
        if is_last and reading is not None:
            _print_costs(console, "each window", reading.costs())
        if row.label == "panes":
            _print_costs(console, "each pane", [amount(point.spent) for point in report.panes])


def _print_row(console: Console, row: ReportRow) -> None:
    """Print a row: labels in color, and the bar of its share; long text goes on below its beginning."""
    from rich.table import Table
    from rich.text import Text

    before, after = row.around_bar()
    if not row.label and after is not None:
        drawn = bar(console, row.share or 0.0, _room(console, len(before) + len(after)))
        console.print(Text.assemble((before, "dim"), drawn, after), soft_wrap=True)
    elif not row.label:
        text = Text(row.text)
        text.highlight_regex(r"^stream '.*?'(?=, unit)", "bold")
        console.print(text, soft_wrap=True)
    else:
        text = Text(row.text)
        text.highlight_regex(r"(?<![\w.])\d[\d.]*(e[+-]?\d+)?%?", "bold")
        text.highlight_regex(r"\b(no|not a) guarantee\b", "yellow")
        text.highlight_regex(r"^now: no room", "bold red")
        grid = Table.grid()
        grid.add_column(width=_LABEL, no_wrap=True)
        grid.add_column()
        grid.add_row(Text(row.label, style="bold green" if row.label == "guarantee" else "bold cyan"), text)
        console.print(grid)


def _print_costs(console: Console, label: str, costs: Sequence[float]) -> None:
    """Print a sparkline of what windows or panes cost; nothing for fewer than two."""
    from rich.text import Text

    shown = costs[-min(LATEST, _room(console, _LABEL)) :]
    if len(shown) >= 2:
        span = " to ".join(dict.fromkeys(f"{cost:.3g}" for cost in (min(shown), max(shown))))
        line = Text.assemble((f"{label:<{_LABEL}}", "bold cyan"), sparkline(console, shown))
        line.append(f" {span} in the last {len(shown)}", "dim")
        console.print(line, soft_wrap=True)


# -- pieces --------------------------------------------------------------------------------------------------------


def _room(console: Console, taken: int) -> int:
    """Return how wide a bar may be beside so many characters."""
    width: int = console.width
    return max(10, min(50, width - taken - 1))


def bar(console: Console, share: float, width: int) -> Text:
    """Draw a bar: green, yellow from 60% on, red from 90% on, and what is left of it faint."""
    from rich.text import Text

    share = min(max(share, 0.0), 1.0)
    halves = int(2 * width * share + (0.5 if share < 1 else 0.0))
    full, half, line = ("=", "-", "-") if console.options.ascii_only else ("━", "╸", "━")
    color = "red" if share >= _HIGH else "yellow" if share >= _MIDDLE else "green"
    done = full * (halves // 2) + half * (halves % 2)
    rest = (" " if console.options.ascii_only else line) * (width - len(done))
    return Text.assemble((done, color), (rest, "bright_black"))


def sparkline(console: Console, values: Sequence[float | None]) -> Text:
    """Draw a number as the height of a character, from 0 or below to the largest; None as a mark of a refusal."""
    from rich.text import Text

    steps = _PLAIN_STEPS if console.options.ascii_only else _STEPS
    known = [value for value in values if value is not None]
    low, high = min([0.0, *known]), max([0.0, *known])
    heights = [None if value is None or high <= low else (value - low) / (high - low) for value in values]
    top = len(steps) - 1
    line = Text()
    for is_refused, found in groupby(zip(values, heights, strict=True), lambda pair: pair[0] is None):
        marks = [steps[min(top, math.floor((height or 0.0) * len(steps)))] for _, height in found]
        text = refused_mark(console) * len(marks) if is_refused else "".join(marks)
        line.append(text, "yellow" if is_refused else "cyan")
    return line


def refused_mark(console: Console) -> str:
    return "x" if console.options.ascii_only else "\u00d7"
