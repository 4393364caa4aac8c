"""One private answer about rows: a mechanism made of options, a charge in memory, one release."""

from __future__ import annotations

from typing import Any

from ..accounting.losses import DPLoss, PrivacyLoss, zcdp_of_dp
from ..counting.rows import RowsView, points_inside, rows_inside
from ..errors import ConfigError, Shown
from ..ledgers import Request, Terms, WindowKey, open_ledger
from ..ledgers.base import STREAM_BLOCK, Charge
from ..noise.samplers import Noise
from ..releases.base import Outcome, ReleaseValues
from ..releases.intervals import with_intervals
from ..releases.means.approximate_dp import paid_by
from ..releases.options import MAX_RHO, BuildContext, Options
from ..releases.shape import SHAPES
from ..releases.statistics.clipped import ClippedCovariance
from ..releases.statistics.learned import build_mechanism
from ..stream.lattice import Grid
from .arguments import GivenRows, check_delta, noise_of, number_of
from .left_out import ArrayRelease, count_left_out


def checked_loss(rho: Any, delta: Any = 0.0) -> PrivacyLoss:
    """Return a loss that a caller may ask for.

    Raises
    ------
    ConfigError
    """
    rho, delta = number_of(rho, "rho"), number_of(delta, "delta")
    if not 0 < rho < MAX_RHO:
        raise ConfigError(f"must be positive and below {MAX_RHO:g}", "rho", got=Shown(f"{rho:g}"))
    check_delta(delta)
    return PrivacyLoss.charge(rho, delta)


def charge_once(loss: PrivacyLoss) -> Charge:
    """Charge the loss to a ledger in memory, which exists only for this one answer."""
    ledger = open_ledger("memory:", Terms("array", "stream", loss, ""))
    charge = ledger.charge([Request(WindowKey(0, 0), loss, (STREAM_BLOCK,))])[0].charge
    assert charge is not None
    return charge


def answer_rows(
    options: Options,
    rows: GivenRows,
    grid: Grid,
    noise: Noise | None,
    *,
    name: str = "points",
    beyond: str = "out_of_range",
    may_be_none: bool = False,
) -> ArrayRelease:
    """Release rows as if they were one window of a stream; rows out of range are left out, for the reason `beyond`.

    Raises
    ------
    UnusableRecords
        None of them is in range.

    Privacy
    -------
    That of the mechanism, which is charged once.

    Source
    ------
    Specification 13.1.
    """
    noise = noise_of(noise)
    mechanism = build_mechanism(options, BuildContext(grid, unit="stream"))
    by_rows = isinstance(mechanism, ClippedCovariance)
    inside = (rows_inside if by_rows else points_inside)(rows.doubles(grid), grid)
    left_out = count_left_out(rows, len(inside), beyond=beyond, name=name, may_be_none=may_be_none)
    if by_rows:
        view: Any = RowsView(inside, grid)
    else:
        counter = mechanism.counter(grid.dimension, 1, noise)
        counter.add(0, inside)
        view = counter.view([0])
    charge = charge_once(mechanism.loss)
    outcome = mechanism.release(view, charge, noise)
    answer, spent = mechanism.to_user_units(outcome, grid), mechanism.loss - charge.unused
    return to_release(mechanism.kind, outcome, answer, spent, mechanism.loss, noise, left_out)


def to_release(
    kind: str,
    outcome: Outcome,
    answer: ReleaseValues,
    spent: PrivacyLoss,
    capacity: PrivacyLoss,
    noise: Noise,
    left_out: dict[str, int],
) -> ArrayRelease:
    """Make the release for an array, with the loss it spent and the capacity, the largest loss it could have spent.

    Privacy
    -------
    Post-processing of an outcome, so it costs nothing.

    Source
    ------
    Specification 12.3.
    """
    answer = with_intervals(SHAPES[kind], answer)
    return ArrayRelease(
        stream="array",
        window_open_ms=0,
        window_close_ms=0,
        status="refused" if outcome.reason else "released",
        reason=outcome.reason,
        kind=kind,
        value=answer.value,
        sigma=answer.sigma,
        count=outcome.count,
        core_count=outcome.core_count,
        rho=spent.rho,
        delta=spent.delta,
        guarantee=capacity.as_dict(),
        spent=spent.as_dict(),
        private=noise.private,
        parts=answer.parts,
        interval=answer.interval,
        left_out=left_out,
    )


def dp_loss(epsilon: Any, delta: Any) -> DPLoss:
    """Return a loss in the (epsilon, delta) paradigm that a caller may ask for.

    Raises
    ------
    ConfigError
    """
    epsilon, delta = number_of(epsilon, "epsilon"), number_of(delta, "delta")
    if not 0 < epsilon < MAX_RHO:
        raise ConfigError(f"must be positive and below {MAX_RHO:g}", "epsilon", got=Shown(f"{epsilon:g}"))
    check_delta(delta)
    return DPLoss.charge(epsilon, delta)


def paying(total: DPLoss) -> PrivacyLoss:
    """Return the largest zCDP loss, with rho a multiple of 1e-9, that pays for at most what was asked for."""

    charged = zcdp_of_dp(total)
    if charged.rho_nano > 0 and not paid_by(charged).fits(total):
        charged = PrivacyLoss(charged.rho_nano - 1, charged.delta_femto)
    if charged.rho_nano == 0:
        raise ConfigError("must be larger: rho has nine decimals", "epsilon", got=Shown(f"{total.epsilon:g}"))
    return charged
