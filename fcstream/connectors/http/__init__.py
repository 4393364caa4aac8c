"""HTTP: records that others post to this process, and releases that it posts to a web server of the user's.

Here belong the receiver (`source`, with `bodies`: what is taken at each path, `content`, `access` and `answers`) and
the client side of HTTP sinks. The server itself, with its limits, is `fcstream.runtime.http_server`, which also
serves health, metrics and devices.
"""
