"""The workers of gunicorn, with the lines of the page: their numbers add up; those that end are forgotten."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from loadtest.servers.processes import free_port, listens
from tests.metrics.page import block
from tests.redis_server import eventually

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("how", ["", "--preload"], ids=["each its own app", "preloaded"])
def test_workers_add_up_and_one_that_is_killed_holds_nothing(tmp_path: Path, how: str) -> None:
    port = free_port()
    numbers = tmp_path / "numbers"
    numbers.mkdir()
    (tmp_path / "gunicorn.conf.py").write_text(block("gunicorn.conf.py"))
    command = [sys.executable, "-m", "gunicorn", "--workers", "2", "--bind", f"127.0.0.1:{port}"]
    command += [
        "--config",
        str(tmp_path / "gunicorn.conf.py"),
        "--no-control-socket",
        *how.split(),
        "tests.metrics.site:app",
    ]
    about = {"PROMETHEUS_MULTIPROC_DIR": str(numbers), "LOCATION": (tmp_path / "locks").as_uri()}
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **about}, stderr=log)

    def ask(path: str, method: str = "POST") -> str:
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            text: str = answer.read().decode()
            return text

    def value(metric: str) -> float:
        shown = ask("/metrics", "GET")
        return sum(float(one) for one in re.findall(rf"^{metric}(?:{{.*}})? (\S+)$", shown, re.MULTILINE))

    try:
        eventually(lambda: server.poll() is not None or listens(port), "gunicorn listens", pause=0.1)
        for number in range(20):
            assert ask(f"/buy/{number}") == "bought"
        assert value("distlock_wait_seconds_count") == 20
        worker = int(ask("/keep"))
        assert value("distlock_holding") == 1
        os.kill(worker, signal.SIGKILL)
        eventually(lambda: value("distlock_holding") == 0, "the dead worker holds nothing", pause=0.1)
        assert value("distlock_wait_seconds_count") == 21
    finally:
        server.terminate()
        server.wait(60)
