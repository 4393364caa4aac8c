"""The only door to randomness.

Here belong the exact samplers on integers, the operating system's entropy that feeds them, seeded entropy for tests,
and slow samplers in pure Python that the compiled ones must agree with. Nothing else in the package may draw what
privacy rests on. How much noise a value needs is decided in `fcstream.releases`.
"""
