"""A rush for one product does not take the server's threads from the others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.redis_server import eventually
from tests.web.flood_server import ROOT, THREADS, Server

#: Callers that may wait, below the number of threads.
CAP = 8
RUSH = 40
HOLDER = """
import sys
import distlock
with distlock.connect(sys.argv[1]).lock("product_1"):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held_elsewhere(location: str) -> Iterator[subprocess.Popen[str]]:
    """Another process holds product 1 until its stdin is closed."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, location],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "held\n"
        yield holder
    finally:
        holder.stdin.close()
        holder.wait(30)
        holder.stdout.close()


@pytest.fixture(params=["django", "flask"])
def framework(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.attack("A21")
@pytest.mark.fault("F39")
def test_a_rush_for_one_product_leaves_threads_for_the_others(framework: str, tmp_path: Path) -> None:
    server = Server(framework, tmp_path, cap=CAP)
    with server.running():
        with held_elsewhere(server.location):
            clients = server.rush(1, RUSH)
            eventually(
                lambda: len(server.answers) == RUSH - CAP, "all but those who may wait are refused", 60
            )
            others = [server.post(2) for _ in range(20)]
            assert len(server.answers) == RUSH - CAP  # Product 1 is held still.
        for client in clients:
            client.join(60)
    assert [status for status, _, _ in others] == [200] * 20
    for status, headers, body in server.answers[: RUSH - CAP]:
        assert (status, json.loads(body)["code"]) == (503, "lock_queue_full")
        assert int(headers["Retry-After"]) >= 1
    assert [status for status, _, _ in server.answers[RUSH - CAP :]] == [200] * CAP


@pytest.mark.attack("A21", control=True)
@pytest.mark.fault("F39", control=True)
def test_the_control_without_a_cap_serves_nobody_else(framework: str, tmp_path: Path) -> None:
    server = Server(framework, tmp_path)
    with server.running():
        with held_elsewhere(server.location) as holder:
            clients = server.rush(1, RUSH)
            eventually(lambda: len(server.noted()) == THREADS, "every thread waits for product 1", 60)
            clients += server.rush(2, 1)
            # Nobody leaves, so nobody can come in, however long one looks.
            assert server.noted() == ["in /buy/1"] * THREADS
            assert holder.poll() is None
        for client in clients:
            client.join(60)
    assert [status for status, _, _ in server.answers] == [200] * (RUSH + 1)
    noted = server.noted()
    assert noted.index("in /buy/2") > noted.index("out /buy/1")
