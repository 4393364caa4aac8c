"""Webhooks: releases posted to a web server of the user's.

Here belong the client side of HTTP sinks and their retries. The server of this process (health, metrics, devices) is
`fcstream.runtime.http_server`, and is not here.
"""
