"""The garbage collector is left alone while records pass, and as it was before afterwards."""

import gc

import pytest

from fcstream.runtime.garbage import paused_garbage_collection, without_garbage_collection


def test_it_is_as_before_afterwards():
    usual, frozen = gc.get_threshold(), gc.get_freeze_count()
    with without_garbage_collection():
        assert gc.get_freeze_count() > frozen + 1000  # an interpreter has many more objects
        assert gc.get_threshold()[0] > usual[0]
        assert gc.isenabled()
    assert (gc.get_threshold(), gc.get_freeze_count()) == (usual, 0)


def test_the_last_one_ends_it():
    usual = gc.get_threshold()
    first, second = without_garbage_collection(), without_garbage_collection()
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
    with pytest.raises(KeyError), without_garbage_collection():
        raise KeyError
    assert (gc.get_threshold(), gc.get_freeze_count()) == (usual, 0)


def test_new_garbage_is_found():
    class Cycle:
        def __init__(self):
            self.self = self

    with without_garbage_collection():
        Cycle()
        assert gc.collect() >= 1


def test_a_pause_ends_with_the_last_one():
    first, second = paused_garbage_collection(), paused_garbage_collection()
    first.__enter__()
    second.__enter__()
    assert not gc.isenabled()
    first.__exit__(None, None, None)
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()
    with pytest.raises(KeyError), paused_garbage_collection():
        raise KeyError
    assert gc.isenabled()


def test_who_collects_by_hand_goes_on_to_do_so():
    gc.disable()
    try:
        with paused_garbage_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
