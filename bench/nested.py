"""Nested messages: the decoder of JSON and MessagePack beside msgspec alone, over the same bytes into arrays.

    python bench/nested.py

Bare: types written by hand for exactly these messages, their fields as columns by `numpy.fromiter`; no checks or
positions. Ours: a schema with paths, batches with positions, rejections and all checks. `object`: a message is a
record, three levels deep, with an element of a list. `readings`: ten records a message, with a user of the message.
`odd`: the same, one message of a hundred has an element that is rejected. Ratios of processor time in one run, the
median of seven.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from fcstream.formats.batch import Schema
from fcstream.formats.nested import objects_decoder
from fcstream.formats.paths import FieldPath, parse_path

N, RUNS = 4096, 7


class Inner(msgspec.Struct, gc=False):
    temp: float
    hum: float


class Outer(msgspec.Struct, gc=False):
    readings: Inner


class Nested(msgspec.Struct, gc=False):
    ts: float
    object: Outer
    acc: list[float]


class Reading(msgspec.Struct, gc=False):
    t: float
    temp: float
    hum: float


class Pack(msgspec.Struct, gc=False):
    device: str
    readings: list[Reading]


def schema(time_name: str, features: dict[str, str], user: str | None = None, records: str | None = None) -> Schema:
    found = {name: parse_path(text, "path") for name, text in features.items()}
    return Schema(
        *(time_name, "ms", tuple(features), user),
        paths={name: path for name, path in found.items() if path != FieldPath.named(name)},
        records=None if records is None else parse_path(records, "records"),
    )


def nested(rng: random.Random, i: int) -> Any:
    inner = {"readings": {"temp": rng.random() * 30, "hum": rng.random() * 99}, "fw": "1.2.3"}
    return {"ts": 1_700_000_000_000 + i, "object": inner, "acc": [rng.random()] * 3, "meta": {"rssi": -70, "name": "d"}}


def pack(rng: random.Random, i: int) -> Any:
    each = [{"temp": rng.random() * 30, "hum": rng.random() * 99, "t": 1_700_000_000_000 + i + j} for j in range(10)]
    return {"device": f"dev{i % 50}", "readings": each}


def columns_of_nested(messages: list[Any]) -> None:
    for get in map(attrgetter, ("ts", "object.readings.temp", "object.readings.hum")):
        np.fromiter(map(get, messages), np.float64, len(messages))
    np.fromiter((message.acc[0] for message in messages), np.float64, len(messages))


def columns_of_packs(messages: list[Any]) -> None:
    elements = list(chain.from_iterable(map(attrgetter("readings"), messages)))
    for name in ("t", "temp", "hum"):
        np.fromiter(map(attrgetter(name), elements), np.float64, len(elements))
    users = np.empty(len(messages), object)
    users[:] = list(map(attrgetter("device"), messages))
    np.repeat(users, [len(message.readings) for message in messages])


def seconds(action: Callable[[], object]) -> float:
    began = time.process_time()
    for _ in range(5):
        action()
    return (time.process_time() - began) / 5


def main() -> None:
    rng = random.Random(1)
    of_nested = schema("ts", {"t": "object.readings.temp", "h": "object.readings.hum", "a": "acc[0]"})
    of_packs = schema("t", {"temp": "temp", "hum": "hum"}, "device", "readings")
    packs = [pack(rng, i) for i in range(N // 8)]
    odd = [
        dict(each, readings=[*each["readings"][:9], {"temp": "x"}]) if i % 100 == 0 else each
        for i, each in enumerate(packs)
    ]
    cases = [
        ("object", [nested(rng, i) for i in range(N)], of_nested, Nested, columns_of_nested),
        ("readings", packs, of_packs, Pack, columns_of_packs),
        ("odd", odd, of_packs, Pack, columns_of_packs),
    ]
    for codec, encode, kind in (
        ("json", lambda value: json.dumps(value).encode(), msgspec.json.Decoder),
        ("msgpack", msgspec.msgpack.encode, msgspec.msgpack.Decoder),
    ):
        for name, messages, fields, whole, columns in cases:
            bodies = list(map(encode, messages))
            plain = list(map(encode, packs)) if name == "odd" else bodies
            ours, bare = objects_decoder(fields, codec, are_messages=True), kind(whole).decode
            records = len(ours.decode(bodies, 0).times_ms)

            def alone(bare: Any = bare, columns: Any = columns, plain: list[bytes] = plain) -> None:
                columns(list(map(bare, plain)))

            def whole_batch(ours: Any = ours, bodies: list[bytes] = bodies) -> None:
                ours.decode(bodies, 0)

            pairs = [(seconds(alone), seconds(whole_batch)) for _ in range(RUNS)]
            ratios = [first / second for first, second in pairs]
            rates = [records / second for _, second in pairs]
            print(
                f"{codec:8} {name:9} {statistics.median(rates):10,.0f} records/s, {statistics.median(ratios):.2f} of "
                f"msgspec alone ({min(ratios):.2f} to {max(ratios):.2f})"
            )


if __name__ == "__main__":
    main()
