"""No message costs much more than others of its length: a search in the grammar of each format, of a minute in all.

`PYTHONPATH=tests python tests/unit/formats/test_costs.py SECONDS [FORMAT ...]` searches for longer, so many
seconds for each format, and prints the worst of each.
"""

import random
import sys
import time
from pathlib import Path

import pytest
from support.costly import GRAMMARS, cost, drawn, memory

MOST_TIMES = 100
MOST_BYTES, BYTES_PER_RECORD = 50 * 10**6, 300
"""What a message may take in memory while it is decoded, besides itself: so much, and for each record that is used."""
SECONDS = 1.5
LEAST_S = 5e-9  # of a byte of a usual message, for formats that are read faster


def searched(name, seconds, seed):
    """Return a format's worst messages: how many times a usual one's time by length, memory beyond what records take,
    and what they are made of."""
    grammar, draw = GRAMMARS[name](), random.Random(f"{name} {seed}")
    usual = grammar.usual(min(grammar.size, 2**18))
    batch = grammar.decoder.decode([usual], 0)
    assert batch.seen == len(batch.times_ms) > 0  # it is usual

    def usual_seconds():
        return max(min(cost(grammar.decoder, usual) for _ in range(3)), LEAST_S * len(usual))

    def times(message, base):
        return cost(grammar.decoder, message) / base * len(usual) / max(len(message), 2**16)

    found, base = [], usual_seconds()
    until = time.monotonic() + seconds
    while time.monotonic() < until or len(found) < 4:
        worst = [max(found, key=lambda each: each[k])[2] for k in (0, 1)] if found else []
        one = drawn(grammar, draw, worst)
        message = one.message()
        used, records = memory(grammar.decoder, message)
        ratio = times(message, base)
        if ratio > MOST_TIMES / 2:  # once more, since others use the machine too
            ratio = min(ratio, *(times(message, usual_seconds()) for _ in range(3)))
        found.append((ratio, used - BYTES_PER_RECORD * records, one))
    return found


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is measured as Linux tells it")
@pytest.mark.parametrize("name", GRAMMARS)
def test_no_message_costs_much_more_than_its_length(name):
    found = searched(name, SECONDS, 0)
    worst = max(found, key=lambda each: each[0])
    assert worst[0] <= MOST_TIMES, f"{worst[0]} times: {worst[2]}"
    largest = max(found, key=lambda each: each[1])
    assert largest[1] <= MOST_BYTES, f"{largest[1]} bytes: {largest[2]}"


if __name__ == "__main__":
    for each in sys.argv[2:] or GRAMMARS:
        results = searched(each, float(sys.argv[1]), time.time())
        print(f"{each}: {len(results)} messages", flush=True)
        for key in (0, 1):
            for ratio, used, one in sorted(results, key=lambda one: -one[key])[:3]:
                print(f"  {ratio:8.1f} times, {used / 1e6:6.1f} MB  {one}", flush=True)
