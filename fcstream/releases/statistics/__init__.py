"""Counts, histograms, quantiles, variances and covariances."""
