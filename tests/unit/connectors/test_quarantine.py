"""A message at which the process dies is found by the second death, alone, and is no record from then on."""

import os
import random

import pytest

from fcstream.connectors.quarantine import Quarantine
from fcstream.connectors.spool import UNREADABLE, Spool

MIB = 1 << 20


def life(folder, deadly):
    """Read all messages in a process of its own that dies at some; returns what it decoded last, or None if it died."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        spool, found = Spool(folder, MIB), []
        at = spool.position
        while at < spool.end:
            bodies = spool.read(at).bodies[: spool.quarantine.room(at)]
            with spool.quarantine.decoding(at, at + len(bodies)):
                for body in bodies:
                    if body in deadly:
                        os._exit(9)
                    found.append(body)
            at += len(bodies)
        os.write(write, b"\n".join(found))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        found = file.read().split(b"\n")
    return found if os.waitpid(child, 0)[1] == 0 else None


@pytest.mark.parametrize("deadly", [[3], [0], [9], [2, 7], []])
def test_what_kills_twice_is_left_out(tmp_path, deadly):
    bodies = [b"message %d" % i for i in range(10)]
    spool = Spool(tmp_path / "spool", MIB)
    spool.append(bodies[:6])
    spool.append(bodies[6:])
    spool.close()
    poison = {bodies[i] for i in deadly}
    for _ in range(2 * len(deadly)):
        assert life(tmp_path / "spool", poison) is None
    wanted = [UNREADABLE if body in poison else body for body in bodies]
    assert life(tmp_path / "spool", poison) == wanted
    assert life(tmp_path / "spool", poison) == wanted  # until the position has passed it
    spool = Spool(tmp_path / "spool", MIB)
    assert spool.quarantine.numbers == set(deadly)
    spool.commit(10)
    spool.close()
    spool = Spool(tmp_path / "spool", MIB)
    assert not spool.quarantine.numbers
    spool.close()


def test_a_death_elsewhere_blames_nobody(tmp_path):
    spool = Spool(tmp_path / "spool", MIB)
    spool.append([b"a", b"b"])
    spool.close()
    for _ in range(5):
        spool = Spool(tmp_path / "spool", MIB)
        with spool.quarantine.decoding(0, 1), pytest.raises(ValueError, match="no death"):
            raise ValueError("no death")
        assert not spool.quarantine.suspects
        assert spool.read(0).bodies == [b"a", b"b"]
        spool.close()


def test_one_death_rejects_nothing(tmp_path):
    for first, stop in ((0, 1), (0, 10)):
        folder = tmp_path / str(stop)
        folder.mkdir()
        Quarantine(folder, 0)._note(first, stop, 0)
        found = Quarantine(folder, 0)
        assert (found.suspects, found.numbers) == (range(first, stop), frozenset())
        assert [found.room(at) for at in (stop - 1, stop)] == [1, None]


def test_damaged_notes_are_no_notes(tmp_path):
    rng = random.Random(1)
    for _ in range(200):
        (tmp_path / "decoding").write_bytes(rng.randbytes(rng.randrange(40)))
        (tmp_path / "quarantine").write_bytes(b"7\nx\n-1\n99999999999\n3")
        found = Quarantine(tmp_path, 5)
        assert not found.suspects
        assert found.numbers == {7, 99999999999}
        found.close()
