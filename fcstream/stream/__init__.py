"""What a record is in time and space, before anything is counted.

Here belong the lattice that makes floats exact integers, windows and their panes, which windows a record may enter
and when it is late, one point a user, and sums that cannot wrap. Bytes of messages are in `fcstream.formats`; closing
a window is in `fcstream.engine`.

Files: `lattice`; `windows` (the schedule); `admission` (which windows a record may enter, and when it is late);
`waiting_records` (late for one window, in time for the next); `contributions` (one point a user); `panes` and `totals`.
"""
