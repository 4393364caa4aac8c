"""Files of releases that several streams share: the newest release of each is found, wherever it lies."""

import errno
from dataclasses import replace

import pytest

from fcstream.connectors import files
from fcstream.connectors.files import DeadLetters, JsonlSink
from fcstream.formats.batch import Rejection
from fcstream.testing import sample_release


@pytest.mark.parametrize("block", [7, 100, 1 << 20])
def test_the_newest_release_of_a_stream_lies_anywhere(tmp_path, monkeypatch, block):
    """Of a file that other streams write to as well, only the last line was looked at."""
    monkeypatch.setattr(files, "BLOCK_BYTES", block)
    sink = JsonlSink(str(tmp_path / "out.jsonl"))
    assert sink.last() is None
    written = [replace(sample_release(), stream=name, window_open_ms=i) for i, name in enumerate("abacc")]
    sink.write(written)
    assert sink.last() == written[4]
    found = {name: sink.last_of(lambda stream, name=name: stream == name) for name in "abcd"}
    assert found == {"a": written[2], "b": written[1], "c": written[4], "d": None}
    sink.close()


def test_dead_letters_that_cannot_be_written_are_not_said_to_be_in_the_ledger(tmp_path, caplog, monkeypatch):
    """The warning promised that they are written later, from a ledger that never holds rejections."""
    letters = DeadLetters(str(tmp_path / "dead.jsonl"))

    def full(*_args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "write_all", full)
    letters.write([Rejection("missing", 1, "a")])
    letters.close()
    (warning,) = (record.getMessage() for record in caplog.records)
    assert "No space left on device; make room, or choose another `dead_letter.url`" in warning
    assert "ledger" not in warning
    assert letters.lost == 1
