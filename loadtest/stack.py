"""The stack of one scenario: database, lock service, instances, nginx."""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from demo_shop.configuration import VAR, Configuration
from demo_shop.ledger import Ledger, open_sale, read_ledger
from loadtest import nginx
from loadtest.child import Child
from loadtest.databases import open_database
from loadtest.lock_services import BACKENDS
from loadtest.ports import check_free, free_port

ROOT = Path(__file__).resolve().parents[1]
APPLICATIONS = {
    "django": "demo_shop.django_shop.wsgi:application",
    "flask": "demo_shop.flask_shop.app:app",
}
#: More than there are buyers: who waits for the lock occupies a thread, and must not keep others out.
THREADS = 64


class Stack:
    """Started by ``with``; ended, with everything that it started, by leaving it.

    *shop* configures all instances; its ``instance``, ``database`` and ``lock`` are filled in.
    """

    def __init__(
        self,
        frameworks: Sequence[str],
        shop: Configuration,
        backend: str = "file",
        database: str = "sqlite",
        port: int = 0,
    ) -> None:
        self.frameworks, self.backend, self.port = tuple(frameworks), backend, port
        self.names = tuple(f"{name}-{number}" for number, name in enumerate(frameworks, 1))
        self.shop, self.database = shop, database
        self.instances: list[Child] = []
        self.instance_ports: list[int] = []
        self._cleanup = ExitStack()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        nginx.find_nginx()
        if self.port:
            check_free(self.port)
        VAR.mkdir(exist_ok=True)
        sweep(VAR, "run-")
        sweep(Path(tempfile.gettempdir()), "distlock-run-")
        with ExitStack() as cleanup:
            self.directory = Path(tempfile.mkdtemp(prefix=f"run-{os.getpid()}-", dir=VAR))
            cleanup.callback(shutil.rmtree, self.directory, ignore_errors=True)
            lock = cleanup.enter_context(BACKENDS[self.backend](self.directory))
            self.database = cleanup.enter_context(open_database(self.database, self.directory))
            self.shop = replace(self.shop, database=self.database, lock=lock)
            self.restock()
            for name, framework in zip(self.names, self.frameworks, strict=True):
                self._start_instance(cleanup, name, framework)
            for child, port in zip(self.instances, self.instance_ports, strict=True):
                child.wait_until(lambda port=port: answers(port))  # type: ignore[misc]
            self._start_nginx(cleanup)
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cleanup.close()

    def restock(self) -> None:
        open_sale(self.database, self.shop.stock, self.shop.products)

    def keep_logs(self, name: str) -> Path:
        """Copy the servers' logs to where they outlive the stack."""
        kept = VAR / "logs" / name
        kept.mkdir(parents=True, exist_ok=True)
        for log in self.directory.glob("*.log"):
            shutil.copy(log, kept)
        return kept

    def ledger(self) -> Ledger:
        return read_ledger(self.database)

    def _start_instance(self, cleanup: ExitStack, name: str, framework: str) -> None:
        # The socket is bound here and handed over, so that nobody can take its port in between.
        with socket.create_server(("127.0.0.1", 0)) as listener:
            command = [sys.executable, "-m", "gunicorn", APPLICATIONS[framework]]
            command += ["--bind", f"fd://{listener.fileno()}", "--workers", "1", "--no-control-socket"]
            command += ["--worker-class", "gthread", "--threads", str(THREADS), "--keep-alive", "75"]
            command += ["--chdir", str(ROOT), "--graceful-timeout", "2", "--log-level", "warning"]
            child = Child(
                name,
                command,
                self.directory / f"{name}.log",
                {**replace(self.shop, instance=name).to_environment(), "PYTHONPATH": str(ROOT)},
                pass_fds=[listener.fileno()],
            )
            cleanup.callback(child.stop)
            self.instances.append(child)
            self.instance_ports.append(listener.getsockname()[1])

    def _start_nginx(self, cleanup: ExitStack) -> None:
        self.port = self.port or free_port()
        command = nginx.configure(self.directory, self.port, self.instance_ports)
        child = Child("nginx", command, self.directory / "nginx.log")
        cleanup.callback(child.stop)
        child.wait_until(lambda: answers(self.port))


def sweep(parent: Path, prefix: str) -> None:
    """Remove the directories of runs that were killed, and could not do it themselves."""
    for left in parent.glob(f"{prefix}*-*"):
        owner = left.name.removeprefix(prefix).split("-")[0]
        if owner.isdecimal() and not is_alive(int(owner)):
            shutil.rmtree(left, ignore_errors=True)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's, but there
    return True


def answers(port: int) -> bool:
    """Whether the shop answers there, with the shop's own words."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/products/1")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
