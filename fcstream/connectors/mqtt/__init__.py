"""MQTT 5: source and sink."""
