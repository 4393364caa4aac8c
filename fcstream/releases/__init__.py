"""What is released of a window: from its points and a charged loss to a value in integers.

Here belongs a file for each kind of release with its options, its noise and its proof's outline, in folders for means,
statistics, clusters, tables, totals and trees, and what kinds share: averages of a core, the search for a diameter, the
limit of how many records a window may hold, reasons of refusals, and the registry. Which points form a core is in
`fcstream.cores`; who pays is in `fcstream.ledgers`; when a window closes is in `fcstream.engine`.
"""
