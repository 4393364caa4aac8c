"""What a record is in time and space, before anything is counted.

Here belong the lattice that makes floats exact integers, windows and the panes that sliding windows share, which
windows a record may enter and when it is late, one point for each user, and sums without overflow. Bytes of messages
are in `fcstream.formats`; closing a window is in `fcstream.engine`.

Files: `lattice`; `windows` (the schedule); `admission` (which windows a record may enter, and when it is late);
`waiting_records` (late for one window, in time for the next); `contributions` (one point for each user); `panes` (which
points a window has); `totals` (sums without overflow).
"""
