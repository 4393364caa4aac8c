"""A predicate of one's own: two times of day are friends if they are at most two hours apart, also across midnight.

Any function of two items will do that is symmetric, reflexive, and computed from these two alone. Numba compiles it, so
it is written with numbers and arrays only.
"""

import numpy as np

import fcstream

NEAR_MINUTES = 120
LOSS = fcstream.PrivacyLoss.charge(0.5, 1e-8)


def near_on_the_clock(first, second):
    apart = abs(first[0] - second[0]) % 1440
    return min(apart, 1440 - apart) <= NEAR_MINUTES


def usual_hours(minutes, noise):
    """The core of some times of day, and the noisy number of times.

    The number is released at the cost of `LOSS`. The core is private: whatever is computed from it next must be a
    mechanism too, with a loss of its own.
    """
    counter = fcstream.PredicateCounts(fcstream.UserPredicate(near_on_the_clock))
    for batch in np.array_split(minutes, 4):
        counter.add(0, batch[:, None])  # to pane 0, in batches of any size
    core = fcstream.ZCDPFilter(LOSS).select_core(counter.counts([0]), noise)
    return core.mask, core.count


def main():
    rng = np.random.default_rng(1)
    shifts = rng.normal(0, 30, 2000).round().astype(np.int64) % 1440  # around midnight
    odd = rng.integers(480, 960, 20)  # in the middle of the day
    core, count = usual_hours(np.concatenate([shifts, odd]), fcstream.Noise())
    print(f"about {count} times; {core[:2000].sum()} of 2000 shifts and {core[2000:].sum()} of 20 others in the core")


if __name__ == "__main__":
    main()
