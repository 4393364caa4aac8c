"""What any process needs, whatever it computes.

Here belong waiting with a deadline, writes that reach the disk, the HTTP server, the garbage collector, the cache of
compiled code, PostgreSQL's client library, placeholders in URLs and the plurals of messages. Nothing here knows of
streams, records or privacy, and it imports nothing of ours but errors.
"""
