"""Match of two tuples of lattice points, decided in full for 64 tuples at once.

Tuples lie in tiles as in `tuples`. match(X, Y) holds if every point, of either tuple, has a nearest point in the other
one; if that point is so much nearer than the second nearest that p * D1 < q * D2 for the squared distances (gamma**2 =
q / p); and if the choices are mutual. For gamma <= 1 this is the same as the definition with a permutation.

Coordinates are at most 2**40 in size: differences are exact, a float64 sum of d squares has a relative error of at most
d * 2**-53 and none below 2**53. Inequalities that this error leaves open are decided in integers modulo 2**64, because
their sides are then known to differ by less than 2**63.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from . import kernel
from .vectors import DOUBLES, HAS_AVX512, WIDTH, Squares, add_bits, load, splat, store, sum_loop

LANES = 64
# Number of vectors of lanes held at once, by the number of registers (AVX-512 or AVX2): against one point, and against
# several points. Two more numbers are kept for each sum.
_ALONE = 8 if HAS_AVX512 else 2
_POINTS, _TOGETHER = (4, 2) if HAS_AVX512 else (2, 1)
_COLUMNS = 4 if HAS_AVX512 else 1


def _judge(builder, low, high, arguments):  # type: ignore[no-untyped-def]
    """Return two bit vectors: where p * low < q * high fails, and where that is in doubt.

    Below 2**52 both sides are exact, above they are compared with a slack.
    """
    vector = low.type
    p, q, eps = (splat(builder, argument) for argument in arguments)
    left, right = builder.fmul(p, low), builder.fmul(q, high)
    exact = builder.fcmp_ordered("<", right, ir.Constant(vector, [2.0**52] * WIDTH))
    slack = builder.select(exact, ir.Constant(vector, [0.0] * WIDTH), builder.fmul(right, eps))
    fails = builder.fcmp_ordered(">=", left, builder.fadd(right, slack))
    return fails, builder.fcmp_ordered(">=", left, builder.fsub(right, slack))


def _minimum(builder, a, b):  # type: ignore[no-untyped-def]
    return builder.select(builder.fcmp_ordered("<", a, b), a, b)


def _two_smallest(builder, value, low, high):  # type: ignore[no-untyped-def]
    """Return the two smallest of low <= high and a further value."""
    smaller = builder.fcmp_ordered("<", value, low)
    between = builder.select(smaller, low, value)
    return builder.select(smaller, value, low), _minimum(builder, between, high), smaller


def _nearest_points(points: int, vectors: int):  # type: ignore[no-untyped-def]
    """Make an intrinsic that compares `points` consecutive points of one tuple with all points of some lanes' tuples.

    Arguments: tuples (m, k * d) float64, row, i, k, d, tiles, tile, first lane, distances (k * k, LANES),
    nearest (k, LANES), p, q, eps, radius2. Fills distances[(i + n) * k + j] and nearest[i + n], the smallest of them;
    returns the lanes where p * smallest < q * second smallest fails (or smallest > radius2), and where it is in doubt.
    """

    @intrinsic
    def nearest_points(
        typing_context, tuples, row, i, k, d, tiles, tile, start, distances, nearest, p, q, eps, radius2
    ):
        words = types.UniTuple(types.uint64, 2)
        signature = words(tuples, row, i, k, d, tiles, tile, start, distances, nearest, p, q, eps, radius2)

        def codegen(context, builder, signature, arguments):
            i64, vector = ir.IntType(64), DOUBLES
            data = {n: context.make_array(signature.args[n])(context, builder, arguments[n]).data for n in (0, 5, 8, 9)}
            row, i, k, d, tile, start = (arguments[n] for n in (1, 2, 3, 4, 6, 7))
            width = builder.mul(k, d)
            point_at = builder.add(builder.mul(row, width), builder.mul(i, d))
            points_at = [builder.gep(data[0], [builder.add(point_at, builder.mul(d, i64(n)))]) for n in range(points)]

            def place(line, v):
                return builder.add(builder.mul(line, i64(LANES)), builder.add(start, i64(v * WIDTH)))

            before = builder.block
            loop, after = builder.append_basic_block("partners"), builder.append_basic_block("ranked")
            builder.branch(loop)
            builder.position_at_end(loop)
            j = builder.phi(i64)
            phis = [[(builder.phi(vector), builder.phi(vector)) for _ in range(vectors)] for _ in range(points)]
            lane_row = builder.add(builder.mul(tile, width), builder.mul(j, d))
            tile_at = builder.gep(data[5], [builder.mul(lane_row, i64(LANES))])
            totals = sum_loop(builder, points_at, tile_at, d, start, vectors, Squares(), LANES)
            ranked = []
            for n in range(points):
                line = builder.add(builder.mul(builder.add(i, i64(n)), k), j)
                for v in range(vectors):
                    store(builder, totals[n][v], data[8], place(line, v))
                ranked.append([_two_smallest(builder, totals[n][v], *phis[n][v])[:2] for v in range(vectors)])
            following = builder.add(j, i64(1))
            j.add_incoming(i64(0), before)
            j.add_incoming(following, builder.block)
            for n in range(points):
                for v in range(vectors):
                    for phi, value in zip(phis[n][v], ranked[n][v], strict=True):
                        phi.add_incoming(ir.Constant(vector, [float("inf")] * WIDTH), before)
                        phi.add_incoming(value, builder.block)
            builder.cbranch(builder.icmp_signed("<", following, k), loop, after)
            builder.position_at_end(after)
            failed, doubted, beyond = i64(0), i64(0), splat(builder, arguments[13])
            for n in range(points):
                for v in range(vectors):
                    low, high = ranked[n][v]
                    store(builder, low, data[9], place(builder.add(i, i64(n)), v))
                    fails, doubts = _judge(builder, low, high, arguments[10:13])
                    fails = builder.or_(fails, builder.fcmp_ordered(">", low, beyond))
                    shift = builder.add(start, i64(v * WIDTH))
                    failed, doubted = (
                        add_bits(builder, failed, fails, shift),
                        add_bits(builder, doubted, doubts, shift),
                    )
            return context.make_tuple(builder, signature.return_type, [failed, doubted])

        return signature, codegen

    return nearest_points


@intrinsic
def _nearest_partners(typing_context, distances, nearest, j, k, start, p, q, eps):
    """Test point j of the tuples in _COLUMNS vectors of lanes, from distances and nearest as `_nearest_points` filled
    them.

    Returns three words: the lanes where p * smallest < q * second smallest fails, or is in doubt, and those where the
    point nearest to j has a nearer partner.
    """
    words = types.UniTuple(types.uint64, 3)
    signature = words(distances, nearest, j, k, start, p, q, eps)

    def codegen(context, builder, signature, arguments):
        i64, vector = ir.IntType(64), DOUBLES
        data = [context.make_array(signature.args[n])(context, builder, arguments[n]).data for n in (0, 1)]
        j, k, start = arguments[2], arguments[3], arguments[4]

        def cell(array, line, v):
            lane = builder.add(start, i64(v * WIDTH))
            return load(builder, data[array], builder.add(builder.mul(line, i64(LANES)), lane))

        before = builder.block
        loop, after = builder.append_basic_block("points"), builder.append_basic_block("ranked")
        builder.branch(loop)
        builder.position_at_end(loop)
        i = builder.phi(i64)
        phis = [[builder.phi(vector) for _ in range(3)] for _ in range(_COLUMNS)]
        ranked = []
        for v in range(_COLUMNS):
            value = cell(0, builder.add(builder.mul(i, k), j), v)
            low, high, smaller = _two_smallest(builder, value, phis[v][0], phis[v][1])
            ranked.append((low, high, builder.select(smaller, cell(1, i, v), phis[v][2])))
        following = builder.add(i, i64(1))
        i.add_incoming(i64(0), before)
        i.add_incoming(following, loop)
        for v in range(_COLUMNS):
            for phi, value in zip(phis[v], ranked[v], strict=True):
                phi.add_incoming(ir.Constant(vector, [float("inf")] * WIDTH), before)
                phi.add_incoming(value, loop)
        builder.cbranch(builder.icmp_signed("<", following, k), loop, after)
        builder.position_at_end(after)
        found = [i64(0), i64(0), i64(0)]
        for v in range(_COLUMNS):
            low, high, best = ranked[v]
            bits = *_judge(builder, low, high, arguments[5:8]), builder.fcmp_ordered(">", low, best)
            shift = builder.add(start, i64(v * WIDTH))
            found = [add_bits(builder, word, some, shift) for word, some in zip(found, bits, strict=True)]
        return context.make_tuple(builder, signature.return_type, found)

    return signature, codegen


_nearest_alone = _nearest_points(1, _ALONE)
_nearest_together = _nearest_points(_POINTS, _TOGETHER)


@kernel
def _less(a, a_rest, p, b, b_rest, q, eps):
    """Return whether p * a < q * b for integers a, b: given as floats with a relative error, and as values modulo
    2**64.
    """
    left, right = np.float64(p) * a, np.float64(q) * b
    if left * (1.0 + eps) < right:
        return True
    if left > right * (1.0 + eps):
        return False
    return np.int64(q * b_rest - p * a_rest) > 0


@kernel
def _match_exactly(x, tile, lane, k, p, q, eps):
    """Decide the match of a flat tuple and one lane in exact integers. p = denominator**2, q = numerator**2, uint64."""
    d = len(x) // k
    value = np.empty((k, k), np.float64)
    rest = np.zeros((k, k), np.uint64)
    for i in range(k):
        for j in range(k):
            total = 0.0
            for c in range(d):
                diff = x[i * d + c] - tile[j * d + c, lane]
                total += diff * diff
                whole = np.uint64(np.int64(diff))
                rest[i, j] += whole * whole
            value[i, j] = total
    one = np.uint64(1)
    for i in range(k):
        n = 0
        for j in range(1, k):
            if _less(value[i, j], rest[i, j], one, value[i, n], rest[i, n], one, eps):
                n = j
        for j in range(k):
            if j != n and not _less(value[i, n], rest[i, n], p, value[i, j], rest[i, j], q, eps):
                return False
            if j != i and not _less(value[i, n], rest[i, n], p, value[j, n], rest[j, n], q, eps):
                return False
    return True


@kernel
def _some(word, start, vectors):
    """Return whether any lane of some vectors is wanted."""
    return (word >> np.uint64(start)) << np.uint64(LANES - vectors * WIDTH) != 0


@kernel
def _match_lanes(tuples, row, tiles, tile, k, wanted, p, q, eps, radius2, distances, nearest):
    """Find which of the wanted lanes of a tile match a row, and which floats cannot decide: two words of bits.

    A match needs: every point, of either tuple, has one partner that is near enough, and the choices are mutual.
    distances (k * k, LANES) and nearest (k, LANES) are overwritten.
    """
    d = tuples.shape[1] // k
    doubts, lonely = np.uint64(0), np.uint64(0)
    # first the first point alone, which decides most tuples that do not match
    for i in range(k if k <= _POINTS else 1):
        for start in range(0, LANES, _ALONE * WIDTH):
            if _some(wanted, start, _ALONE):
                fails, doubt = _nearest_alone(
                    tuples, row, i, k, d, tiles, tile, start, distances, nearest, p, q, eps, radius2
                )
                wanted, doubts = wanted & ~fails, doubts | doubt
    for start in range(0, LANES, _TOGETHER * WIDTH):
        i = 1 if k > _POINTS else k
        while i < k and _some(wanted, start, _TOGETHER):
            i = min(i, k - _POINTS)  # the last group may overlap the one before
            fails, doubt = _nearest_together(
                tuples, row, i, k, d, tiles, tile, start, distances, nearest, p, q, eps, radius2
            )
            wanted, doubts = wanted & ~fails, doubts | doubt
            i += _POINTS
    for start in range(0, LANES, _COLUMNS * WIDTH):
        j = 0
        while j < k and _some(wanted, start, _COLUMNS):
            fails, doubt, unreturned = _nearest_partners(distances, nearest, j, k, start, p, q, eps)
            wanted, doubts, lonely = wanted & ~fails, doubts | doubt, lonely | unreturned
            j += 1
    return wanted & ~doubts & ~lonely, wanted & doubts


@kernel
def match(tuples, tiles, used, first, k, p, q, eps, radius2, undecided, masks):
    """Add the friends among undecided pairs to masks, both (tiles, m) uint64, for tuples (m, k * d) and the first
    `used` lanes.

    Row i is compared with the lanes below first + i only. Friends match with gamma**2 = q / p (uint64), all pairs
    within radius2; eps is the relative slack for sums in float64.
    """
    m = len(tuples)
    distances, nearest = np.empty((k * k, LANES), np.float64), np.empty((k, LANES), np.float64)
    ratio = np.float64(p), np.float64(q)
    for t in range((used + LANES - 1) // LANES):
        for i in range(max(0, t * LANES - first + 1), m):
            if undecided[t, i] == 0:
                continue
            friends, doubtful = _match_lanes(
                tuples, i, tiles, t, k, undecided[t, i], ratio[0], ratio[1], eps, radius2, distances, nearest
            )
            for lane in range(LANES if doubtful != 0 else 0):
                bit = np.uint64(1) << np.uint64(lane)
                if doubtful & bit and _match_exactly(tuples[i], tiles[t], lane, k, p, q, eps):
                    friends |= bit
            masks[t, i] |= friends
