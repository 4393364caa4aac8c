"""A PostgreSQL server of our own: it can be stopped and killed without disturbing anybody."""

import glob
import os
import shutil
import socket
import subprocess
import tempfile

_PROGRAMS = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda folder: int(folder.split("/")[4]))


class PostgresNode:
    """Made and started by the constructor. The server refuses to run as root: it is `postgres` then.

    Raises
    ------
    FileNotFoundError
        PostgreSQL's programs are not here.
    """

    def __init__(self) -> None:
        self._programs = os.path.dirname(shutil.which("initdb") or f"{([*_PROGRAMS, ''])[-1]}/initdb")
        if not os.access(f"{self._programs}/initdb", os.X_OK):
            raise FileNotFoundError("initdb is not installed")
        self._user = None if os.geteuid() else "postgres"
        with socket.socket() as door:
            door.bind(("127.0.0.1", 0))
            self._port = door.getsockname()[1]
        self._folder = tempfile.mkdtemp(prefix="fcstream-postgres-", dir="/tmp")  # the socket's path must be short
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        self.url = f"postgresql://postgres@127.0.0.1:{self._port}/postgres"
        self._run("initdb", "-D", f"{self._folder}/data", "-A", "trust", "-U", "postgres")
        self.start()

    def start(self) -> None:
        settings = f"-p {self._port} -k {self._folder} -c listen_addresses=127.0.0.1"
        self._run("pg_ctl", "-D", f"{self._folder}/data", "-w", "-l", f"{self._folder}/log", "-o", settings, "start")

    def stop(self, mode: str) -> None:
        """`fast`, or `immediate`: a crash."""
        self._run("pg_ctl", "-D", f"{self._folder}/data", "-w", "-m", mode, "stop")

    def close(self) -> None:
        try:
            self.stop("immediate")
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, program: str, *words: str) -> None:
        # The server inherits what is open here: a pipe would stay open as long as it runs.
        command = [f"{self._programs}/{program}", *words]
        subprocess.run(
            command,
            user=self._user,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            check=True,
            timeout=300,
        )
