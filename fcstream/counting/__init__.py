"""How many friends every point has, kept up to date while points arrive.

Here belong exact counts in tiles, counts for many radii at once, counts of sampled pairs, and the threads that share
the work. The compiled loops are in `fcstream._kernels`, other rules of friendship in `fcstream.predicates`, and what
the counts decide in `fcstream.cores`.
"""
