"""What an analyst may ask of many devices, and how their noisy replies become one answer with an error bound.

Here belong the kinds of queries (counts in a range, nearest neighbors, densities, shares) and the rounds in which they
eliminate devices. What a single device computes is in `fcstream.local.functions`.
"""
