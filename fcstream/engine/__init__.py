"""Records in, releases out: the state of one stream.

Here: which windows a record may enter, what a closing window asks of the ledger, charge, release, seal, publish,
keyed streams. Not here: brokers, threads, signals and clocks (`fcstream.service`).
"""
