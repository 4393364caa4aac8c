"""Trees of boxes with noisy counts, which adapt to where a window's records lie, and points that stand for the boxes.

Here belong the tree and its points, how counts of all levels are made to agree, and what is computed from released
points alone (k-means). Centers made of a tree are in `fcstream.releases.clusters`.
"""
