"""InfluxDB, and everything else that takes line protocol at ``/api/v2/write``.

Here belongs the client side of writing over HTTP. The lines are made by `fcstream.connectors.line_protocol`, which
standard output uses too.
"""
