"""The counting kernels, on every path: a fuzz at the boundary, known traps, and what must change no bit."""

import hashlib
import os
import shutil
import subprocess
import sys
import threading
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from support import naive
from support.helpers import exact_counts

import fcstream
from fcstream._kernels import blocks
from fcstream.counting import exact, tiles
from fcstream.counting import threads as pool
from fcstream.counting.exact import FriendCounts
from fcstream.counting.prefixes import first_words

FUZZ_SECONDS = float(os.environ.get("FCSTREAM_FUZZ_SECONDS", "4"))


@pytest.fixture(scope="module", autouse=True)
def no_window_is_small():
    """Windows of few points take the way of large ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "_FEW_COORDINATES", 0)
        yield


def count(points, radius_squared, rng=None, pieces=1):
    counter = FriendCounts(points.shape[1], radius_squared)
    cuts = [] if rng is None else sorted(rng.integers(0, len(points) + 1, pieces - 1).tolist())
    for part in np.split(points, cuts):
        counter.add(0, part)
    return counter.view([0]).in_order()


def small_stages(monkeypatch, rng):
    """Batches, buckets and frames so small that every path is taken with few points."""
    monkeypatch.setattr(exact, "STAGED", int(rng.choice([30, 70, 200, 4096])))
    monkeypatch.setattr(exact, "_MIN_STAGED", 20)
    monkeypatch.setattr(exact, "_FEW", int(rng.choice([1, 20, 128])))
    monkeypatch.setattr(exact, "_FEW_COORDINATES", int(rng.choice([0, 2**14, 2**22])))
    monkeypatch.setattr(exact, "_PANE_NS", float(rng.choice([0, 5e4, 1e9])))
    monkeypatch.setattr(exact, "_APART", int(rng.choice([1, 16])))
    monkeypatch.setattr(exact, "_BATCHES", int(rng.choice([1, 4, 2**40])))
    monkeypatch.setattr(tiles, "_POINTS_PER_BUCKET", int(rng.choice([4, 16, 256])))
    monkeypatch.setattr(tiles, "_COMING_PER_BUCKET", 1)
    monkeypatch.setattr(tiles, "first_words", lambda points, *_: int(rng.integers(1, -(-points.shape[1] // 4) + 1)))


def clouds(rng, n, d):
    """Points of one of many shapes: blobs, outliers, clusters, heavy tails, grids full of ties, a line, duplicates."""
    scale = float(rng.choice([1, 3, 50, 1000, 10**5, 10**7]))
    points = rng.normal(size=(n, d)) * scale
    kind = int(rng.integers(0, 9))
    if kind == 1:
        far = rng.random(n) < 0.3
        points[far] = points[far] * 20 + 50 * scale * rng.normal(size=(int(far.sum()), 1))
    elif kind == 2:
        points += rng.normal(size=(10, d))[rng.integers(0, 10, n)] * 8 * scale
    elif kind == 3:
        points = np.clip(rng.standard_t(1.5, size=(n, d)) * scale, -(2**28), 2**28)
    elif kind == 4:
        points = rng.integers(0, 4, size=(n, d)) * scale
    elif kind == 5:
        points = points[:, :1] * np.ones(d)
    elif kind == 6:
        points[: n // 2] = points[0]
    elif kind == 7:
        points *= rng.random(d) ** 4
    elif kind == 8:
        points[: n // 3] *= np.where(rng.random((n // 3, 1)) < 0.9, 40, 1)  # nearly all far ones come first
    return np.rint(points + rng.normal() * scale * float(rng.choice([0, 10, 1000])))


def boundary_radius(rng, points):
    """A squared radius at, one below or one above the squared distance of some pair; sometimes tiny or huge."""
    i, j = rng.integers(0, len(points), 2)
    found = int(((points[i] - points[j]) ** 2).sum()) + int(rng.integers(-1, 2))
    special = int(rng.integers(0, 12))
    found = 1 if special == 0 else 2**53 - 1 if special == 1 else found
    return min(max(1, found), 2**53 - 1)


@pytest.mark.slow
def test_fuzz_at_the_boundary(monkeypatch):
    seed = int(os.environ.get("FCSTREAM_FUZZ_SEED", time.time_ns() % 2**32))
    rng = np.random.default_rng(seed)
    count(np.zeros((300, 9)), 1)  # compiled before the time counts
    end, cases = time.monotonic() + FUZZ_SECONDS, 0
    while time.monotonic() < end or cases < 5:
        small_stages(monkeypatch, rng)
        d = int(rng.choice([1, 2, 3, 5, 8, 9, 12, 16, 31, 64, 100, 257]))
        n = int(rng.integers(1, 700))
        points = clouds(rng, n, d)
        pool.set_threads(int(rng.integers(1, 4)))
        monkeypatch.setattr(exact, "_ALONE", float(rng.choice([1e3, 1e8])))
        for _ in range(3):
            radius_squared = boundary_radius(rng, points)
            found = count(points, radius_squared, rng, int(rng.integers(1, 9)))
            wrong = np.flatnonzero(found != exact_counts(points, radius_squared))
            assert len(wrong) == 0, f"seed {seed}, case {cases}: {len(wrong)} of {n} counts differ (d={d})"
        cases += 1
    pool.set_threads(None)


@pytest.mark.slow
def test_fuzz_over_sliding_panes(monkeypatch):
    rng = np.random.default_rng(5)
    for _ in range(12):
        small_stages(monkeypatch, rng)
        d, reach = int(rng.choice([1, 2, 9, 20])), int(rng.integers(2, 5))
        everything = clouds(rng, 900, d)
        radius_squared = boundary_radius(rng, everything)
        counter, at = FriendCounts(d, radius_squared, reach), 0
        held = {}
        for pane in range(9):
            for _ in range(int(rng.integers(1, 5))):
                late = max(0, pane - int(rng.integers(0, 2)))
                part = everything[at : at + int(rng.integers(1, 40))]
                at += len(part)
                if late in held or late == pane:
                    counter.add(late, part)
                    held.setdefault(late, []).append(part)
            view = counter.view(range(pane - reach + 1, pane + 1))
            assert (view.counts == exact_counts(view.points(), radius_squared)).all()
            assert view.size == sum(len(p) for k in held for p in held[k] if pane - reach < k <= pane)
            if pane >= reach:
                counter.drop(pane - reach)
                held.pop(pane - reach, None)


def test_panes_with_frames_of_their_own_are_compared(monkeypatch):
    """Data that move far between panes get a new pivot; pairs across are still exact."""
    monkeypatch.setattr(exact, "_FEW", 10)
    monkeypatch.setattr(exact, "_PANE_NS", 0)
    rng = np.random.default_rng(1)
    counter = FriendCounts(10, 400**2 * 20, 2)
    for pane, shift in enumerate([0, 10**6, 10**6 + 300]):
        counter.add(pane, np.rint(rng.normal(size=(300, 10)) * 300) + shift)
        view = counter.view([pane - 1, pane])
        assert (view.counts == exact_counts(view.points(), 400**2 * 20)).all()
    frames = [[segment.frame for segment in counter._panes[pane].segments] for pane in range(3)]
    assert frames[0][0] is not frames[1][0]
    assert frames[1] == frames[2]


def test_trap_equal_codes_are_not_friends_below_the_scale():
    """A radius far below the 8-bit scale: points of one code may be strangers."""
    rng = np.random.default_rng(0)
    points = np.rint(rng.normal(size=(400, 16)) * 10**6)
    points[200:] = points[:200] + np.rint(rng.normal(size=(200, 16)) * 20)
    radius_squared = int(((points[200] - points[0]) ** 2).sum())
    assert (count(points, radius_squared) == exact_counts(points, radius_squared)).all()


@pytest.mark.parametrize("n", [129, 130, 133, 135, 136, 137, 160, 161])
def test_trap_padding_is_neutral_on_both_sides(n):
    """Free lanes and neutral rows are nobody's friends, whatever the radius and wherever the points lie."""
    points = np.rint(np.random.default_rng(n).normal(size=(n, 12)) * 100)
    for radius_squared in (1, 12 * 100**2, 2**53 - 1):
        assert (count(points, radius_squared) == exact_counts(points, radius_squared)).all()


