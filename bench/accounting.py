"""What accounting costs, and what it promises: time per charge, and how often bounds on the realized loss fail.

    python bench/accounting.py [filter] [odometer] [sqlite] [postgresql]

filter      a million charges through `PrivacyFilter`: the last thousand beside the first, and beside OpenDP's filter
            after 1,000 and 10,000 releases (needs the `bench` extra; its own process, about two minutes); then what
            either does after a request over the budget. OpenDP's releases draw noise, so its bare mechanism is taken
            off; what is left still includes the call from Python into its library. Its filter derives each cost from
            the mechanism; ours takes the caller's word.
odometer    2,000 simulated Gaussian streams: how many ever pass each bound on the realized loss at a failure of 5 %.
sqlite      one durable window (charge, seal, acknowledge) beside the disk's own fsync, turn by turn.
postgresql  8 processes charging one block, alone and with seals and acknowledgments, beside 8 processes that update one
            row of the same server, turn by turn: transactions a second
            (needs the `postgresql` extra and a server: FCSTREAM_POSTGRESQL, by default the local one).
"""

from __future__ import annotations

import json
import multiprocessing
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np
from kernels import machine

from fcstream.accounting.filters import AdvancedDPFilter, PrivacyFilter, PrivacyOdometer
from fcstream.accounting.losses import DPLoss, Loss, PrivacyLoss, epsilon_simple
from fcstream.errors import BudgetExhausted
from fcstream.ledgers import Ledger, open_ledger
from fcstream.ledgers.base import STREAM_BLOCK, Request, SealedRelease, Terms, WindowKey
from fcstream.ledgers.sqlite.ledger import SQLiteLedger

RUNS = 7
BLOCK = 1000
CHARGES = 1_000_000
RELEASES = (1_000, 10_000)


def micro(seconds: float) -> str:
    return f"{1e6 * seconds:,.2f} us"


# -- filter --------------------------------------------------------------------------------------------------------


