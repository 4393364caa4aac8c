"""Running totals over an epoch of windows, whose error hardly grows with their number.

Here belong the factorization of prefix sums, the noise that it leaves in totals, ranges and windows, and the memory of
an epoch. What is added up (counts, sums, histograms) is in `fcstream.releases.statistics`; where the memory is kept is
in `fcstream.ledgers`.
"""