@pytest.mark.parametrize("radius_squared", [2**40, 2**50, 2**53 - 1])
def test_trap_a_radius_far_above_the_spread_does_not_wrap(radius_squared):
    points = np.rint(np.random.default_rng(0).normal(size=(300, 40)) * 2)
    assert count(points, radius_squared).tolist() == [300] * 300


@pytest.mark.slow
def test_trap_outliers_do_not_spoil_the_scale():
    rng = np.random.default_rng(0)
    points = np.rint(rng.normal(size=(3000, 24)) * 1000)
    points[::40] *= 10**5
    counter = FriendCounts(24, 2 * 24 * 1700**2)
    counter.add(0, points)
    view = counter.view([0])
    assert (view.in_order() == exact_counts(points, 2 * 24 * 1700**2)).all()
    if blocks.SCREENS:
        screened, undecided = counter._state[:2]
        assert screened > 0
        assert undecided < 0.2 * screened


@pytest.mark.parametrize("words", [1, 7, 17, 18])
@pytest.mark.parametrize("order", [1, -1])
def test_the_first_coordinates_decide_pairs_as_all_do(words, order, monkeypatch):
    """However many are looked at first, and wherever the large coordinates stand."""
    monkeypatch.setattr(tiles, "first_words", lambda *_: words)
    rng = np.random.default_rng(words)
    points = np.rint(rng.normal(size=(700, 70)) * 1000 * 0.95 ** np.arange(70)[::order])
    points[::3] += 2500
    for share in (0.5, 1.0, 1.5):
        radius_squared = int(share * np.median(((points[1:] - points[:-1]) ** 2).sum(axis=1)))
        assert (count(points, radius_squared, rng, 3) == exact_counts(points, radius_squared)).all()


