"""PostgreSQL as a sink: releases become rows of a table.

Here belong that table and its statements. The ledger in PostgreSQL is `fcstream.ledgers.postgres`; how a client asks
for encryption is shared with it in `fcstream.runtime.libpq`.
"""
