"""Kafka: a source and a sink, the ranges of offsets that Spark reads, and the connection they share.

Here belongs whatever knows librdkafka's client. Nothing outside of this folder imports it.
"""
