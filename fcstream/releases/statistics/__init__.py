"""Numbers about a window's points other than their mean: counts, sums, histograms, quantiles, variances, covariances.

Here belong those kinds, each with how much noise it gets. Means are in `fcstream.releases.means`, tables of columns
with levels in `fcstream.releases.tables`.

Files: one for each kind (`covariance` and `clipped` are its two methods); `correlations` (what follows from a
covariance), `moments` and `columns` (counters), `scales` and `learned` (how far features spread, where nobody declared
it), `shapes` and `clipped_sums` (the coordinates of clipped records, and their sums).
"""
