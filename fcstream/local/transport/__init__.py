"""How questions and replies travel between analyst and devices: over MQTT or HTTP, to gateways of many devices.

Here belong messages for many devices, their limits and their addresses. What one question or reply holds is in
`fcstream.local.protocol`.
"""
