"""A page's own lines, served by two gunicorn instances and bought from by many."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from loadtest.servers.processes import free_port
from tests.redis_server import eventually

DOCS = Path(__file__).resolve().parents[2] / "docs"
BUYERS = 16
PURCHASES = 15
STOCK = 60


def snippets(page: str) -> list[str]:
    """The Python blocks of a page."""
    return code_blocks((DOCS / page).read_text(), "python")


def own_environment() -> dict[str, str]:
    """The environment without what pytest-django has put there for itself."""
    return {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}


def code_blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def without_decorator(snippet: str) -> str:
    """The control: the same lines but one."""
    lines = [line for line in snippet.splitlines() if not line.startswith("@distributed_lock")]
    assert len(lines) == len(snippet.splitlines()) - 1
    return "\n".join(lines)


@contextlib.contextmanager
def two_instances(
    folder: Path, application: str, python: Path = Path(sys.executable), threads: int = 8
) -> Iterator[list[int]]:
    """Serve *application* twice. Gives the ports."""
    ports = [free_port(), free_port()]
    with contextlib.ExitStack() as stack:
        for port in ports:
            command = [
                "-m",
                "gunicorn",
                "--threads",
                str(threads),
                "--bind",
                f"127.0.0.1:{port}",
                application,
            ]
            out = stack.enter_context((folder / f"{port}.log").open("wb"))
            server = subprocess.Popen(
                [python, *command], cwd=folder, env=own_environment(), stdout=out, stderr=out
            )
            stack.callback(server.wait, 30)
            stack.callback(server.terminate)
        for port in ports:
            eventually(lambda port=port: listens(port), f"gunicorn listens on {port}", 60)  # type: ignore[misc]
        yield ports


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


#: Nothing was bought, and one may come again: waited in vain, or refused at once.
REFUSED = {423, 503}


def buy(
    ports: list[int], headers: Mapping[str, str], buyers: int = BUYERS, purchases: int = PURCHASES
) -> list[int]:
    """Everybody buys from both instances in turns; the refused come back. Gives the other statuses."""
    statuses: list[int] = []
    start = threading.Barrier(buyers)

    def buyer(number: int) -> None:
        start.wait()
        for turn in range(purchases):
            url = f"http://127.0.0.1:{ports[(number + turn) % 2]}/products/1/reduce"
            request = urllib.request.Request(url, method="POST", headers=dict(headers))
            while (answered := _answer(request))[0] in REFUSED:
                time.sleep(answered[1])
            statuses.append(answered[0])

    threads = [threading.Thread(target=buyer, args=(number,)) for number in range(buyers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses


def _answer(request: urllib.request.Request) -> tuple[int, float]:
    """The status, and after how many seconds one may come back."""
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            return response.status, 0.0
    except urllib.error.HTTPError as error:
        with error:
            return error.code, float(error.headers.get("Retry-After", 0))