def block_times(make: Callable[[], PrivacyFilter | AdvancedDPFilter], loss: Loss, charges: int) -> np.ndarray:
    """Seconds per charge in each block, of every run: (RUNS, blocks)."""
    times = np.empty((RUNS, charges // BLOCK))
    for run in times:
        spend = make().spend
        for block in range(len(run)):
            started = time.perf_counter()
            for _ in range(BLOCK):
                spend(loss)
            run[block] = (time.perf_counter() - started) / BLOCK
    return times


def filters() -> None:
    loss, capacity = PrivacyLoss.charge("1e-6", "1e-12"), PrivacyLoss.cap("1", "1e-6")  # exactly a million fit
    block_times(lambda: PrivacyFilter(capacity), loss, 20 * BLOCK)  # the interpreter settles
    times = block_times(lambda: PrivacyFilter(capacity), loss, CHARGES)
    first, last = np.median(times[:, :10]), np.median(times[:, -10:])
    print(f"PrivacyFilter, {CHARGES:,} charges, medians of {RUNS} runs:")
    print(
        f"  a charge of the first thousand {micro(np.median(times[:, 0]))}, "
        f"of the last {micro(np.median(times[:, -1]))}"
    )
    print(f"  the first and last ten thousand {micro(first)} and {micro(last)}: {last / first:.2f} x; must 1.5 x")
    rates = 1 / times.mean(axis=1)
    print(f"  {np.median(rates):,.0f} charges/s ({rates.min():,.0f} to {rates.max():,.0f}); must 100,000")
    advanced = block_times(
        lambda: AdvancedDPFilter(DPLoss.cap("1", "2e-6"), "1e-6"), DPLoss.charge("1e-5", "1e-12"), CHARGES // 10
    )
    print(f"  AdvancedDPFilter: {1 / np.median(advanced):,.0f} charges/s")
    theirs = opendp()
    if theirs is None:
        print("  OpenDP is not installed (the extra 'bench'): no comparison")
    else:
        beside(theirs, times)
    after_a_refusal(theirs)


def beside(theirs: dict, times: np.ndarray) -> None:
    print(f"OpenDP {theirs['version']}, one release of an integer; without the filter {micro(theirs['bare'])}:")
    for count, seconds in zip(RELEASES, theirs["filtered"], strict=True):
        mine = float(np.median(times[:, count // BLOCK]))
        cost = seconds - theirs["bare"]
        print(
            f"  after {count:6,} releases {micro(seconds)}, of which the filter {micro(cost)}; "
            f"PrivacyFilter {micro(mine)}: {cost / mine:,.0f} x"
        )


def after_a_refusal(theirs: dict | None) -> None:
    print("after a request over the budget, a request that fits:")
    budget = PrivacyFilter(PrivacyLoss.cap("1"))
    budget.spend(PrivacyLoss.charge("0.5"))
    try:
        budget.spend(PrivacyLoss.charge("0.75"))
    except BudgetExhausted as refused:
        print(f"  PrivacyFilter: {refused}")
    budget.spend(PrivacyLoss.charge("0.25"))
    print(f"    then takes 0.25: spent {budget.spent}, remaining {budget.remaining}")
    if theirs is not None:
        print(f"  OpenDP: {theirs['refusal']}")
        print(f"    then {theirs['after']}; privacy_loss: {theirs['loss']}")


OPENDP = """
import json, statistics, sys, time
from importlib.metadata import version
import opendp.prelude as dp
dp.enable_features("contrib")
space = dp.atom_domain(T=int), dp.absolute_distance(T=int)
release = dp.m.make_gaussian(*space, scale=1e4)  # rho 5e-9
odometer = dp.c.make_fully_adaptive_composition(*space, output_measure=dp.zero_concentrated_divergence())
queryable = dp.c.make_privacy_filter(odometer, d_in=1, d_out=1.0)(5)

def timed(call, times=101):
    seconds = []
    for _ in range(times):
        started = time.perf_counter(); call(); seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)

def outcome(call):
    try:
        return f"answers {call()}"
    except dp.OpenDPException as error:
        return " ".join(str(error).split())

for _ in range(200):
    release(5)
bare, done, filtered = timed(lambda: release(5), 1001), 0, []
for count in map(int, sys.argv[1:]):
    while done < count:
        queryable(release)
        done += 1
    filtered.append(timed(lambda: queryable(release)))
    done += 101
refusal = outcome(lambda: queryable(dp.m.make_gaussian(*space, scale=0.1)))
after, loss = outcome(lambda: queryable(release)), outcome(lambda: queryable.privacy_loss(1))
print(json.dumps({"version": version("opendp"), "bare": bare, "filtered": filtered,
                  "refusal": refusal, "after": after, "loss": loss}))
"""


def opendp() -> dict | None:
    """What OpenDP's filter does, measured in a process of its own."""
    done = subprocess.run([sys.executable, "-c", OPENDP, *map(str, RELEASES)], capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else None


# -- odometer ------------------------------------------------------------------------------------------------------

STREAMS, STEPS, FAILURE = 2000, 400, 0.05


def streams(rule: Callable[[int, np.ndarray], np.ndarray], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Sums of rho and realized losses, (STEPS, STREAMS), of Gaussian releases; `rule` sets the next rho (nano)."""
    rng = np.random.default_rng(seed)
    rho, loss = np.zeros((STEPS + 1, STREAMS), np.int64), np.zeros((STEPS + 1, STREAMS))
    for step in range(STEPS):
        nano = rule(step, loss[step] - rho[step] / 1e9)
        rho[step + 1] = rho[step] + nano
        loss[step + 1] = loss[step] + nano / 1e9 + np.sqrt(2e-9 * nano) * rng.standard_normal(STREAMS)
    return rho[1:], loss[1:]


def eager(step: int, excess: np.ndarray) -> np.ndarray:
    """An analyst who asks eight times as much where it went badly."""
    return np.where(excess > 0, 80_000_000, 10_000_000)


def growing(decades: int) -> Callable[[int, np.ndarray], np.ndarray]:
    """Sums of rho that grow evenly by so many decades, the last to 10."""
    sums = np.rint(10.0 ** (10 - decades + decades * np.arange(STEPS + 1) / STEPS)).astype(np.int64)
    return lambda step, excess: np.full(STREAMS, sums[step + 1] - (sums[step] if step else 0))


def realized(form: str) -> Callable[[int], float]:
    return lambda nano: PrivacyOdometer(1.0, PrivacyLoss(nano)).realized_loss_bound(FAILURE, form)


def odometer() -> None:
    bounds: dict[str, Callable[[int], float]] = {
        "mixture": realized("mixture"),
        "ladder": realized("ladder"),
        "naive": lambda nano: epsilon_simple(nano / 1e9, FAILURE),
    }
    spread = 2 * (FAILURE * (1 - FAILURE) / STREAMS) ** 0.5
    print(
        f"streams whose realized loss ever passes the bound at a failure of {FAILURE:.0%} (two deviations {spread:.1%})"
    )
    print(f"{'':28s}" + "".join(f"{name:>10s}" for name in bounds))
    rules = {"eager analyst": eager, **{f"rho over {k} decades": growing(k) for k in (1, 3, 6)}}
    for seed, (name, rule) in enumerate(rules.items()):
        rho, loss = streams(rule, seed)
        levels, at = np.unique(rho, return_inverse=True)
        row = f"  {name:26s}"
        for bound in bounds.values():
            table = np.array([bound(int(level)) for level in levels])
            row += f"{(loss > table[at.reshape(rho.shape)]).any(axis=0).mean():10.1%}"
        print(row)
    print("  mixture and ladder must be at most 5 % and the deviations; naive is epsilon of the sum so far: no bound")


# -- ledgers -------------------------------------------------------------------------------------------------------

BODY = b"x" * 600  # about a release
LOSS = PrivacyLoss.charge("1e-6", "1e-15")
PROCESSES = 8
WARM = 20  # turns of each process before the clock starts


def terms(unit: str) -> Terms:
    return Terms("bench", unit, PrivacyLoss.cap("1", "1e-6"), "bench")


def one_window(ledger: Ledger, index: int, block: str) -> None:
    key = WindowKey(index, index + 1)
    assert ledger.charge([Request(key, LOSS, (block,))])[0].charge is not None
    ledger.seal([SealedRelease(key, BODY)])
    ledger.acknowledge([key])


def sqlite(windows: int = 60, turns: int = 11) -> None:
    """Charge and seal are one fsync of the log each; more (checkpoints) shows as a lower ratio."""
    ratios, times = [], []
    with tempfile.TemporaryDirectory(dir=os.environ.get("FCSTREAM_BENCH_DIR")) as folder:
        ledger = SQLiteLedger(os.path.join(folder, "ledger.db"), terms("event"))
        bare = os.open(os.path.join(folder, "bare"), os.O_WRONLY | os.O_CREAT)
        for turn in range(turns):
            started = time.perf_counter()
            for i in range(windows):
                one_window(ledger, turn * windows + i, str(turn * windows + i))
            ours = (time.perf_counter() - started) / windows
            started = time.perf_counter()
            for i in range(2 * windows):
                os.pwrite(bare, b"x" * 4096, 4096 * (turn * 2 * windows + i))
                os.fdatasync(bare)
            floor = (time.perf_counter() - started) / windows
            ratios.append(floor / ours)
            times.append(ours)
        ledger.close()
        os.close(bare)
    print(
        f"one window {1e3 * np.median(times):.2f} ms; two fsyncs of 4 kB take {np.median(ratios):.2f} of it "
        f"({np.min(ratios):.2f} to {np.max(ratios):.2f}); must be 0.80"
    )


def _charger(url: str, number: int, count: int, is_whole: bool, gate: object) -> None:
    ledger = open_ledger(url, terms("stream"))
    body = bytes(400)
    for i in range(-WARM, count):
        if i == 0:
            gate.wait()  # type: ignore[attr-defined]
        key = WindowKey(number * 10**6 + i, number * 10**6 + i + 1)
        assert ledger.charge([Request(key, LOSS, (STREAM_BLOCK,))])[0].charge is not None
        if is_whole:
            ledger.seal([SealedRelease(key, body)])
            ledger.acknowledge([key])
    gate.wait()  # type: ignore[attr-defined]
    ledger.close()


def _updater(dsn: str, table: str, count: int, gate: object) -> None:
    import psycopg

    with psycopg.connect(dsn, autocommit=True) as db:
        for i in range(-WARM, count):
            if i == 0:
                gate.wait()  # type: ignore[attr-defined]
            db.execute(f"UPDATE {table} SET n = n + 1")
        gate.wait()  # type: ignore[attr-defined]


def _race(target: Callable[..., None], arguments: list[tuple[object, ...]]) -> float:
    """Seconds from when all processes are warm to when the last is done."""
    context = multiprocessing.get_context("spawn")
    gate = context.Barrier(len(arguments) + 1)
    processes = [context.Process(target=target, args=(*given, gate)) for given in arguments]
    for process in processes:
        process.start()
    gate.wait()
    started = time.perf_counter()
    gate.wait()
    seconds = time.perf_counter() - started
    for process in processes:
        process.join()
        assert process.exitcode == 0
    return seconds


def postgresql() -> None:
    import psycopg

    url, count, rates = os.environ.get("FCSTREAM_POSTGRESQL", "postgresql://127.0.0.1:5432/test"), 300, []
    dsn = url.partition("?")[0]
    name = f"bench_{secrets.token_hex(4)}"
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute(f"CREATE TABLE {name} (n bigint)")
        db.execute(f"INSERT INTO {name} VALUES (0)")
        try:
            for turn in range(5):
                schema = f"{name}_{turn}"
                place = f"{url}{'&' if '?' in url else '?'}schema={schema}"
                open_ledger(place, terms("stream")).close()
                bare = _race(_updater, [(dsn, name, count)] * PROCESSES)
                charges = _race(_charger, [(place, number, count, False) for number in range(PROCESSES)])
                wholes = _race(
                    _charger, [(place, number, count // 3, True) for number in range(PROCESSES, 2 * PROCESSES)]
                )
                rates.append(PROCESSES * count / np.array([bare, charges, wholes]))
                ledger = open_ledger(place, terms("stream"))
                assert ledger.spent() == LOSS * (PROCESSES * (count + count // 3 + 2 * WARM))
                assert ledger.verify() > PROCESSES * count
                ledger.close()
                db.execute(f"DROP SCHEMA {schema} CASCADE")
        finally:
            db.execute(f"DROP TABLE {name}")
    bare, *ours = np.array(rates).T
    print(f"{PROCESSES} processes, one row, a bare UPDATE: {np.median(bare):,.0f} transactions/s")
    for what, rate in zip(("charges alone", "charge, seal, acknowledge"), ours, strict=True):
        print(
            f"{PROCESSES} processes on one block, {what}: {np.median(rate):,.0f} transactions/s, "
            f"{np.median(rate / bare):.2f} ({np.min(rate / bare):.2f} to {np.max(rate / bare):.2f}) of it; must be 0.50"
        )


SECTIONS = {
    "filter": filters,
    "odometer": odometer,
    "sqlite": sqlite,
    "postgresql": postgresql,
}


def main() -> None:
    wanted = sys.argv[1:] or SECTIONS
    if unknown := set(wanted) - set(SECTIONS):
        sys.exit(f"unknown sections {sorted(unknown)}: choose from {', '.join(SECTIONS)}")
    print(machine())
    for name in wanted:
        print(f"-- {name}")
        SECTIONS[name]()


if __name__ == "__main__":
    main()
