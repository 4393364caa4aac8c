"""Bytes of messages and lines of files become columns.

Here: decoders by format (JSON, CSV, MessagePack, floats, Arrow), data frames, batches and rejections with their
reason. Every row is read for itself alone. Not here: where the bytes come from (`fcstream.connectors`).
"""
