"""A core: points with enough friends (points near them), selected with noise, which may then be averaged.

Here belong the filters that select it, as FriendlyCore (ICML 2022) describes them: with all pairs counted, with a
sample of them, for neighbors that differ in one replaced record, and the generator of that paper's first version. How
friends are counted is in `fcstream.counting`; what is released from a core is in `fcstream.releases`.
"""
