"""Pipes: records from the program that started this process, and releases to it, over standard input and output.

Here belongs what standard input and output need in a live stream: records come once, nobody is told that they were
read, and the reader of the releases may go away. A job over files that reads standard input to its end (`jsonl:-`) uses
`fcstream.connectors.files`.
"""
