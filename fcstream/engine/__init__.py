"""Records in, releases out: the state of one stream, and the order in which a window is closed.

Here belong the engine, its form with one part for each key, and what happens at a close: charge the ledger, compute,
seal, publish, acknowledge; and when a budget is exhausted. Brokers, signals, clocks and restarts are in
`fcstream.service`; what a value is and how much noise it gets is in `fcstream.releases`.
"""
