"""Reads records one cell at a time: what decoders of whole columns are compared with."""

import numpy as np

from fcstream.formats.batch import Batch, Rejection, UnusableRecord
from fcstream.formats.cells import read_cell
from fcstream.formats.plain_columns import as_objects
from fcstream.formats.rejections import tallied


def batch_from_rows(rows, positions, schema):
    """Make a batch of mappings, or of rejections in their stead."""
    roles, kept, rejections = schema.message_roles(), [], []
    for position, row in zip(positions, rows, strict=True):
        if isinstance(row, Rejection):
            rejections.append(row)
            continue
        found = {}
        try:
            for name, role in roles.items():
                found[name] = read_cell(row.get(name), role)
        except UnusableRecord as refused:
            rejections.append(Rejection(refused.reason, position, name))
        else:
            kept.append((position, found))
    values = np.array([[row[name] for name in schema.features] for _, row in kept], float)
    batch = Batch(
        np.array([row[schema.time] for _, row in kept], np.int64),
        values.reshape(len(kept), len(schema.features)),
        np.array([position for position, _ in kept], np.int64),
        tallied(rejections),
    )
    return schema.labeled(batch, [as_objects([row[name] for _, row in kept]) for name in schema.labels])
