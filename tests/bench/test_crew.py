"""The processes of a crew end with the run, however that ends."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench import crew
from bench.crew import Crew
from bench.locks import Lock

PATIENCE = 120.0
#: Longer than any test waits, seconds.
LONG = 1000


def be_busy(lock: Lock) -> None:
    print(os.getpid(), flush=True)
    time.sleep(LONG)


def run() -> None:
    Crew(1, "no lock", "").do([be_busy])


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_busy_process_ends_when_its_run_is_killed() -> None:
    command = [sys.executable, "-c", "from tests.bench.test_crew import run\nrun()"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout
        pid = int(started.stdout.readline())
        assert is_running(pid)
        started.kill()
        deadline = time.monotonic() + PATIENCE
        while is_running(pid):
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_a_busy_process_is_not_waited_for_when_its_run_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "GRACE", 0.1)
    made = Crew(1, "no lock", "")
    (pid,) = made.pids
    made._members[0][1].send(be_busy)
    began = time.monotonic()
    made.end()
    assert not is_running(pid)
    assert time.monotonic() - began < LONG / 2
