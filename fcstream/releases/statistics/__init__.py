"""Numbers about a window's points other than their mean: counts, sums, histograms, quantiles, variances, covariances.

Here belong those kinds, with the scale of their noise. Means are in `fcstream.releases.means`, tables of columns with
levels in `fcstream.releases.tables`.
"""
