"""The bytes of messages and lines become columns of numbers.

Here belongs a decoder for each format (JSON, CSV, MessagePack, packed floats, Arrow), data frames, and the batch of
good rows and rejections they end in. Each row is read for itself alone: what one record holds never decides how
another is read. Where the bytes come from is in `fcstream.connectors`.
"""
