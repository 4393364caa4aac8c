"""One call, one array, one private answer, without windows or files.

Here: the functions `fcstream.private_...`. They check arguments, make a mechanism of `fcstream.releases`, charge a
ledger in memory and release once. Not here: mechanisms themselves.
"""
