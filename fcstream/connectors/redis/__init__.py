"""Redis Streams: a source, a sink, and the connection they share.

Here belongs whatever knows the client redis-py. Nothing outside of this folder imports it.
"""