def test_the_first_coordinates_decide_most_pairs_of_a_blob():
    if not blocks.SCREENS:
        pytest.skip("this processor has no 8-bit dot products")
    points = np.rint(np.random.default_rng(0).normal(size=(1500, 128)) * 1000)
    counter = FriendCounts(128, 500 * 1000**2)
    counter.add(0, points)
    assert (counter.view([0]).in_order() == 1500).all()
    tested, decided = counter._state[4:]
    assert decided > tested / 2 > 100


def test_how_many_coordinates_are_looked_at_first():
    """Few if all points are friends or none are; all if pairs lie about at the radius."""
    rng = np.random.default_rng(0)
    blob = rng.normal(size=(1000, 200)) * 1000
    middle, scale = np.zeros(200), 5000 / 127

    def chosen(points, radius):
        return first_words(points, middle, radius, scale)

    assert chosen(blob, 1000 * (2 * 200) ** 0.5) == 50
    assert chosen(blob, 1000 * (3 * 200) ** 0.5) < 45
    assert chosen(blob, 1000 * 200**0.5) < 45
    assert chosen(blob, 10**7) == 50  # distances from the pivot decide all pairs
    assert chosen(blob[:100], 1000 * (3 * 200) ** 0.5) == 50


@pytest.mark.slow
def test_trap_largest_codes_in_most_dimensions_do_not_overflow(monkeypatch):
    """Opposite corners of the code cube in 2**14 dimensions: the largest product sums there are."""
    monkeypatch.setattr(tiles, "first_words", lambda *_: 1500)
    d = 2**14
    points = np.ones((140, d))
    points[::2] *= -1
    points *= 1000
    rng = np.random.default_rng(0)
    points[:, ::7] = np.rint(rng.normal(size=(140, len(range(0, d, 7)))) * 300)
    far = int(((points[0] - points[1]) ** 2).sum())
    for radius_squared in (far - 1, far, far // 2):
        assert (count(points, radius_squared) == exact_counts(points, radius_squared)).all()


@pytest.mark.slow
def test_trap_ties_do_not_depend_on_batches():
    """Where matrix products change hundreds of counts with the size of a block, ours change none."""
    points = np.random.default_rng(0).integers(0, 3, size=(2500, 64)).astype(np.float64)
    radius_squared = 85
    whole = count(points, radius_squared)
    rng = np.random.default_rng(1)
    for pieces in (2, 7, 300):
        assert (count(points, radius_squared, rng, pieces) == whole).all()
    assert (whole == exact_counts(points, radius_squared)).all()


def test_hard_data_turn_screening_off(monkeypatch):
    """Where codes decide nothing, only every 16th tile is tried again."""
    if not blocks.SCREENS:
        pytest.skip("this processor has no 8-bit dot products")
    points = np.random.default_rng(0).integers(0, 2, size=(6000, 9)).astype(np.float64) * 10**6
    points += np.random.default_rng(1).integers(-9, 9, size=points.shape)
    counter = FriendCounts(9, 4 * 10**12)
    counter.add(0, points)
    counter.view([0])
    screened = int(counter._state[0]) * tiles.LANES // 4 * 8
    assert screened < 0.3 * int(counter._state[2])


PROGRAM = """
import hashlib
import numpy as np
from fcstream.counting import exact
from fcstream._kernels import blocks, moments
from fcstream.counting.exact import FriendCounts
exact.may_screen = lambda dimension: dimension >= 12  # by slow products where there are no fast ones
digest = hashlib.sha256()
for d in (1, 2, 7, 16, 70):
    points = np.random.default_rng(d).integers(-40, 40, size=(1500, d)).astype(float)
    counter = FriendCounts(d, 1100 * d)
    counter.add(0, points)
    digest.update(counter.view([0]).in_order().tobytes())
codes, sums = np.random.default_rng(0).integers(-(2**13), 2**13, (8, 96)).astype(np.int16), np.zeros((8, 8), np.int64)
moments.add_products(codes, sums)
digest.update(np.tril(sums).tobytes())
print(blocks.SCREENS, digest.hexdigest())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "target", [{"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx2,+fma"}, {"NUMBA_CPU_NAME": "generic"}]
)
def test_every_instruction_set_gives_the_same_bits(target, tmp_path):
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        pytest.skip("compares x86-64 targets")
    environment = os.environ | target | {"NUMBA_CACHE_DIR": str(tmp_path)}
    there = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    digest = hashlib.sha256()
    for d in (1, 2, 7, 16, 70):
        points = np.random.default_rng(d).integers(-40, 40, size=(1500, d)).astype(float)
        digest.update(count(points, 1100 * d).tobytes())
    codes = np.random.default_rng(0).integers(-(2**13), 2**13, (8, 96)).astype(np.int16).astype(np.int64)
    digest.update(np.tril(codes @ codes.T).tobytes())
    assert there.stdout.split() == ["False", digest.hexdigest()]


def test_threads_change_no_bit(monkeypatch):
    points = clouds(np.random.default_rng(3), 3000, 12)
    radius_squared = boundary_radius(np.random.default_rng(4), points)
    one = count(points, radius_squared)
    monkeypatch.setattr(exact, "_ALONE", 1e3)
    monkeypatch.setattr(exact, "STAGED", 500)
    for threads in (2, 5):
        pool.set_threads(threads)
        try:
            assert (count(points, radius_squared) == one).all()
        finally:
            pool.set_threads(None)


def test_counters_of_several_threads_and_a_forked_child(monkeypatch):
    monkeypatch.setattr(exact, "_ALONE", 1e3)
    pool.set_threads(3)
    points = np.rint(np.random.default_rng(3).normal(size=(2000, 10)) * 100)
    expected = exact_counts(points, 200**2 * 5)
    wrong = []

    def work():
        for _ in range(5):
            if (count(points, 200**2 * 5) != expected).any():
                wrong.append(1)

    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        if hasattr(os, "fork"):
            child = os.fork()
            if child == 0:  # pragma: no cover
                os._exit(0 if (count(points, 200**2 * 5) == expected).all() else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        pool.set_threads(None)


def test_a_thread_that_fails_is_heard():
    def fail():
        raise ZeroDivisionError

    pool.set_threads(2)
    try:
        with pytest.raises(ZeroDivisionError):
            pool.run([lambda: None, fail])
        with pytest.raises(ZeroDivisionError):
            pool.run([fail, lambda: None])
    finally:
        pool.set_threads(None)


def test_a_pool_that_takes_no_more_is_done_without(monkeypatch):
    """As at the end of the interpreter: everything runs in the caller."""

    class Full:
        def submit(self, task):
            raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    monkeypatch.setattr(pool, "_pool", Full)
    done = []
    pool.run([lambda: done.append(1), lambda: done.append(2), lambda: done.append(3)])
    assert sorted(done) == [1, 2, 3]


@pytest.mark.slow
def test_a_thread_that_outlives_the_main_one_can_count():
    program = """
import threading, time
import numpy as np
from fcstream.counting import exact, threads
exact._ALONE = 1e3
threads.set_threads(3)
def work():
    time.sleep(0.5)
    counter = exact.FriendCounts(3, 100)
    counter.add(0, np.zeros((2000, 3)))
    print(int(counter.view([0]).counts.sum()))
threading.Thread(target=work).start()
"""
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["4000000"]


def test_thread_settings(monkeypatch):
    monkeypatch.setenv("FCSTREAM_THREADS", "7")
    assert pool.threads() == 7
    for bad in ("0", "x", "1025", "-1"):
        monkeypatch.setenv("FCSTREAM_THREADS", bad)
        with pytest.raises(ValueError, match="FCSTREAM_THREADS"):
            pool.threads()
    with pytest.raises(ValueError, match="count"):
        pool.set_threads(0)
    monkeypatch.setenv("FCSTREAM_THREADS", "4")
    with pool.one_thread():
        assert pool.helpers(100) == 0
    assert [pool.helpers(shares) for shares in (0.1, 1.9, 2, 3.5, 100)] == [0, 0, 1, 2, 3]


def test_staged_points_are_bounded_and_counted_by_the_view():
    counter = FriendCounts(50, 100)
    counter.add(0, np.zeros((10, 50)))
    assert 0 not in counter._panes  # waiting
    assert counter.size(0) == 10
    assert counter.panes == [0]
    assert counter.view([0]).counts.tolist() == [10] * 10
    counter.add(0, np.zeros((30_000, 50)))
    waiting = counter._staged[0].size
    assert waiting <= exact.STAGED
    assert counter._panes[0].size + waiting == 30_010 == counter.size(0)
    counter.drop(0)
    assert counter.panes == []
    assert counter.view([0]).size == 0


def test_the_naive_twin_agrees_with_the_integer_twin():
    points = clouds(np.random.default_rng(0), 60, 3)
    radius_squared = boundary_radius(np.random.default_rng(1), points)
    assert exact_counts(points, radius_squared).tolist() == naive.friend_counts(points, radius_squared)


@pytest.mark.slow
def test_a_changed_helper_compiles_the_kernels_that_use_it_anew(tmp_path):
    """And no others; what has not changed is not compiled again in another process."""
    package = tmp_path / "fcstream"
    shutil.copytree(Path(fcstream.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    program = """
import numba.core.event as event
import numpy as np
from fcstream._kernels import bits, lane_counts
compiled = []
class Listener(event.Listener):
    def on_start(self, e): compiled.append(e.data["dispatcher"].py_func.__name__)
    def on_end(self, e): pass
with event.install_listener("numba:compile", Listener()):
    items, tiles = np.arange(9, dtype=np.uint64)[:, None], np.zeros((1, 1, 64), np.uint64)
    lane_counts.store(items, 0, tiles)
    masks = np.zeros((1, 9), np.uint64)
    bits.compare(items, tiles, 9, 0, 1, masks)
print(*compiled, masks[0, 1:].tolist())
"""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)}

    def run():
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
        names, _, found = done.stdout.partition("[")
        return {"store", "compare"} & set(names.split()), found  # Numba compiles functions of its own besides

    first, found = run()
    assert first == {"store", "compare"}
    assert run() == (set(), found)
    helpers = package / "_kernels" / "vectors.py"
    helpers.write_text(helpers.read_text().replace("builder.xor(x, lane)", "builder.or_(x, lane)"))
    changed, other = run()
    assert changed == {"compare"}
    assert other != found
    assert run() == (set(), other)


LOADED = """
from numba.core.dispatcher import Dispatcher
wanted, compile = [], Dispatcher.compile
def noted(self, signature):
    if tuple(signature) not in self.overloads:
        wanted.append(self.py_func.__name__)
    return compile(self, signature)
Dispatcher.compile = noted
"""


@pytest.mark.slow
def test_kinds_without_friends_need_their_noise_only():
    program = """
import fcstream
import numpy as np
fcstream.warm_up("count", "sum", "histogram", "quantiles", "total")
print(*wanted)
wanted.clear()
kinds = {
    "count": {},
    "sum": {},
    "histogram": {"edges": [-1, 0, 1]},
    "quantiles": {"quantiles": [0.5], "delta": 1e-9},
    "total": {"of": "count", "epoch": "20s"},
}
engine = fcstream.Engine({
    "stream": {"name": "s"},
    "lattice": {"step": 0.01},
    "features": [{"name": "a", "min": -1, "max": 1}],
    "window": {"length": "10s", "start": "1970-01-01T00:00:00Z", "end": "1970-01-01T00:00:20Z", "max_records": 2000},
    "release": [{"name": kind, "kind": kind, "rho": 1} | more for kind, more in kinds.items()],
    "budget": {"rho": 100, "delta": 1e-3},
    "ledger": {"url": "memory:"},
})
engine.push(np.arange(0, 20000, 10), np.zeros((2000, 1)))
assert [release.status for release in engine.close()] == ["released"] * 10
print(wanted)
"""
    out = subprocess.run([sys.executable, "-c", LOADED + program], capture_output=True, text=True, check=True)
    assert out.stdout.splitlines() == ["discrete_gaussian mix_rows", "[]"]


def test_draws_that_need_more_words_need_no_other_compiled_code():
    """Arrays that may be written to are another type, for which Numba would compile a kernel anew."""
    given = []

    def kernel(words, first, setting, out):
        assert setting == "as it is"
        given.append((words.flags.writeable, first))
        return (2, len(words) - 5, 2) if len(given) == 1 else (3, len(words), 1 if len(given) == 2 else 0)

    out = fcstream.Noise(fcstream.SeededEntropy(1))._fill(
        np.zeros(4, np.int64), 12, kernel, ("as it is",), lambda exact, word, more: int(exact), Fraction(7)
    )
    assert given == [(False, 0), (False, 3), (False, 3)]
    assert out.tolist() == [0, 0, 7, 0]


@pytest.mark.slow
def test_warm_up_compiles_what_a_window_needs():
    """After `warm_up`, a first window of any of the common kinds compiles nothing, and loads nothing from the cache."""
    program = """
import fcstream
import numpy as np
fcstream.warm_up()
assert len(wanted) > 20
wanted.clear()
rows = np.random.default_rng(0).normal(size=(2000, 3))
for method in ("recentered", "friendly"):
    fcstream.private_mean(
        rows, radius=9, rho=1, delta=1e-8, size_hint=2000, step=1e-3, bounds=(-9, 9), method=method
    )
fcstream.friend_counts(np.zeros((300, 40)), 1.0, step=0.1)
fcstream.private_synthetic(np.arange(8000).reshape(-1, 4) % 2, rho=1, levels=[2, 3, 5, 2])
two = np.repeat([[-0.5, 0.0], [0.5, 0.0]], 1000, axis=0)
same = {"rho": 4, "delta": 1e-6, "size_hint": 2000, "step": 1e-4, "oracle": "scipy"}
for radius in ("histogram", "search", 0.1):
    fcstream.private_centers(two, 2, ball=1, radius=radius, method="friendly", **same)
fcstream.private_centers(two, 2, ball=1, method="ktuples", **same)
fcstream.private_mixture(two, 2, ball=1, spread=0.1, **same)
print(wanted)
"""
    out = subprocess.run([sys.executable, "-c", LOADED + program], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["[]"]
