"""How questions and answers travel: MQTT, HTTP, a gateway of many devices."""
