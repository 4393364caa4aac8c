"""Tables: synthetic rows, marginals of columns, and points that stand for a window's points.

Here belong the kinds that are released as rows, and the document they are written in. The arithmetic they share with
``anonymize`` is in `fcstream.synthetic`.
"""
