"""The line of progress of a run over files: plain, or on a terminal with a bar and a sparkline of its windows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..service.batch import ProgressLine
from .terminal import LATEST, bar, console_of, refused_mark, sparkline

if TYPE_CHECKING:
    from rich.console import Console

    from ..releases.base import Release


class PaintedProgress(ProgressLine):
    """A line of progress with a bar, and a sparkline of the windows that were released."""

    def __init__(self, console: Console) -> None:
        super().__init__(sys.stderr)
        self._console = console
        self._latest: dict[int, list[int] | None] = {}  # by opening: noisy numbers of records, None if refused

    def painted(self, text: str, part: float | None) -> str:
        from rich.text import Text

        line = Text.assemble(bar(self._console, part, 20), " ", text) if part is not None else Text(text)
        line.truncate(self._console.width - 1, overflow="ellipsis")
        with self._console.capture() as captured:
            self._console.print(line, end="", soft_wrap=True)
        found: str = captured.get()
        return found

    def saw(self, releases: Sequence[Release]) -> None:
        """Note the noisy numbers of records of each window: of all keys, and of the first answer."""
        for release in releases:
            if release.place in (None, 0):
                before = self._latest.get(release.window_open_ms)
                if release.reason is None:
                    before = [*(before or []), *([] if release.count is None else [release.count])]
                self._latest[release.window_open_ms] = before
        if len(self._latest) > 2 * LATEST:
            self._latest = dict(sorted(self._latest.items())[-LATEST:])

    def tell(self) -> None:
        """Print the sparkline of the latest windows of a run; nothing for fewer than two."""
        found = [counts for _, counts in sorted(self._latest.items())][-LATEST:]
        if len(found) < 2:
            return
        from rich.text import Text

        has_counts = any(found)
        values = [None if counts is None else float(sum(counts)) if has_counts else 1.0 for counts in found]
        line = Text.assemble(("windows", "bold"), " ", sparkline(self._console, values))
        what = ", by their noisy number of records" if has_counts else ""
        refused = f", {refused_mark(self._console)} refused" if None in found else ""
        line.append(f" the last {len(found)}{what}{refused}", "dim")
        self._console.print(line, soft_wrap=True)


class PlainProgress(ProgressLine):
    """A line of progress as plain text."""

    def tell(self) -> None:
        """Print nothing: plain lines say all that there is."""


def progress_line() -> PaintedProgress | PlainProgress:
    """Return what shows the progress of a run on standard error."""
    console = console_of(sys.stderr)
    return PlainProgress() if console is None else PaintedProgress(console)
