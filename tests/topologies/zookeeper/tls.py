"""A ZooKeeper server that wants certificates of its clients, and a login."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtest.servers.processes import free_port
from tests.docs.blocks import blocks
from tests.zookeeper_server import CHROOT, JARS, ZooKeeperServer

PAGE = "reference/backends/zookeeper.md"
CERTIFICATE = "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=test -addext subjectAltName=IP:127.0.0.1"


def certificate(folder: Path, name: str, days: int = 2) -> Path:
    """Signed by itself, with its key in the same file."""
    made = [*CERTIFICATE.split(), "-days", str(days), "-keyout", f"{name}.key", "-out", f"{name}.crt"]
    subprocess.run(made, cwd=folder, check=True, capture_output=True)
    both = folder / f"{name}.pem"
    both.write_text((folder / f"{name}.key").read_text() + (folder / f"{name}.crt").read_text())
    return both


def documented(word: str) -> str:
    """The block of docs/reference/backends/zookeeper.md that has *word*."""
    (block,) = (one for one in blocks() if one.page == PAGE and word in one.text)
    return block.text


class TlsZooKeeperServer(ZooKeeperServer):
    """Beside its own port it has one without TLS, for the tests to look at it."""

    # Debian's manifest leaves out what Netty needs for TLS.
    jars = (*JARS, "/usr/share/java/netty-codec.jar", "/usr/share/java/netty-resolver.jar")
    # What the locks' user has made nobody else can read.
    admin_login = (("digest", "shop:secret"),)

    def __init__(self, folder: Path) -> None:
        self.tls_port = free_port()
        self.certificate, self.client = certificate(folder, "server"), certificate(folder, "client")
        trusted = folder / "trusted.pem"
        trusted.write_text((folder / "client.crt").read_text())
        ours = {
            "secureClientPort": self.tls_port,
            "ssl.keyStore.location": self.certificate,
            "ssl.trustStore.location": trusted,
        }
        lines = documented("secureClientPort=").splitlines()
        settings: dict[str, object] = dict(line.split("=", 1) for line in lines)
        super().__init__(**settings | ours, secureClientPortAddress="127.0.0.1")

    @property
    def url(self) -> str:
        mine = f"&ssl_certfile={self.client}&ssl_keyfile={self.client.with_suffix('.key')}"
        return f"{self.tls_url}?ssl_ca_certs={self.certificate.with_suffix('.crt')}{mine}"

    @property
    def tls_url(self) -> str:
        """Without what TLS needs."""
        return f"zookeepers://shop:secret@127.0.0.1:{self.tls_port}{CHROOT}"


@pytest.fixture(scope="session")
def tls_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsZooKeeperServer]:
    server = TlsZooKeeperServer(tmp_path_factory.mktemp("tls"))
    try:
        server.start()
        yield server
    finally:
        server.close()
