"""The exception tree.

::

    FcstreamError                    exit code 1
    ├── ConfigError                  2   a configuration or an argument that cannot be used
    │   ├── UnusablePlan             2   a configuration that could never release anything
    │   ├── UnusableRecords          2   a file, a data frame or an array of which nothing can be used
    │   ├── BudgetTooSmall           2   a budget that does not last to the end of a run over files
    │   └── AddressTaken             1   an address to listen at that is not free now: trying again may help
    ├── SourceError                  1   input that cannot be opened or read
    ├── SchemasUnreachable           1   a registry of schemas that does not answer
    ├── SinkError                    1   output that cannot be written
    │   └── OutputClosed             1   standard output whose reader went away: trying again cannot help
    ├── EngineClosed                 1   a call on an engine after `close`
    ├── CounterBroken                1   a call on a friend counter that was interrupted before
    ├── BudgetExhausted              3   a charge that does not fit
    └── LedgerError                  1   a ledger that cannot be opened or written
        ├── LedgerInUse              1   a ledger that another process has open
        ├── LedgerMismatch           2   a ledger of another stream, schema or budget
        └── LedgerDamaged            4   a ledger whose content contradicts itself
            └── LedgerTaken          4   a ledger that another process opened or exchanged while it was open

An error holds rule, value, setting and remedy, and its text is made of them; nobody cuts or edits that text. It never
holds a record's content. What a program needs to know is in attributes.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

ABSENT: Final = ...
"""In place of a value, where an error is about none; the same object in every process."""


class Shown(str):
    """A value as an error shall show it: another text is shown in quotes."""


class FcstreamError(Exception):
    """Base class of all errors that this package raises on purpose.

    Its text is ``[where: ][key: ]rule[, got VALUE][: remedy]``, made of the attributes when it is asked for: who knows
    better where the fault is sets ``key`` or ``where`` and raises the error again, and never edits a text.

    Attributes
    ----------
    rule : str
        What must hold, or what happened.
    key : str
        The setting or argument, for instance ``window.slide``; empty if it is about a whole file, or about none.
    got : object
        The value that breaks the rule, never a record's content; `ABSENT` without one.
    remedy : str
        What to do.
    where : str
        The file, table, server or stream.
    facts : dict of str to str
        Other keys, which rule and remedy name as ``{fact}``.
    """

    exit_code = 1
    is_logged = False
    """Whether the error was logged already, so that it need not be printed once more."""

    def __init__(
        self, rule: str, key: str = "", *, got: Any = ABSENT, remedy: str = "", where: str = "", **facts: str
    ) -> None:
        super().__init__(rule)
        self.rule, self.key, self.got, self.remedy, self.where, self.facts = rule, key, got, remedy, where, facts

    def __str__(self) -> str:
        return "".join(f"{part}: " for part in (self.where, self.key) if part) + self.message

    @property
    def finding(self) -> str:
        """The text without the remedy."""
        got = "" if self.got is ABSENT else f", got {_shown(self.got)}"
        return self._with_keys(self.rule) + got

    @property
    def message(self) -> str:
        """The text without the place and the key."""
        finding = self.finding
        mark = "; " if ": " in self.rule else ": "
        return f"{finding}{mark}{self._with_keys(self.remedy)}" if self.remedy else finding

    def rename(self, name: Callable[[str], str]) -> None:
        """Give other names to the key and to the keys among the facts."""
        self.key, self.facts = name(self.key), {fact: name(key) for fact, key in self.facts.items()}

    def _with_keys(self, text: str) -> str:
        for fact, key in self.facts.items():
            text = text.replace(f"{{{fact}}}", f"`{key}`")
        return text


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, str) and not isinstance(value, Shown) else str(value)


class ConfigError(FcstreamError, ValueError):
    """A configuration value or argument breaks a rule: that of the attribute `key`."""

    exit_code = 2


class UnusablePlan(ConfigError):
    """The configuration would (almost) never release a value, as public arithmetic shows."""


class UnusableRecords(ConfigError):
    """None of the first records can be used, so a setting must be wrong; nothing was charged.

    Attributes
    ----------
    reasons : dict of str to int
        Number of records by the reason why they cannot be used. Exact, so for the owner of the records only.
    """

    def __init__(self, rule: str, key: str, reasons: dict[str, int], *, remedy: str = "") -> None:
        super().__init__(rule, key, remedy=remedy)
        self.reasons = reasons


class BudgetTooSmall(ConfigError):
    """The budget does not last for all windows that a run over files would answer; nothing was charged or read."""


class BudgetWarning(UserWarning):
    """Windows were refused because the budget is used up: such windows have no value."""


class AddressTaken(ConfigError):
    """Another process listens at the address, or the network is not up yet."""

    exit_code = 1


class SourceError(FcstreamError):
    """Input cannot be opened or read to its end."""


class SchemasUnreachable(FcstreamError):
    """A registry of schemas does not answer; messages wait, and are read again."""


class SinkError(FcstreamError):
    """Output cannot be opened or written; sealed releases stay in the ledger."""


class OutputClosed(SinkError):
    """The reader of standard output went away, so trying again cannot help."""


class EngineClosed(FcstreamError):
    """The engine takes no more records: `close` was called or a ledger error stopped it."""


class CounterBroken(FcstreamError):
    """A counter was interrupted while it counted: its counts are unknown, and it refuses further calls."""

    def __init__(self) -> None:
        super().__init__(
            "the counter was interrupted while it counted, so its counts are lost", remedy="make a new one"
        )


class LedgerError(FcstreamError):
    """The ledger cannot be opened, read or written. Nothing was drawn under an unwritten charge."""


class LedgerInUse(LedgerError):
    """Another process, or another engine of this process, has the ledger open."""


class LedgerMismatch(LedgerError):
    """The ledger belongs to another stream, budget, specification or schema version."""

    exit_code = 2


class LedgerDamaged(LedgerError):
    """The ledger's content contradicts itself; `fcstream budget verify` names the first bad row."""

    exit_code = 4


