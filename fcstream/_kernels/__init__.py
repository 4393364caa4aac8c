"""Every compiled function, one self-contained file per family: arrays in, arrays out, no
randomness, no calls between files.
"""
