"""Arrow streams whose metadata are few bytes that are used many times, as a sender may write them."""

import struct

NULL, STRUCT = 1, 13  # types of columns


def shared_schema(columns=1, name=b"x", pairs=0, text=b"", depth=1):
    """Return a stream of no batches with columns that are all the same bytes, each with `depth` - 1 levels of two equal
    columns in it, and with pairs of metadata that are one and the same text."""
    parts = []  # name, bytes, and where in them stands the distance to which other part

    def table(label, slots, body, references):
        start = b"".join(struct.pack("<H", each) for each in (4 + 2 * len(slots), 4 + len(body), *slots))
        parts.append((f"of {label}", start, []))
        parts.append((label, bytes(4) + body, references))

    def several(label, other, count):
        parts.append((label, struct.pack("<I", count) + bytes(4 * count), [(4 + 4 * i, other) for i in range(count)]))

    parts.append(("root", bytes(4), [(0, "message")]))
    table("message", [4, 6, 8, 16], struct.pack("<HBxI4xq", 4, 1, 0, 0), [(8, "schema")])
    table("schema", [0, 4, 8], bytes(8), [(4, "columns"), (8, "pairs")])
    several("columns", "column 0", columns)
    several("pairs", "pair", pairs)
    table("pair", [4, 8], bytes(8), [(4, "text"), (8, "text")])
    parts.append(("text", struct.pack("<I", len(text)) + text + b"\0", []))
    for level in range(depth):
        kind = NULL if level == depth - 1 else STRUCT
        references = [(4, "name"), (12, "type"), (16, f"inner {level}")]
        table(f"column {level}", [4, 0, 8, 12, 0, 16], struct.pack("<IBxxxII", 0, kind, 0, 0), references)
        several(f"inner {level}", f"column {level + 1}", 0 if kind == NULL else 2)
    table("type", [], b"", [])
    parts.append(("name", struct.pack("<I", len(name)) + name + b"\0", []))
    places, at = {}, 0
    for label, data, _ in parts:
        places[label] = at
        at += len(data) + -len(data) % 8
    body = bytearray(at)
    for label, data, references in parts:
        start = places[label]
        body[start : start + len(data)] = data
        if f"of {label}" in places:
            struct.pack_into("<i", body, start, start - places[f"of {label}"])
        for k, other in references:
            struct.pack_into("<I", body, start + k, places[other] - start - k)
    return struct.pack("<II", 2**32 - 1, at) + bytes(body) + struct.pack("<II", 2**32 - 1, 0)