class LedgerTaken(LedgerDamaged):
    """Another process opened the ledger, or exchanged its file, while this one had it open."""


class BudgetExhausted(FcstreamError):
    """A charge does not fit into a privacy filter. Nothing was spent and the filter stays usable.

    Attributes
    ----------
    requested, remaining, capacity, difference : PrivacyLoss or DPLoss
        `difference` is what is missing: requested less remaining, but at least 0, for rho and delta separately.
    block : str
        Block whose privacy filter refused: a pane (its opening in ms), ``user``, ``stream`` or ``total``.
    group : str or None
        The group of streams that share the filter.
    window : object or None
        The window to be charged, with ``open_ms`` and ``close_ms``.
    releases : list of Release
        What `Stream.run` had released before, with ``budget.exhausted = "stop"``.
    """

    exit_code = 3

    def __init__(
        self,
        requested: Any,
        remaining: Any,
        capacity: Any,
        block: str,
        window: Any = None,
        group: str | None = None,
    ) -> None:
        missing = requested.missing(remaining)
        whose = "" if group is None else f" of group {group!r}"
        suffix = "" if window is None else f" for window {_utc(window.open_ms)}"
        is_pane = block.removeprefix("-").isdigit()
        super().__init__(
            f"block {_utc(int(block)) if is_pane else block}{whose} refuses the charge{suffix}: requested {requested}, "
            f"remaining {remaining} of {capacity}, difference {missing}",
            remedy=f"{'wait for a new block, ' if is_pane else ''}lower `release.rho`, or use longer windows",
        )
        self.requested = requested
        self.remaining = remaining
        self.capacity = capacity
        self.difference = missing
        self.block = block
        self.group = group
        self.window = window
        self.releases: list[Any] = []


def _utc(time_ms: int) -> str:
    """Format a time like `history.utc`, with milliseconds if they are not 0."""
    try:
        when = datetime.fromtimestamp(time_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"
    rest = f".{time_ms % 1000:03d}" if time_ms % 1000 else ""
    return f"{when:%Y-%m-%d %H:%M:%S}{rest} UTC"


def extra_missing(extra: str) -> str:
    """Return the command that installs an extra of this package, from the place where the package came from."""
    return f"{shlex.quote(sys.executable)} -m pip install {shlex.quote(f'{_origin()}[{extra}]')}"


def missing_package(package: str, extra: str, key: str) -> ConfigError:
    """Return the error for a setting that needs a package which is not installed."""
    return ConfigError(f"needs the package {package}", key, remedy=extra_missing(extra))


@contextmanager
def needs_package(package: str, extra: str, key: str) -> Iterator[None]:
    """Turn a failed import in the block into the error that names the extra which brings the package."""
    try:
        yield
    except ImportError:
        raise missing_package(package, extra, key) from None


def _origin() -> str:
    """Return the checkout or the file that this package was installed from, else its name."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    checkout = Path(__file__).parents[1]
    if (checkout / "pyproject.toml").is_file():
        return str(checkout)
    try:
        document = distribution("fcstream").read_text("direct_url.json")
        path = unquote(urlsplit(json.loads(document or "{}").get("url", "")).path)
    except (PackageNotFoundError, OSError, ValueError):
        return "fcstream"
    return path if path and Path(path).exists() else "fcstream"
