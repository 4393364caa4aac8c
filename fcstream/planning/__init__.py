"""What a configuration will cost and give, before data are read.

Here: `plan`, the speed of this machine, compiling beforehand, made-up telemetry to try things on. Not here: what was
spent already (`fcstream.reporting`).
"""
