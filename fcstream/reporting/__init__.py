"""What was released and spent, read back.

Here: reports on budgets, series of releases, checks of documents that anybody may have written, scores of synthetic
tables. Nothing here changes a ledger. Not here: pictures (`fcstream.plots`).
"""
