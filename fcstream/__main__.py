"""``python -m fcstream``."""

from .cli import main

main(prog_name="fcstream")
