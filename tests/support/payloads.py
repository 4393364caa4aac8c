"""Bodies of messages that hold several records."""

import numpy as np
import pytest


def packed(times, values):
    rows = np.zeros(len(times), [("t", "<i8"), ("v", "<f8", (2,))])
    rows["t"], rows["v"] = times, values
    return rows.tobytes()


def arrow(**columns):
    pa = pytest.importorskip("pyarrow")
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()
