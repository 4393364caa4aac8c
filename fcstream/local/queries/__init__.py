"""What an analyst may ask of many devices, and how their noisy answers become an estimate with an interval.

Here belong the kinds of questions (counts in a range, nearest neighbors, densities, shares) and the rounds in which
they narrow down. What a single device computes is in `fcstream.local.functions`.
"""
