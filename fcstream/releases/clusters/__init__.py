"""Centers of clusters and mixtures of them, from shards of a window whose centers agree.

Here belong the clustering of shards without privacy (oracles), the tuples of centers and their core, and the two
algorithms that release them. Loops over all pairs of tuples are in `fcstream.predicates` and `fcstream._kernels`.
"""
