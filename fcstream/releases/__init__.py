"""What is released of a window: from its points and a charged loss to a value on the lattice.

Here belongs a file for each kind of release with its options, its noise and its proof's outline, in folders for
means, statistics, clusters and tables, and what kinds share: averages of a core, the search for a diameter, the limit
of records a window, reasons of refusals, and the registry. Which points form a core is in `fcstream.cores`; who pays
is in `fcstream.ledgers`; when a window closes is in `fcstream.engine`.
"""
