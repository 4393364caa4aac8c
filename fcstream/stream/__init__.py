"""What a record is in time and space, before anything is counted.

Here: the lattice that makes floats exact integers, windows and panes, records that wait for a later window, one point
a user, sums that cannot wrap. Not here: bytes of messages (`fcstream.formats`), and the engine that drives it.
"""
