"""The stack of a scenario: database, lock service, instances, and nginx in front of them."""

from __future__ import annotations

import http.client
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from string import Template
from types import TracebackType
from typing import Self

from demo_shop import remote_services
from demo_shop.configuration import VAR, Configuration
from demo_shop.ledger import open_sale, read_ledger
from demo_shop.sale import Ledger
from loadtest.scenario import ASGI, QUART
from loadtest.servers.databases import open_database
from loadtest.servers.lock_services import open_lock_service, open_redis
from loadtest.servers.processes import ChildProcess, StackError, check_free, free_port, workspace

NGINX = Template("""\
daemon off;
# nginx runs as one process, as our user, also when root runs the demo.
master_process off;
pid "$directory/nginx.pid";
error_log "$directory/nginx.log";
events { worker_connections 1024; }
http {
    access_log off;
    client_body_temp_path "$directory/client_body";
    proxy_temp_path "$directory/proxy";
    fastcgi_temp_path "$directory/fastcgi";
    uwsgi_temp_path "$directory/uwsgi";
    scgi_temp_path "$directory/scgi";

    upstream shop {
        # With max_fails=0, nginx never leaves out an instance because it was slow once.
$servers
        keepalive 64;
        # This is shorter than gunicorn's, so that nginx never uses a connection while gunicorn closes it.
        keepalive_timeout 30s;
    }
    server {
        listen 127.0.0.1:$port;
        location / {
            proxy_pass http://shop;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $$host;
            # The buyer gets an error if a purchase fails half-way. It is never sent to the other instance.
            proxy_next_upstream off;
            # This is longer than the longest wait for a lock.
            proxy_read_timeout 60s;
        }
$more
    }
}
""")


def find_nginx() -> str:
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if not found:
        raise StackError(
            "nginx is not installed. Run: apt-get install nginx-light (or scripts/demo, which does)."
        )
    return found


NGINX_SALES = Template("""\
        location /sale {
            proxy_pass http://127.0.0.1:$port;
        }
""")


def configure_nginx(directory: Path, port: int, upstreams: Sequence[int], sales: int = 0) -> list[str]:
    """Write nginx's configuration, and return the command that serves it.

    It distributes requests in turn, sends none twice, and keeps all its files in *directory*. *sales*: the
    port of ``/sale``; 0: there is none.
    """
    servers = "\n".join(f"        server 127.0.0.1:{upstream} max_fails=0;" for upstream in upstreams)
    file = directory / "nginx.conf"
    more = NGINX_SALES.substitute(port=sales) if sales else ""
    file.write_text(NGINX.substitute(directory=directory, port=port, servers=servers, more=more))
    # -e: otherwise nginx would open its default error log before it reads the configuration.
    return [find_nginx(), "-p", str(directory), "-e", str(directory / "nginx.log"), "-c", str(file)]


ROOT = Path(__file__).resolve().parents[1]
APPLICATIONS = {
    "django": "demo_shop.django_shop.wsgi:application",
    "flask": "demo_shop.flask_shop.app:app",
}
#: The applications that uvicorn serves, and not gunicorn.
ASGI_APPLICATIONS = {
    ASGI: "demo_shop.django_shop.asgi:application",
    QUART: "demo_shop.quart_shop.app:app",
}
#: There are fewer threads than buyers, as in a real shop: the other buyers wait in the server's queue.
THREADS = 16


