"""Pipes: records from the program that started this process, and releases to it, over standard input and output.

Here belongs what is particular to standard streams of a live stream: input that ends, comes once and is acknowledged
by nobody, and output whose reader may go away. Files that end (`jsonl:-` as a source) are read by
`fcstream.connectors.files`.
"""
