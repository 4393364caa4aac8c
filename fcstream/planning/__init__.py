"""Forecasts of what a configuration will cost and give, before any data are read.

Here belong ``plan`` (errors, smallest usable windows, costs over a year), the measured speed of this machine,
compiling beforehand (the warm-up), and made-up telemetry to try a configuration on. What has already been spent is in
`fcstream.reporting`.
"""
