"""Files of releases that several streams share: the newest release of each is found, wherever it lies."""

from dataclasses import replace

import pytest

from fcstream.connectors import files
from fcstream.connectors.files import JsonlSink
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
