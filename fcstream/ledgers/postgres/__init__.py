"""The ledger in a PostgreSQL schema that several processes share."""
