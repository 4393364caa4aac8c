"""The only door to randomness.

Here belong the exact samplers on integers, the operating system's entropy that feeds them, seeded entropy for tests,
and the samplers' twins in pure Python. Nothing else in the package may draw what privacy rests on. How much noise a
value needs is decided in `fcstream.releases`.
"""
