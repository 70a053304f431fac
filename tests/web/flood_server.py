"""A server that is flooded."""

from __future__ import annotations

import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loadtest.servers.processes import free_port
from tests.redis_server import eventually
from tests.web.quickstart import listens, own_environment

ROOT = Path(__file__).parents[2]
THREADS = 16


class Server:
    """One gunicorn process with 16 threads, and everything that was asked of it.

    *flood*: what `tests.web.flood_site` is told.
    """

    def __init__(self, framework: str, folder: Path, **flood: object) -> None:
        self.location = (folder / "locks").as_uri()
        self.log = folder / f"{framework}.noted"
        self.answers: list[tuple[int, dict[str, str], str]] = []
        self.port = free_port()
        self._command = ["--threads", str(THREADS), "--bind", f"127.0.0.1:{self.port}"]
        self._command.append(f"tests.web.flood_site:{framework}_site()")
        self._environment = own_environment() | {"FLOOD_LOCATION": self.location, "FLOOD_LOG": str(self.log)}
        self._environment |= {f"FLOOD_{word.upper()}": str(value) for word, value in flood.items()}
        self._out = folder / f"{framework}.log"
        self._clients: list[threading.Thread] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        with self._out.open("wb") as out:
            command = [sys.executable, "-m", "gunicorn", *self._command]
            server = subprocess.Popen(command, cwd=ROOT, env=self._environment, stdout=out, stderr=out)
            try:
                eventually(lambda: listens(self.port), "gunicorn listens", 30)
                yield
            finally:
                server.terminate()
                server.wait(30)
                for client in self._clients:
                    client.join(30)

    def post(self, product: int) -> tuple[int, dict[str, str], str]:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/buy/{product}", method="POST")
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                return response.status, dict(response.headers), response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, dict(error.headers), error.read().decode()

    def rush(self, product: int, count: int) -> list[threading.Thread]:
        """*count* clients at once."""
        clients = [
            threading.Thread(target=lambda: self.answers.append(self.post(product))) for _ in range(count)
        ]
        self._clients += clients
        for client in clients:
            client.start()
        return clients

    def noted(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []
