"""Which records answers are about, against a twin that tries every record there is."""

import itertools

import numpy as np
import pytest

from fcstream.stream.selection import MAX_CELLS, Condition, RecordSelection, Rows, overlaps


def naive_overlaps(rows, coordinates):
    """The largest sets of choices that some record of a small lattice fulfills."""
    found = set()
    for record in itertools.product(*coordinates):
        point = np.array([record], float)
        mine = frozenset(i for i, each in enumerate(rows) if each.mark(point) is None or each.mark(point).all())
        found.add(mine)
    return tuple(sorted(tuple(sorted(each)) for each in found if not any(each < other for other in found)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_overlaps_are_those_of_all_records(seed):
    draw = np.random.default_rng(seed)

    def condition(column):
        if column == 0:
            codes = draw.choice(4, draw.integers(1, 4), replace=False)
            return Condition(0, tuple((float(code), float(code)) for code in sorted(codes)))
        low = int(draw.integers(-3, 8))
        return Condition(column, ((float(low), float(low + draw.integers(0, 5))),))

    rows = [
        Rows(tuple(condition(int(c)) for c in np.flatnonzero(draw.random(3) < 0.6))) for _ in range(draw.integers(1, 6))
    ]
    assert overlaps(rows) == naive_overlaps(rows, [range(5), range(-4, 14), range(-4, 14)])


def test_too_many_combinations_count_as_if_all_shared_a_record():
    rows = [Rows(tuple(Condition(column, ((float(i), float(i)),)) for column in range(4))) for i in range(0, 2 * 8, 2)]
    assert MAX_CELLS < (2 * 8 + 1) ** 4
    assert overlaps(rows) == (tuple(range(8)),)


def test_rows_and_columns_are_those_of_plain_indexing():
    points = np.random.default_rng(1).integers(0, 10, (500, 3)).astype(float)
    rows = Rows((Condition(0, ((2.0, 5.0),)), Condition(2, ((1.0, 1.0), (7.0, 7.0), (8.0, 8.0)))))
    wanted = (points[:, 0] >= 2) & (points[:, 0] <= 5) & np.isin(points[:, 2], [1, 7, 8])
    assert (rows.mark(points) == wanted).all()
    assert Rows().mark(points) is None
    chosen = RecordSelection(rows, (2, 0), (3.0, 6.0)).points(points)
    assert (chosen == np.clip(points[:, [2, 0]], 3, 6)).all()
    assert chosen.flags.c_contiguous
