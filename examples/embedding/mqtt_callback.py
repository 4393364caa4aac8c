"""Inside a paho-mqtt callback: messages are pushed as they come, and acknowledged once they are counted.

    python examples/embedding/mqtt_callback.py [SECONDS] [HOST]

Good enough where a crash may cost the readings of the open window: the broker forgets what was acknowledged. Where it
may not, let ``fcstream run`` read the topic through its spool (``source.url = "mqtt://..."`` and ``source.spool``).
"""

import json
import random
import sys
import threading
import time

import paho.mqtt.client as mqtt

from fcstream import Engine, Release

CONFIG = {
    "stream": {"name": "mqtt"},
    "lattice": {"step": 0.001},
    "features": [{"name": "temp_c", "min": -40.0, "max": 85.0, "origin": 20.0}],
    "window": {"length": "1s", "lateness": "500ms", "clock": "broker", "start": "now"},
    "release": {"kind": "count", "rho": 1.0},
    "budget": {"rho": 1.0, "delta": 0.0},
    "ledger": {"url": "memory:"},  # "sqlite:mqtt.db" for anything real
}


def publish(releases: list[Release]) -> None:
    for release in releases:
        print(json.dumps({"window": release.window_open_ms, "count": release.count}), flush=True)


def main(seconds: float, host: str, topic: str = f"fcstream/example/{random.getrandbits(40):x}") -> None:
    ready = threading.Event()
    with Engine(CONFIG) as engine:

        def on_message(client: mqtt.Client, _: object, message: mqtt.MQTTMessage) -> None:
            now = int(time.time() * 1000)
            try:
                reading = json.loads(message.payload)
                publish(engine.push([reading["ts_ms"]], [[reading["temp_c"]]], arrival_ms=now))
            except (ValueError, KeyError, TypeError):
                pass  # no reading: acknowledged all the same, or it would come again for ever
            client.ack(message.mid, message.qos)

        client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5, manual_ack=True)
        client.on_message = on_message
        client.on_connect = lambda *_: client.subscribe(topic, qos=1)
        client.on_subscribe = lambda *_: ready.set()
        client.connect(host)
        client.loop_start()
        ready.wait(10)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(0.05)
            reading = {"ts_ms": int(time.time() * 1000), "temp_c": random.gauss(21.0, 0.3)}
            client.publish(topic, json.dumps(reading), qos=1)
            publish(engine.advance(int(time.time() * 1000)))
        client.disconnect()
        client.loop_stop()


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 5.0, sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1")
