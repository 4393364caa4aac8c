"""An authority of our own, and what it certifies."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificates:
    """Files in PEM.

    Attributes
    ----------
    ca : Path
        Our authority.
    server, server_key : Path
        For localhost and 127.0.0.1.
    client, client_key : Path
    stranger : Path
        Another authority, which certified nothing here.
    """

    ca: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path
    stranger: Path

    @property
    def login(self) -> str:
        """The options of an address: our authority, and who we are."""
        return f"ca={self.ca}&cert={self.client}&key={self.client_key}"


def certificates(folder: Path) -> Certificates:
    """Make them with the openssl command; skips without it."""
    import pytest

    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificates")

    def make(name: str, *more: str) -> tuple[Path, Path]:
        cert, key = folder / f"{name}.pem", folder / f"{name}.key"
        command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
        subprocess.run(
            [*command.split(), "-subj", f"/CN={name}", "-keyout", str(key), "-out", str(cert), *more],
            check=True,
            capture_output=True,
        )
        key.chmod(0o644)  # servers that are started as another user read it
        return cert, key

    authority = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
    ca, ca_key = make("authority", *authority)
    by_ca = ["-CA", str(ca), "-CAkey", str(ca_key), "-addext", "basicConstraints=critical,CA:FALSE"]
    server, server_key = make("localhost", *by_ca, "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    client, client_key = make("client", *by_ca, "-addext", "extendedKeyUsage=clientAuth")
    return Certificates(ca, server, server_key, client, client_key, make("stranger", *authority)[0])
