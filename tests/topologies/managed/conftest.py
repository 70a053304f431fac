"""A Redis server as a hosting company has it: TLS only, a user with the least rights, commands taken away."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.backends.redis.test_permissions import LEAST_RULES
from tests.redis_server import PATIENCE, RedisServer

TAKEN_AWAY = ("CONFIG", "SCRIPT", "KEYS", "DEBUG", "MONITOR", "SHUTDOWN", "FUNCTION")
CERTIFICATE = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -keyout key.pem -out cert.pem"


class ManagedServer(RedisServer):
    def __init__(self, certificate: Path, *more: str) -> None:
        super().__init__()
        files = ["--tls-cert-file", str(certificate), "--tls-key-file", str(certificate.with_name("key.pem"))]
        # The last --port counts.
        arguments = ["--port", "0", "--tls-port", str(self.port), "--tls-auth-clients", "no", *files]
        for command in TAKEN_AWAY:
            arguments += ["--rename-command", command, ""]
        self._arguments = (*arguments, *more)
        self._certificate = str(certificate)
        self.client.close()
        tls = {"ssl": True, "ssl_ca_certs": self._certificate}
        self.client = redis.Redis("127.0.0.1", self.port, socket_timeout=PATIENCE, **tls)

    @property
    def url(self) -> str:
        return f"rediss://shop:secret@127.0.0.1:{self.port}?ssl_ca_certs={self._certificate}"


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    names = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*CERTIFICATE.split(), *names], cwd=folder, check=True, capture_output=True)
    return folder / "cert.pem"


@pytest.fixture(scope="session")
def managed(certificate: Path) -> Iterator[ManagedServer]:
    server = ManagedServer(certificate)
    try:
        server.start()
        server.tell("ACL", "SETUSER", "shop", "on", ">secret", "-@all", *LEAST_RULES)
        yield server
    finally:
        server.close()
