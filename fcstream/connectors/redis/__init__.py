"""Redis Streams: source, sink, connection."""
