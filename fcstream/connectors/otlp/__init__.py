"""OpenTelemetry: releases as gauges, to a collector or to any other receiver of OTLP over HTTP.

Here belongs the client side: the messages and the sink. What collectors send to this process is read elsewhere.
"""
