"""The only door to randomness.

Here: exact samplers on integers, fed by the operating system, and seeded ones for tests. Every draw that privacy
rests on passes through. Not here: how much noise a release needs (`fcstream.releases`, `fcstream.accounting`).
"""
