"""Opens a figure to draw on, and saves it at the end."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, FcstreamError, extra_missing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "svg.hashsalt": "fcstream",  # the same picture is the same file
    "text.parse_math": False,  # names may hold dollar signs
    "axes.formatter.useoffset": False,
}


@contextmanager
def picture(path: str, width: float, height: float, key: str) -> Iterator[Figure]:
    """A figure of a size in inches, written to `path` at the end of the block; needs the extra ``plot``.

    Raises
    ------
    ConfigError
        Another suffix than .svg or .png, or matplotlib is not installed.
    FcstreamError
        The file cannot be written.
    """
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in (".svg", ".png"):
        raise ConfigError("must end in .svg or .png", key, got=os.path.basename(path))
    with blank_figure(width, height, key) as figure:
        yield figure
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)  # it is drawn as a box
                figure.savefig(path, dpi=150, metadata={"Date": None} if suffix == ".svg" else None)
        except OSError as error:
            raise FcstreamError(f"{path} cannot be written: {error.strerror}") from None


@contextmanager
def blank_figure(width: float, height: float, key: str, style: dict[str, Any] | None = None) -> Iterator[Figure]:
    """A figure of a size in inches, drawn in the project's style, with changes of it; needs the extra ``plot``.

    Raises
    ------
    ConfigError
        matplotlib is not installed; the message names `key`.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError:
        raise ConfigError("matplotlib is not installed", key, remedy=extra_missing("plot")) from None
    with matplotlib.rc_context(STYLE | (style or {})):
        yield Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.12))
