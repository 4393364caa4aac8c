"""NATS JetStream: source, sink, connection."""
