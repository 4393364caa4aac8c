"""Friend counts decide, with noise, which points may be averaged.

Here: the filters of FriendlyCore, those for sampled pairs, those for points that one record replaces, and the
generator of its first version. Not here: counting (`fcstream.counting`) and the value that is released
(`fcstream.releases`).
"""
