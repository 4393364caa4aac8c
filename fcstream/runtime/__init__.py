"""What a process needs whatever it is for.

Here: waiting with a deadline, the HTTP server, the garbage collector, the cache of compiled code, addresses of libpq,
placeholders in URLs. It imports nothing of ours but errors. Not here: anything that knows of streams, records or
privacy.
"""
