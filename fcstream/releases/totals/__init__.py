"""Running totals over an epoch of windows, whose error hardly grows with their number.

Here belong the factorization of prefix sums, how much noise totals, ranges and single windows have by it, and the
states that windows of an epoch leave to later ones. What is added up (counts, sums, histograms) is in
`fcstream.releases.statistics`; the ledger that keeps the states is in `fcstream.ledgers`.
"""
