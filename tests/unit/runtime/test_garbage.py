"""The garbage collector is left alone while records pass, and as it was before afterwards."""

import gc

import pytest

from fcstream.runtime.garbage import set_aside


def test_it_is_as_before_afterwards():
    usual, frozen = gc.get_threshold(), gc.get_freeze_count()
    with set_aside():
        assert gc.get_freeze_count() > frozen + 1000  # an interpreter has many more objects
        assert gc.get_threshold()[0] > usual[0]
        assert gc.isenabled()
    assert (gc.get_threshold(), gc.get_freeze_count()) == (usual, 0)


def test_the_last_one_ends_it():
    usual = gc.get_threshold()
    first, second = set_aside(), set_aside()
    first.__enter__()
    second.__enter__()
    seldom = gc.get_threshold()
    first.__exit__(None, None, None)  # not the one that began last
    assert gc.get_threshold() == seldom != usual
    assert gc.get_freeze_count() > 0
    second.__exit__(None, None, None)
    assert (gc.get_threshold(), gc.get_freeze_count()) == (usual, 0)


def test_errors_end_it():
    usual = gc.get_threshold()
    with pytest.raises(KeyError), set_aside():
        raise KeyError
    assert (gc.get_threshold(), gc.get_freeze_count()) == (usual, 0)


def test_new_garbage_is_found():
    class Cycle:
        def __init__(self):
            self.self = self

    with set_aside():
        Cycle()
        assert gc.collect() >= 1
