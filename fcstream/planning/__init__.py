"""Forecasts of what a configuration will cost and give, before any protected data are read.

Here belong ``plan`` (errors, smallest usable windows, costs over a year), the measured speed of this machine, compiling
beforehand (the warm-up), made-up telemetry to try a configuration on, and rehearsals: seeded runs on public or made-up
records, against the truth. What has already been spent is in `fcstream.reporting`.

Files: `plan` (the forecast), `stream_plan` (its document and text), `speeds`, `warmup` with `compiling` (what a second
process compiles), `simulation` (made-up telemetry), `rehearsal`, with its `records` and `truths`.
"""
