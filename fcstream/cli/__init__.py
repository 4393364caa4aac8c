"""The command: ``fcstream run | check | plan | rehearse | doctor | warm | report | budget | clock | ...``.

Here belongs what only a command line needs: options, progress, exit codes and text for people, one file for each group
of commands. What a command does is done by the package it calls, so that a program can do the same. Importing this is
cheap: what a command needs is imported when it runs.

Files: `run`; `preflight` (``check``, ``plan``, ``rehearse``, ``doctor``, ``warm``); `report`; `budget`; `clock`;
`tools` (``plot``, ``score``, ``simulate``, ``init``); `local`; `progress` and `terminal` (the progress, colors and bars
that `run` and `budget` show on a terminal).
"""

from . import budget, clock, local, preflight, report, run, tools
from .base import main

__all__ = ["budget", "clock", "local", "main", "preflight", "report", "run", "tools"]
