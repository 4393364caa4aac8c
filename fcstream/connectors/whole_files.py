"""Files of releases that are there as a whole, on disk, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import SinkError
from ..runtime.disk import sync_folder, write_all


def put_file(path: Path, data: bytes, unfinished: Path) -> None:
    """Make or replace a file; a crash leaves what was there before, and perhaps `unfinished`, of the same folder.

    Raises
    ------
    SinkError
    """
    try:
        file = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            write_all(file, data)
            os.fsync(file)
        finally:
            os.close(file)
        os.replace(unfinished, path)
        sync_folder(path.parent)
    except OSError as error:
        raise SinkError(
            f"{path} cannot be written: {error.strerror}",
            remedy="make room and run again: what was sealed is in the ledger and is written then",
        ) from None
