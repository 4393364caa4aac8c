"""The command: ``fcstream run | plan | doctor | budget | plot | score | simulate | init | local``.

A module for each group of commands; importing it adds them to `main`. What a command needs is imported when it runs.
"""

from . import budget, local, stream, tools
from .base import main

__all__ = ["budget", "local", "main", "stream", "tools"]
