"""One call, one array, one private answer: no stream, no windows, no files.

Here belong the functions ``fcstream.private_...``: each checks its arguments, makes a mechanism of
`fcstream.releases`, charges a ledger in memory and releases once. Estimators call these functions. The mechanisms
themselves, and their proofs, are not here.
"""
