"""What came in between two windows of an epoch, from the releases of both."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...errors import ConfigError
from ...stream.lattice import exact
from ..base import Release
from .factor import factor


class RangeTotal(NamedTuple):
    """The sums over a range of windows, and the standard deviation of the noise in each.

    Attributes
    ----------
    value, sigma : list of float

    Privacy
    -------
    A function of released numbers, so it costs nothing.

    Source
    ------
    Specification 5.13; proof 6.5.
    """

    value: list[float]
    sigma: list[float]


def between(earlier: Release, later: Release) -> RangeTotal:
    """Return the sums over the windows of an epoch after one release's, up to and with another one's.

    Parameters
    ----------
    earlier, later : Release
        Of kind ``total``, with values, of the same stream, answer and epoch. Windows that `later` names as skipped are
        in neither.

    Raises
    ------
    ConfigError
        The two are no such releases.

    Privacy
    -------
    A function of released numbers, so it costs nothing.

    Source
    ------
    Specification 5.13; proof 6.5.
    """
    first, last = _parts(earlier, "earlier"), _parts(later, "later")
    same = ("of", "theta", "epoch_open_ms", "epoch_windows")
    if earlier.series != later.series or any(first[key] != last[key] for key in same):
        raise ConfigError("must be of the same stream, answer and epoch as `earlier`", "later")
    if first["windows"] >= last["windows"]:
        raise ConfigError("must be of a window before that of `later`", "earlier")
    found = factor(last["epoch_windows"], exact(last["theta"]))
    ratio = found.noise_of_range(first["windows"], last["windows"]) / found.noise_of_total(last["windows"])
    values = zip(later.value or [], earlier.value or [], strict=True)
    return RangeTotal([b - a for b, a in values], [sigma * ratio for sigma in later.sigma or []])


def _parts(release: Release, key: str) -> dict[str, Any]:
    if release.kind != "total" or release.value is None or release.parts is None:
        raise ConfigError("must be a release of kind 'total' with a value", key)
    return release.parts
