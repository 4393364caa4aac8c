"""No message costs much more than others of its length: a search in the grammar of each format, of a minute in all.

`PYTHONPATH=tests python tests/unit/formats/test_costs.py SECONDS` searches for longer and prints the worst of each.
"""

import random
import sys
import time

import pytest
from support.costly import GRAMMARS, cost, drawn, memory

MOST_TIMES, MOST_BYTES = 100, 50 * 10**6
SECONDS = 3.0
LEAST_S = 2e-8  # of a byte of a usual message; a quarter of the mean of all formats, for those that are read fastest


def searched(name, seconds, seed):
    """Return a format's worst messages: how many times a usual one's time by length, bytes of memory, and parts."""
    grammar, draw = GRAMMARS[name](), random.Random(f"{name} {seed}")
    usual = grammar.usual(grammar.size)
    batch = grammar.decoder.decode([usual], 0)
    assert batch.seen == len(batch.times_ms) > 0  # it is usual

    def usual_seconds():
        return max(min(cost(grammar.decoder, usual) for _ in range(3)), LEAST_S * len(usual))

    def times(message, base):
        return cost(grammar.decoder, message) / base * len(usual) / max(len(message), grammar.size // 4)

    found, base = [], usual_seconds()
    until = time.monotonic() + seconds
    while time.monotonic() < until or len(found) < 4:
        message, parts = drawn(grammar, draw)
        ratio = times(message, base)
        if ratio > MOST_TIMES / 2:  # once more, since others use the machine too
            ratio = min(ratio, *(times(message, usual_seconds()) for _ in range(3)))
        used = memory(grammar.decoder, message) if len(found) % 4 == 0 else 0
        found.append((ratio, used, [part[:40] for part in parts]))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAMMARS)
def test_no_message_costs_much_more_than_its_length(name):
    found = searched(name, SECONDS, 0)
    worst = max(found, key=lambda each: each[0])
    assert worst[0] <= MOST_TIMES, worst
    largest = max(found, key=lambda each: each[1])
    assert largest[1] <= MOST_BYTES, largest


if __name__ == "__main__":
    for each in GRAMMARS:
        results = searched(each, float(sys.argv[1]), time.time())
        print(f"{each}: {len(results)} messages")
        for key in (0, 1):
            for ratio, used, parts in sorted(results, key=lambda one: -one[key])[:3]:
                print(f"  {ratio:8.1f} times, {used / 1e6:6.1f} MB  {parts}")
