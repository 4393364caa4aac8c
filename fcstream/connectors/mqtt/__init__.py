"""MQTT 5: a source that acknowledges by hand, a sink, and the connection they share.

Here belongs whatever knows paho's client. What a broker may forget is kept by `fcstream.connectors.spool`. Questions
to devices travel by `fcstream.local.transport`.
"""
