"""Friend counts decide, with noise, which points may be averaged.

Here belong the filters of FriendlyCore, those for sampled pairs, those for points that one record replaces, and the
generator of its first version. How friends are counted is in `fcstream.counting`; the value that is released of a
core is in `fcstream.releases`.
"""
