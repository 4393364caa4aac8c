"""NATS JetStream: a source, a sink, and the connection they share.

Here belongs whatever knows the nats-py client. Nothing outside of this folder imports it.
"""
