"""Lines of reports for people: as plain text, and with what a terminal shows in color or as a bar."""

from __future__ import annotations

from typing import NamedTuple

BAR = "{bar}"
"""Where a row's text has the bar of its share."""
_WIDTH = 30


class ReportRow(NamedTuple):
    """One line of a report.

    Attributes
    ----------
    label : str
        What the line is about; empty for a heading, and for a line below another one.
    text : str
        With `BAR` where a bar stands.
    share : float or None
        Share of the cap that the line is about.
    """

    label: str
    text: str
    share: float | None = None

    def __str__(self) -> str:
        if self.label:
            return f"{self.label:<20} {self.text}"
        before, after = self.around_bar()
        if after is None:
            return before
        bar = "#" * min(_WIDTH, round(_WIDTH * (self.share or 0.0)))
        return f"{before}{bar:<{_WIDTH}}{after}"

    def around_bar(self) -> tuple[str, str | None]:
        """Return the text before and after its bar; None after it, if it has no bar."""
        if self.share is None or BAR not in self.text:  # a name may look like the place of a bar
            return self.text, None
        before, _, after = self.text.partition(BAR)
        return before, after
