"""Bytes that nobody would write, and what a decoder made of them."""


def shaken(rng, body):
    """Bytes with some of them changed, cut out, doubled, or put in."""
    body = bytearray(body)
    for _ in range(rng.choice([1, 1, 2, 5])):
        at, length = rng.randrange(len(body) + 1), rng.choice([1, 1, 4, 30])
        what = rng.randrange(6)
        if what == 0:
            del body[at : at + length]
        elif what == 1:
            body[at:at] = rng.randbytes(length)
        elif what == 2:
            body[at : at + length] = rng.choice([b"\0", b"\xff", b"\x7f", b'"', b"9"]) * len(body[at : at + length])
        elif what == 3:
            body[at:at] = body[at : at + 50]
        elif what == 4:
            del body[at:]
        elif body:
            body[at % len(body)] ^= 1 << rng.randrange(8)
    return bytes(body)


def told(batch, position):
    """What a decoder made of one message: its records, in any order, and its rejections."""
    rows = [i for i, each in enumerate(batch.positions.tolist()) if each == position]
    records = [
        (
            int(batch.times_ms[i]),
            batch.values[i].tobytes(),
            *(None if column is None else column[i] for column in (batch.users, batch.keys)),
            *((name, column[i]) for name, column in batch.texts.items()),
        )
        for i in rows
    ]
    same = [each for each in batch.rejections if each.position == position]
    faults = [(each.reason, each.field or "") for each in same for _ in range(each.count)]
    return sorted(records, key=repr), sorted(faults)
