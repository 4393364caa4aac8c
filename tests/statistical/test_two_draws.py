"""Two processes that draw under one charge: which answer stands never depends on what it says."""

import multiprocessing

from support.two_draws import FIRST, REFUSAL, REST, TERMS, WINDOWS, answer_all


def test_refusals_are_as_frequent_as_they_are_drawn(postgres):
    """Turning an answer away for its refund made 0.478 of refusals 0.245."""
    ledger = postgres.open(TERMS)
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2)
    children = [context.Process(target=answer_all, args=(postgres.url, seed, barrier)) for seed in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join(600)
    assert [child.exitcode for child in children] == [0, 0]
    released = ledger.releases()
    assert len(released) == WINDOWS
    share = released.count(b"too few") / WINDOWS
    print(f"share of refusals {share:.3f}, drawn with {REFUSAL}")
    assert abs(share - REFUSAL) < 4 * 0.025, share
    assert ledger.spent() == (FIRST + REST) * WINDOWS  # nothing comes back where two drew
    ledger.verify()
    ledger.close()
