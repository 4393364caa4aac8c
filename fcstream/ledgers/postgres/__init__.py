"""The ledger in a PostgreSQL schema, which several processes may share.

Here belong its tables and functions (``schema.sql``), the connection, and the lease that makes one process the leader
of a stream. Rules that hold for every ledger are in the folder above.
"""
