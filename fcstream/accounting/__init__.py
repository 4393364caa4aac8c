"""Privacy losses as exact integers, and what may still be spent.

Here: zCDP losses and their conversions, privacy filters that stop before a cap, odometers that report, tail bounds.
No input or output. Not here: who was charged for which window (`fcstream.ledgers`) and noise (`fcstream.noise`).
"""
