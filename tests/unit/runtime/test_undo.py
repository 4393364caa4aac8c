"""A step that fails is undone, and what it failed of is what its caller learns."""

import pytest

from fcstream.runtime.undo import on_error


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_it_is_undone_only_if_it_fails(kind):
    undone = []
    with on_error(undone.append, 1):
        pass
    assert undone == []
    with pytest.raises(kind, match="first"), on_error(undone.append, 2):
        raise kind("first")
    assert undone == [2]


def test_an_undo_that_fails_does_not_hide_the_first_error():
    def fail():
        raise OSError("second")

    with pytest.raises(ValueError, match="first") as raised, on_error(fail):
        raise ValueError("first")
    assert raised.value.__notes__ == ["Undoing it failed too: OSError: second"]


def test_an_interrupt_of_the_undo_is_an_interrupt():
    def fail():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), on_error(fail):
        raise ValueError("first")
