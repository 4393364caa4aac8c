"""Bodies of requests: whatever comes is stored or refused, and what is stored is decoded without an error."""

import gzip
import json
import random
import time
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from support.http_in import bodies

from fcstream.connectors.http.answers import REASONS, RefusedRequest
from fcstream.connectors.http.content import CODINGS, MEDIA_TYPES, decompressed, media_type
from fcstream.formats.batch import REASONS as REJECTIONS
from fcstream.formats.batch import Schema
from fcstream.formats.decoders import Objects
from fcstream.formats.paths import parse_path
from fcstream.formats.payloads import decoder_for
from fcstream.formats.rejections import tallied
from fcstream.formats.tagged import SplitMessages, TaggedMessages, split_lines

SCHEMA = Schema("t", "ms", ("a",))
GOOD = [{"t": 1, "a": 2.5}, {"t": 2, "a": 3}, {"t": 3}]


def samples():
    """Bodies that are right, in every format."""
    return [
        json.dumps(GOOD[0]).encode(),
        json.dumps(GOOD).encode(),
        b"\n".join(json.dumps(each).encode() for each in GOOD),
        msgspec.msgpack.encode(GOOD[1]),
        msgspec.msgpack.encode(GOOD),
    ]


def spoiled(draw):
    """A body with some bytes changed, taken out or put in."""
    body = bytearray(draw.choice(samples()))
    for _ in range(draw.randrange(4)):
        at = draw.randrange(len(body) + 1)
        body[at : at + draw.randrange(3)] = draw.randbytes(draw.randrange(4))
    return bytes(body)


@pytest.mark.slow
def test_ten_thousand_spoiled_bodies_are_stored_or_refused():
    draw, kinds, stored, refused = random.Random(1), bodies(), [], set()
    medias = [media for media, format in MEDIA_TYPES.items() if format in ("json", "ndjson", "msgpack", "arrow")]
    for _ in range(10_000):
        body, media = spoiled(draw), draw.choice(medias)
        try:
            stored.append(kinds.kind("/ingest", b"", media).look(body, None).tag + body)
        except RefusedRequest as error:
            refused.add(error.reason)
    assert refused == {"broken"}
    assert len(stored) > 3000
    batch = kinds.decode(stored, 7)
    assert {each.reason for each in batch.rejections} <= set(REJECTIONS)
    assert (np.diff(batch.positions) >= 0).all()
    assert batch.positions.min() >= 7
    assert batch.positions.max() < 7 + len(stored)
    one_by_one = [kinds.decode([each], 7 + i) for i, each in enumerate(stored)]
    assert np.concatenate([each.values for each in one_by_one]).tolist() == batch.values.tolist()
    assert [each for part in one_by_one for each in part.rejections] == batch.rejections


def test_ten_thousand_compressed_bodies_are_unpacked_or_refused():
    draw, whole, refused = random.Random(2), 0, set()
    for _ in range(10_000):
        body = bytearray(gzip.compress(draw.randbytes(draw.randrange(60)), mtime=0))
        if draw.random() < 0.9:
            body[draw.randrange(len(body))] ^= 1 << draw.randrange(8)
        try:
            decompressed(bytes(body), draw.choice([*CODINGS, "", "identity"]), 50)
            whole += 1
        except RefusedRequest as error:
            refused.add(error.reason)
    assert refused == {"broken", "too_large"}
    assert whole > 1000


def test_lines_of_many_messages_are_what_each_gives_by_itself():
    """A twin that splits and decodes one line after the other."""
    draw = random.Random(3)
    lines = [json.dumps(each).encode() for each in GOOD] + [b"", b"  ", b"broken", b'{"t": "x", "a": 1}']
    decoder, single = SplitMessages(Objects(SCHEMA), split_lines), Objects(SCHEMA)
    for _ in range(100):
        messages = [b"\n".join(draw.choices(lines, k=draw.randrange(6))) for _ in range(draw.randrange(5))]
        batch = decoder.decode(messages, 10)
        rows, rejected = [], []
        for i, message in enumerate(messages):
            for line in message.split(b"\n"):
                found = single.decode([line], 10 + i) if line.strip() else single.decode([], 0)
                rows += zip(found.times_ms.tolist(), found.values[:, 0].tolist(), found.positions.tolist(), strict=True)
                rejected += found.rejections
        assert rows == list(
            zip(batch.times_ms.tolist(), batch.values[:, 0].tolist(), batch.positions.tolist(), strict=True)
        )
        assert sorted(batch.rejections, key=repr) == sorted(tallied(rejected), key=repr)


def test_a_message_that_no_decoder_knows_is_rejected():
    decoder = TaggedMessages({ord("J"): decoder_for("json", SCHEMA)})
    batch = decoder.decode([b"", b"?x", b'J{"t": 1, "a": 2}'], 3)
    assert batch.positions.tolist() == [5]
    assert [(each.reason, each.position) for each in batch.rejections] == [("broken_record", 3), ("broken_record", 4)]


def test_every_refusal_has_its_words():
    for reason, words in REASONS.items():
        refused = RefusedRequest(reason)
        assert refused.text == words.meaning
        if words.status:
            assert json.loads(refused.json()) == {"code": words.influx, "message": words.meaning}
            assert 400 <= refused.status < 600
            assert 1 <= words.grpc <= 16


@pytest.mark.parametrize(
    ("given", "read"),
    [(b"application/json", "application/json"), (b" Text/PLAIN ;charset=x", "text/plain"), (b"", ""), (b"\xff", "ÿ")],
)
def test_media_types_are_read_without_parameters(given, read):
    assert media_type(given) == read


def test_many_tiny_members_take_time_in_proportion_to_their_number():
    member, times = gzip.compress(b"", mtime=0), []
    for count in (10_000, 100_000):
        start = time.thread_time()
        assert decompressed(member * count + gzip.compress(b"end"), "gzip", 100) == b"end"
        times.append(time.thread_time() - start)
    assert times[1] < 40 * times[0]  # 100 times where the rest of the body is copied for each


@pytest.mark.parametrize("records", [None, ".", "r"])
@pytest.mark.parametrize("odd", [b'{"t":2,"a":nan},', b""])
def test_an_element_that_is_no_json_takes_no_other_with_it(records, odd):
    """The whole body was refused."""
    list_of = b'[{"t":1,"a":1},' + odd + b'{"t":3,"a":2},]'
    kinds = bodies(schema=replace(SCHEMA, records=None if records is None else parse_path(records, "key")))
    body = b'{"r": ' + list_of + b"}" if records == "r" else list_of
    tag = kinds.kind("/ingest", b"", "application/json").look(body, None).tag
    batch = kinds.decode([tag + body], 0)
    assert batch.values.tolist() == [[1.0], [2.0]]
    assert [each.reason for each in batch.rejections] == ["broken_record"] * bool(odd)
    with pytest.raises(RefusedRequest):
        kinds.kind("/ingest", b"", "application/json").look(body[:-2], None)
