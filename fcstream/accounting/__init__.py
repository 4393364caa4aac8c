"""How much privacy an answer costs, and how much may still be spent.

Here belong losses as exact integers (zCDP and approximate DP, and how one is converted into the other), the privacy
filters that stop a sum before it passes its cap, with their tail bounds, and the odometers that report a sum. Nothing
here reads or writes a file. Which window or user was charged is in `fcstream.ledgers`; how much noise a loss buys is
decided by each release in `fcstream.releases`.
"""
