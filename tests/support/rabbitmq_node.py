"""A RabbitMQ of our own, with streams and TLS: it can be restarted without disturbing anybody."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from support.certificates import Certificates
from support.helpers import free_port

_DEBIAN = "/usr/lib/rabbitmq/bin/rabbitmq-server"  # the one in the path would change the user
_START_S = 300.0


class Node:
    """Starts at once and is there after some seconds: `wait`. With TLS it asks for a client's certificate."""

    def __init__(self, folder: Path, files: Certificates) -> None:
        self._folder = folder
        self.queues, self.streams, self.queues_tls, self.streams_tls, distribution = (free_port() for _ in range(5))
        (folder / "enabled_plugins").write_text("[rabbitmq_stream].")
        (folder / "rabbit.conf").write_text(
            f"""\
listeners.tcp.1 = 127.0.0.1:{self.queues}
listeners.ssl.1 = 127.0.0.1:{self.queues_tls}
stream.listeners.tcp.1 = 127.0.0.1:{self.streams}
stream.listeners.ssl.1 = 127.0.0.1:{self.streams_tls}
stream.advertised_host = localhost
ssl_options.cacertfile = {files.ca}
ssl_options.certfile = {files.server}
ssl_options.keyfile = {files.server_key}
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = true
"""
        )
        places = {
            "NODENAME": f"fcstream-{os.getpid()}@localhost",
            "DIST_PORT": str(distribution),
            "MNESIA_BASE": str(folder / "data"),
            "LOG_BASE": str(folder / "log"),
            "ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "CONFIG_FILE": str(folder / "rabbit.conf"),
            "CONF_ENV_FILE": "/dev/null",
            "ADVANCED_CONFIG_FILE": str(folder / "none"),
            "SERVER_ADDITIONAL_ERL_ARGS": "-setcookie ours +S 2:2",
        }
        self._environment = {**os.environ, "HOME": str(folder), "ERL_EPMD_ADDRESS": "127.0.0.1"}
        self._environment |= {f"RABBITMQ_{name}": value for name, value in places.items()}
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        command = _DEBIAN if os.path.exists(_DEBIAN) else shutil.which("rabbitmq-server")
        if command is not None:
            with open(self._folder / "output", "ab") as output:
                self._process = subprocess.Popen(
                    [command], env=self._environment, stdout=output, stderr=output, start_new_session=True
                )

    def wait(self) -> Node:
        """Until it listens everywhere."""
        if self._process is None:
            raise FileNotFoundError("rabbitmq-server is not installed")
        until = time.monotonic() + _START_S
        for port in (self.queues, self.streams, self.queues_tls, self.streams_tls):
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    if time.monotonic() > until or self._process.poll() is not None:
                        raise RuntimeError((self._folder / "output").read_text()[-2000:]) from None
                    time.sleep(0.05)
        return self

    def stop(self, how: int = signal.SIGTERM) -> None:
        """SIGTERM tells its clients, SIGKILL does not."""
        process, self._process = self._process, None
        if process is not None:
            os.killpg(process.pid, how)
            process.wait(300)