@dataclass(frozen=True, slots=True)
class Front:
    """The nginx in front of some of the instances."""

    port: int
    #: The instances behind it.
    names: tuple[str, ...]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class Stack:
    """Database, lock service, instances and nginx. Leaving the ``with`` ends everything that it started.

    *shop* configures all instances; its ``instance``, ``database``, ``lock`` and ``goods`` are filled in.
    *backend* and *database* name what to start, or are URLs of servers that run already. *applications*: the
    application that gunicorn serves for each of *frameworks*, with *threads* threads. *asgi_applications*:
    the same for uvicorn. *sales*: serves ``/sale`` for the shop's page, and yields its port: see
    `loadtest.open_shop`.
    """

    def __init__(
        self,
        frameworks: Sequence[str],
        shop: Configuration,
        backend: str = "file",
        database: str = "sqlite",
        port: int = 0,
        with_goods: bool = False,
        with_journal: bool = False,
        applications: Mapping[str, str] = APPLICATIONS,
        threads: int = THREADS,
        asgi_applications: Mapping[str, str] = ASGI_APPLICATIONS,
        sales: Callable[[Stack], AbstractContextManager[int]] | None = None,
    ) -> None:
        self.frameworks, self.backend, self.port = tuple(frameworks), backend, port
        self.with_goods, self.with_journal = with_goods, with_journal
        self.applications, self.threads = applications, threads
        self.asgi_applications = asgi_applications
        self.names = tuple(f"{name}-{number}" for number, name in enumerate(frameworks, 1))
        self.shop, self.database = replace(shop, sales=sales is not None), database
        self.sales, self.sales_port = sales, 0
        #: A sale of the page and each later `restock` lock it: units added during a sale would be sold twice.
        self.shelf = threading.Lock()
        self.instances: list[ChildProcess] = []
        self.instance_ports: list[int] = []
        self._fronts: dict[tuple[int, ...], Front] = {}
        self._cleanup = ExitStack()

    @property
    def url(self) -> str:
        return self.front.url

    def __enter__(self) -> Self:
        find_nginx()
        if self.port:
            check_free(self.port)
        with ExitStack() as cleanup:
            self.directory = cleanup.enter_context(workspace())
            lock = cleanup.enter_context(open_lock_service(self.backend, self.directory))
            if self.with_goods:
                self.shop = replace(self.shop, goods=cleanup.enter_context(open_redis(self.directory)))
            self.database = cleanup.enter_context(open_database(self.database, self.directory))
            self.shop = replace(self.shop, database=self.database, lock=lock)
            if self.with_journal:
                self.shop = replace(self.shop, journal=str(self.directory / "journal"))
            self.restock()
            if self.sales:
                self.sales_port = cleanup.enter_context(self.sales(self))
            for name, framework in zip(self.names, self.frameworks, strict=True):
                self._start_instance(cleanup, name, framework)
            for child, port in zip(self.instances, self.instance_ports, strict=True):
                child.wait_until(lambda port=port: answers(port))  # type: ignore[misc]
            self._cleanup = cleanup.pop_all()
            try:
                self.front = self.open_front(range(len(self.names)), self.port)
            except BaseException:
                self._cleanup.close()
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cleanup.close()

    def restock(self) -> None:
        open_sale(self.database, self.shop.stock, self.shop.products, self.shop.commit_pause)
        if self.with_goods:
            remote_services.open_goods_sale(self.shop.goods, self.shop.stock)

    def keep_logs(self, name: str) -> Path:
        """Copy the servers' logs to a directory that outlives the stack, and return it."""
        kept = VAR / "logs" / name
        kept.mkdir(parents=True, exist_ok=True)
        for log in self.directory.glob("*.log"):
            shutil.copy(log, kept)
        return kept

    def ledger(self) -> Ledger:
        return (
            remote_services.read_goods_ledger(self.shop.goods)
            if self.with_goods
            else read_ledger(self.database)
        )

    def front_for(self, frameworks: Sequence[str]) -> Front:
        """Return the nginx in front of the first instances of these frameworks, and start it if need be."""
        left, behind = list(enumerate(self.frameworks)), []
        for framework in frameworks:
            found = next(one for one in left if one[1] == framework)
            left.remove(found)
            behind.append(found[0])
        key = tuple(behind)
        if key not in self._fronts:
            self._fronts[key] = self.open_front(behind)
        return self._fronts[key]

    def open_front(self, behind: Sequence[int], port: int = 0) -> Front:
        """Start nginx in front of the instances with these numbers."""
        port = port or free_port()
        directory = self.directory / f"front-{port}"
        directory.mkdir()
        ports = [self.instance_ports[number] for number in behind]
        command = configure_nginx(directory, port, ports, self.sales_port)
        child = ChildProcess("nginx", command, self.directory / f"nginx-{port}.log")
        self._cleanup.callback(child.stop)
        child.wait_until(lambda: answers(port))
        return Front(port, tuple(self.names[number] for number in behind))

    def _start_instance(self, cleanup: ExitStack, name: str, framework: str) -> None:
        start = self._start_asgi if framework in self.asgi_applications else self._start_wsgi
        start(cleanup, name, framework)

    def _start_wsgi(self, cleanup: ExitStack, name: str, framework: str) -> None:
        # gunicorn inherits a bound socket, so that nobody else can take its port.
        with socket.create_server(("127.0.0.1", 0)) as listener:
            command = ["gunicorn", self.applications[framework]]
            command += ["--bind", f"fd://{listener.fileno()}", "--workers", "1", "--no-control-socket"]
            command += ["--worker-class", "gthread", "--threads", str(self.threads), "--keep-alive", "75"]
            command += ["--chdir", str(ROOT), "--graceful-timeout", "2", "--log-level", "warning"]
            port = listener.getsockname()[1]
            self._start(cleanup, name, command, port, [listener.fileno()])

    def _start_asgi(self, cleanup: ExitStack, name: str, framework: str) -> None:
        # uvicorn would take an inherited socket for a Unix socket, and delay its answers.
        port = free_port()
        command = ["uvicorn", self.asgi_applications[framework], "--host", "127.0.0.1", "--port", str(port)]
        command += ["--lifespan", "off", "--timeout-keep-alive", "75", "--timeout-graceful-shutdown", "2"]
        command += ["--app-dir", str(ROOT), "--no-access-log", "--log-level", "warning"]
        self._start(cleanup, name, command, port)

    def _start(
        self, cleanup: ExitStack, name: str, command: list[str], port: int, pass_fds: Sequence[int] = ()
    ) -> None:
        child = ChildProcess(
            name,
            [sys.executable, "-m", *command],
            self.directory / f"{name}.log",
            {**replace(self.shop, instance=name).to_environment(), "PYTHONPATH": str(ROOT)},
            pass_fds=pass_fds,
        )
        cleanup.callback(child.stop)
        self.instances.append(child)
        self.instance_ports.append(port)


def answers(port: int) -> bool:
    """Return whether the shop itself answers at *port*."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/products/1")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
