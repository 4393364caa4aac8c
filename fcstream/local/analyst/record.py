"""An analyst's record of queries, in a ledger like a stream's: a query is charged before it is asked, then sealed.

The charge is the most by which the query can raise what the most charged device has spent. The seal refunds what the
query did not use. Its body says what was asked, answered and saved, and for how many rounds every device was charged,
so that each device's spending follows from the ledger.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...accounting.losses import RHO_UNIT, PrivacyLoss
from ...errors import ConfigError, LedgerDamaged, LedgerMismatch, Shown
from ...ledgers.base import DEVICE_BLOCK, Request, SealedRelease, Terms, WindowKey
from ..queries.base import METHODS, Query
from ..queries.base import Answer as Found
from ..queries.confidence import split_budget
from ..queries.elimination import Rounds, Transcript

INNER = ("paid", "left")
"""Keys of a record that only this program needs; commands do not print them."""


def record_of(name: str, query: Query, found: Found, rounds: Rounds) -> dict[str, Any]:
    """What is reported of one query: answer, error bound, devices eliminated by round, cost and savings.

    Keys: ``query``, ``method``, ``component``, ``value``, ``bound`` (None if there is none), ``asked`` (devices),
    ``missing``, ``rounds`` of ``of_rounds``, ``split``, ``eliminated`` (devices, after each round), ``offered_rho`` and
    ``spent_rho`` (mean over devices), ``saving`` (``mean`` and ``quartiles`` over devices of the part of what was
    offered that was not used), ``paid`` (packed: how many rounds every device was charged for).
    """
    transcript = found.transcript
    offered, used = transcript.parts.sum(axis=1), transcript.consumed
    saved = 1 - used[offered > 0] / offered[offered > 0]
    paid = _paid(transcript)
    sorted_out = np.isin(transcript.state, (Transcript.INSIDE, Transcript.OUTSIDE))
    by_round = np.bincount(paid[sorted_out], minlength=transcript.rounds + 1)[1 : transcript.rounds + 1]
    value, bound = found.value, found.bound
    quartiles = np.percentile(saved, (25, 50, 75)) if len(saved) else np.zeros(3)
    return {
        "query": name,
        "method": found.method,
        "component": query.component,
        "value": value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value,
        "bound": float(bound) if bound is not None and np.isfinite(bound) else None,
        "asked": len(used),
        "missing": found.missing,
        "rounds": transcript.rounds,
        "of_rounds": transcript.parts.shape[1],
        "split": rounds.split if METHODS[found.method][1] else "even",
        "eliminated": by_round.tolist(),
        "offered_rho": _mean(offered),
        "spent_rho": _mean(used),
        "saving": {"mean": found.saving, "quartiles": [float(q) for q in quartiles]},
        "paid": base64.b64encode(zlib.compress(paid.astype("<u2").tobytes(), 9)).decode(),
    }


def _mean(nano: NDArray[np.int64]) -> float:
    return float(nano.mean()) / RHO_UNIT if len(nano) else 0.0


def _sums(parts: NDArray[np.int64]) -> NDArray[np.int64]:
    """What the first 0, 1, ..., c rounds cost each device: int64 (n, c + 1)."""
    return np.concatenate([np.zeros((len(parts), 1), np.int64), np.cumsum(parts, axis=1)], axis=1)


def _paid(transcript: Transcript) -> NDArray[np.int64]:
    """For how many rounds each device was charged: a device that is left out once is not asked again."""
    is_reached = _sums(transcript.parts) == transcript.consumed[:, None]
    if not is_reached.any(axis=1).all():
        raise ConfigError("must be charged round by round", "query")
    return np.asarray(is_reached.argmax(axis=1), np.int64)


def used_by(record: dict[str, Any], offered: NDArray[np.int64]) -> NDArray[np.int64]:
    """What a recorded query charged each device, from what each was offered: int64 (n,).

    Raises
    ------
    ValueError, KeyError, TypeError
        The record does not fit these offers.
    """
    paid = np.frombuffer(zlib.decompress(base64.b64decode(record["paid"])), "<u2").astype(np.int64)
    sums = _sums(split_budget(offered, record["of_rounds"], record["split"]))
    if len(paid) != len(offered) or (len(paid) and int(paid.max()) >= sums.shape[1]):
        raise ValueError
    return np.asarray(sums[np.arange(len(paid)), paid])


def digest(remaining: NDArray[np.int64]) -> str:
    return hashlib.sha256(remaining.astype("<i8").tobytes()).hexdigest()


class QueryLedger:
    """The ledger of one series of queries, in a SQLite file that may hold others.

    Parameters
    ----------
    url : str
        ``sqlite:PATH`` or a path.
    series : str
    capacity_nano : int
        Every device's budget, rho in nano units.
    about : dict
        Everything else that is fixed for the series.

    Attributes
    ----------
    records : list of dict
        One for each answered query, in order.
    pending : PrivacyLoss or None
        What was charged for a query that was interrupted before its answer, and is to be asked again.

    Raises
    ------
    LedgerMismatch
        The ledger has another series of that name.
    LedgerInUse, LedgerDamaged, LedgerError
    """

    def __init__(self, url: str, series: str, capacity_nano: int, about: dict[str, Any]) -> None:
        from ...ledgers.sqlite.ledger import SQLiteLedger

        scheme, colon, rest = url.partition(":")
        path = rest if colon else url
        if not path or (colon and scheme != "sqlite"):
            raise ConfigError("must be 'sqlite:PATH'", "ledger.url", got=Shown(f"scheme {scheme!r}"))
        text = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
        terms = Terms(series, "device", PrivacyLoss(capacity_nano), text)
        try:
            self._ledger = SQLiteLedger(path, terms)
        except LedgerMismatch as error:
            raise LedgerMismatch(
                f"{path} belongs to another series: it has other devices, another budget or other "
                "savings, or it is no ledger of queries",
                remedy=f"give this one a name or a ledger of its own ({error})",
            ) from None
        self.path, self._series = path, series
        self.records: list[dict[str, Any]] = []
        self.pending: PrivacyLoss | None = None
        self._window = WindowKey(0, 1)
        for row in self._ledger.rows():
            self._window = WindowKey(row.open_ms, row.close_ms)
            if row.kind == "charge":
                self.pending = PrivacyLoss(row.rho)
            elif row.kind == "seal":
                self.records.append(json.loads(row.body))
                self.pending = None

    def charge(self, loss: PrivacyLoss) -> None:
        """Charge the next query's loss on the most charged device, or find it charged before an interruption.

        Raises
        ------
        BudgetExhausted
            The device has less left.
        LedgerDamaged
            Another loss was charged.
        """
        if self.pending is not None:
            if self.pending != loss:
                raise LedgerDamaged(f"{self.path} reserved {self.pending} for a query that costs up to {loss}")
            return
        now = max(int(time.time() * 1000), self._window.close_ms)
        self._window = WindowKey(now, now + 1)
        result = self._ledger.charge([Request(self._window, loss, (DEVICE_BLOCK,))])[0]
        if result.refusal is not None:
            raise result.refusal
        self.pending = loss

    def seal(self, record: dict[str, Any], left: NDArray[np.int64], refund: PrivacyLoss) -> None:
        """Record the query's final answer, and refund what it did not use."""
        opens, closes = self._window.open_ms, self._window.close_ms
        head = {"stream": self._series, "window_open_ms": opens, "window_close_ms": closes, "status": "released"}
        more = {"remaining_rho": _mean(left), "left": digest(left)}
        whole = {**head, "reason": None, "kind": "devices", **record, **more}
        self._ledger.seal([SealedRelease(self._window, json.dumps(whole).encode(), refund)])
        self.records.append(whole)
        self.pending = None

    def unpublished(self) -> list[dict[str, Any]]:
        """Records that were not acknowledged, in order."""
        return [json.loads(body) for _, body in self._ledger.unacknowledged()]

    def acknowledge(self) -> None:
        """Note that the caller has all records."""
        self._ledger.acknowledge([window for window, _ in self._ledger.unacknowledged()])

    def close(self) -> None:
        """Idempotent."""
        self._ledger.close()
