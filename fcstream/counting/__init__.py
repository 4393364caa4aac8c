"""How many friends every point has, kept while points arrive.

Here: exact counts in tiles, many radii at once, sampled pairs, and the threads that share the work. Not here:
compiled loops (`fcstream._kernels`), other kinds of friendship (`fcstream.predicates`), what counts decide
(`fcstream.cores`).
"""
