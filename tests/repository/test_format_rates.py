"""The bench of decoders reads the same as the libraries that it is compared with."""

import importlib.util

import numpy as np
import pytest
from support import REPOSITORY

SPEC = importlib.util.spec_from_file_location("format_rates", REPOSITORY / "bench" / "format_rates.py")
RATES = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(RATES)


@pytest.mark.parametrize("name", RATES.CASES)
def test_a_decoder_and_the_library_alone_read_the_same(name, monkeypatch):
    monkeypatch.setattr(RATES, "N", 200)
    ours, bare = RATES.CASES[name]()
    batch, (times, *rest) = ours(), bare()
    if batch is None:  # files are counted there
        return
    assert len(batch.times_ms) == len(times) == 200
    assert batch.rejections == []
    assert np.array_equal(batch.times_ms, np.asarray(times, np.float64).astype(np.int64))
    for column in rest:
        if column.dtype != object:
            for part in np.atleast_2d(column):
                assert any(np.array_equal(part, own) for own in batch.values.T)
