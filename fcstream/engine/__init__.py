"""Engine of one stream: takes records, closes windows, and returns their releases.

Here belong the engine, the engine of streams with keys, what happens when a window closes (charge the ledger, compute,
seal, publish, acknowledge), and when a budget is exhausted. Brokers, signals, clocks and restarts are in
`fcstream.service`; what a value is and how much noise it gets is in `fcstream.releases`.

Files: `stream` (data frames in and out); `engine`, `keyed` (what programs call); `intake` (what is pushed becomes a
batch); `records` (of open windows); `first_window` and `progress` (which windows have releases); `closing` (charge,
compute, seal); `outbox` (publish, acknowledge); `exhaustion` (when a budget ends); `epochs` (what windows leave to
later ones); `opening` (the engine that a configuration needs); and of streams with keys `routing` (which key a record
has), `together` (closes all keys), `discovering` (finds keys), `shared_users` (one budget over all keys).
"""
