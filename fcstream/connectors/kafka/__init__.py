"""Kafka: source, ranges for Spark, sink, connection."""
