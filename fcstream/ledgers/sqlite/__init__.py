"""The ledger in one SQLite file, which one process writes.

Here belong its tables, the order in which it writes and syncs, and copies that readers take. Rules that hold for
every ledger are in the folder above.
"""
