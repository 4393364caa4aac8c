"""What was released and spent, read back for people.

Here belong reports on budgets, series of releases, checks of documents that anybody may have written, and scores of
synthetic tables. Nothing here changes a ledger or draws: pictures are in `fcstream.plots`, forecasts in
`fcstream.planning`.
"""
