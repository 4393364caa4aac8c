"""How questions and answers travel between analyst and devices: MQTT, HTTP, and a gateway for many devices.

Here belong messages on the wire, their limits and their addresses. What a question means is in
`fcstream.local.protocol`.
"""
