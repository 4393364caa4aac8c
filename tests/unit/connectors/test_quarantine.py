"""A message at which the process dies is found by the second death, alone, and is no record from then on."""

import os
import random
from threading import Event, Thread

import numpy as np
import pytest

from fcstream.connectors.base import Chunk
from fcstream.connectors.quarantine import Quarantine
from fcstream.errors import ConfigError


def chunk(partition, offsets, bodies=None):
    offsets = np.array(list(offsets), object if max(offsets) > 2**63 else np.int64)
    bodies = bodies or [b"%s %d" % (partition.encode(), each) for each in offsets]
    return Chunk(partition, offsets, np.zeros(len(offsets), np.int64), bodies)


def life(prefix, chunks, deadly):
    """Read all messages in a process of its own that dies at some; returns what it decoded, or None if it died."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        quarantine, found = Quarantine(prefix), []
        quarantine.open()
        for some in quarantine.apart(chunks):
            with quarantine.decoding(some):
                if quarantine.holds(some):
                    found.append(b"rejected")
                    continue
                for body in (body for each in some for body in each.bodies):
                    if body in deadly:
                        os._exit(9)
                    found.append(body)
        os.write(write, b"\n".join(found))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        found = file.read().split(b"\n")
    return found if os.waitpid(child, 0)[1] == 0 else None


CHUNKS = [chunk("a", range(5, 9)), chunk("b", [2**70, 2**70 + 2]), chunk("c/d", [0])]
BODIES = [body for each in CHUNKS for body in each.bodies]


@pytest.mark.parametrize("deadly", [[3], [0], [6], [5], [2, 4], []])
def test_what_kills_twice_is_left_out(tmp_path, deadly):
    prefix, poison = f"{tmp_path}/new/s-", {BODIES[i] for i in deadly}
    for _ in range(len(deadly) + bool(deadly)):  # what was suspected with the first one is decoded alone already
        assert life(prefix, CHUNKS, poison) is None
    wanted = [b"rejected" if body in poison else body for body in BODIES]
    assert life(prefix, CHUNKS, poison) == wanted
    assert life(prefix, CHUNKS, poison) == wanted  # until the position has passed it
    quarantine = Quarantine(prefix)
    quarantine.open()
    assert quarantine.found == len(deadly)
    quarantine.forget({"a": 9, "b": 2**70 + 3, "c/d": 1})
    quarantine.close()
    assert [each for each in life(prefix, CHUNKS, {}) if each == b"rejected"] == []


def test_another_message_at_the_same_place_is_not_rejected(tmp_path):
    prefix, one = f"{tmp_path}/", [chunk("a", [3], [b"deadly"])]
    assert [life(prefix, one, {b"deadly"}) for _ in range(3)] == [None, None, [b"rejected"]]
    assert life(prefix, [chunk("a", [3], [b"of a stream made anew"])], {}) == [b"of a stream made anew"]


@pytest.mark.parametrize("status", [0, 9])
def test_an_end_before_a_suspected_message_is_decoded_leaves_it_suspected(tmp_path, status):
    """A process in which several streams have such messages dies twice for each, and no more."""
    prefix = f"{tmp_path}/"
    assert life(prefix, CHUNKS, {b"a 7"}) is None
    for _ in range(3):
        child = os.fork()
        if child == 0:
            quarantine = Quarantine(prefix)
            quarantine.open()
            if status == 0:
                quarantine.close()
            else:  # a message of another stream ends it after the first one
                with quarantine.decoding(quarantine.apart(CHUNKS)[0]):
                    pass
            os._exit(status)
        os.waitpid(child, 0)
    assert life(prefix, CHUNKS, {b"a 7"}) is None
    assert life(prefix, CHUNKS, {b"a 7"}) == [b"rejected" if body == b"a 7" else body for body in BODIES]


def test_a_message_that_no_restart_reads_again_is_not_suspected(tmp_path):
    assert life(f"{tmp_path}/", CHUNKS, {b"a 7"}) is None
    quarantine = Quarantine(f"{tmp_path}/")
    quarantine.open()
    quarantine.forget({"a": 9, "b": 2**70 + 3, "c/d": 1})
    assert quarantine.apart(CHUNKS) == [CHUNKS]
    quarantine.close()


def test_a_death_elsewhere_blames_nobody(tmp_path):
    for _ in range(5):
        quarantine = Quarantine(f"{tmp_path}/")
        quarantine.open()
        assert quarantine.apart(CHUNKS) == [CHUNKS]
        with pytest.raises(ValueError, match="no death"), quarantine.decoding(CHUNKS):
            raise ValueError("no death")
        quarantine.close()


def test_damaged_notes_are_no_notes(tmp_path):
    rng = random.Random(1)
    for i in range(200):
        (tmp_path / "decoding").write_bytes(rng.randbytes(rng.randrange(40)))
        (tmp_path / "quarantine").write_bytes([b"7\nx", b"[7]", b'[["a", 1]]', b"[[]"][i % 4])
        quarantine = Quarantine(f"{tmp_path}/")
        quarantine.open()
        assert quarantine.apart(CHUNKS) == [CHUNKS]
        quarantine.close()


def test_two_processes_do_not_share_the_note(tmp_path):
    one, two = Quarantine(f"{tmp_path}/"), Quarantine(f"{tmp_path}/")
    one.open()
    one.open()
    with pytest.raises(ConfigError, match="is in use"):
        two.open()
    one.close()
    two.open()
    two.close()


def test_without_a_place_nothing_is_noted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    quarantine = Quarantine()
    quarantine.open()
    with quarantine.decoding(CHUNKS):
        assert not quarantine.holds(CHUNKS)
    assert os.listdir() == []


def test_a_suspected_message_is_decoded_while_no_other_stream_decodes(tmp_path):
    """Otherwise it would be blamed for a death that a message of another stream causes."""
    assert life(f"{tmp_path}/s-", [chunk("a", [1])], {b"a 1"}) is None
    suspicious, other, begun, seen = Quarantine(f"{tmp_path}/s-"), Quarantine(f"{tmp_path}/o-"), Event(), []
    suspicious.open()
    other.open()

    def decode():
        begun.set()
        with suspicious.decoding([chunk("a", [1])]):
            seen.append("suspected")

    with other.decoding(CHUNKS):
        thread = Thread(target=decode)
        thread.start()
        begun.wait()
        thread.join(0.2)
        seen.append("other")
    thread.join()
    assert seen == ["other", "suspected"]
    with other.decoding(CHUNKS):
        pass
    suspicious.close()
    other.close()
