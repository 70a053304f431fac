"""``distlock run``, as a real process: exit codes, signals, and a lock that is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import pytest

import distlock
from distlock.cli.child import Child
from distlock.operate import break_lock
from tests.cli.conftest import PATIENCE, until

#: Says that it runs, and ends by what it is sent.
_TRAPPED = """
import signal, sys
def end(number, frame): sys.exit(100 + number)
signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGUSR1, end)
print("runs", flush=True)
while True: signal.pause()
"""
TRAPPED = (sys.executable, "-c", _TRAPPED)


class Running:
    def __init__(self, environment: dict[str, str], *words: str, prepare: Any = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "distlock", "run", *words],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=prepare,
        )

    def until_it_runs(self) -> None:
        assert self._out.readline() == "runs\n"

    @property
    def _out(self) -> IO[str]:
        assert self.process.stdout is not None
        return self.process.stdout

    def end(self) -> tuple[int, str, str]:
        out, error = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, error


Start = Callable[..., Running]


@pytest.fixture
def start(environment: dict[str, str]) -> Iterator[Start]:
    """``distlock run``, with these words. Nothing of it outlives the test."""
    started = list[Running]()

    def start(*words: str, prepare: Any = None) -> Running:
        started.append(Running(environment, *words, prepare=prepare))
        return started[-1]

    yield start
    for running in started:
        with suppress(ProcessLookupError):
            os.killpg(running.process.pid, signal.SIGKILL)
        running.end()


def test_the_command_has_the_lock_its_fence_and_the_last_word(start: Start, client: distlock.Locks) -> None:
    code, out, _ = start("import", "--", "sh", "-c", 'echo "$DISTLOCK_NAME $DISTLOCK_FENCE"; exit 3').end()
    with client.lock("import") as grant:
        name, fence = out.split()
        era, number = map(int, fence.split(":"))
        assert (code, name) == (3, "import")
        assert (era, number) < grant.fence


def test_a_command_that_can_not_run_is_told_as_a_shell_does(start: Start, tmp_path: Path) -> None:
    assert start("a", "--", "no-such-command").end()[0] == 127
    (tmp_path / "text").write_text("no program")
    assert start("a", "--", str(tmp_path / "text")).end()[0] == 126
    assert start("a", "--", "sh", "-c", "kill -KILL $$").end()[0] == 128 + signal.SIGKILL


def test_a_lock_that_stays_taken_has_an_exit_code_of_its_own(start: Start, client: distlock.Locks) -> None:
    with client.lock("import"):
        code, out, error = start("--nonblock", "import", "--", "echo", "it ran").end()
    assert (code, out) == (75, "")
    assert "'import'" in error
    assert start("-n", "-w", "1", "import", "--", "true").end()[0] == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_signals_are_passed_on(start: Start, number: int, client: distlock.Locks) -> None:
    running = start("import", "--", *TRAPPED)
    running.until_it_runs()
    assert client.inspect("import").holder is not None
    running.process.send_signal(number)
    assert running.end()[0] == 100 + number
    assert client.inspect("import").holder is None


def test_what_nohup_ignores_stays_ignored(start: Start) -> None:
    running = start("import", "--", *TRAPPED, prepare=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    running.until_it_runs()
    running.process.send_signal(signal.SIGHUP)
    running.process.send_signal(signal.SIGTERM)
    assert running.end()[0] == 100 + signal.SIGTERM


def test_who_waits_may_be_interrupted_and_leaves_nothing(start: Start, client: distlock.Locks) -> None:
    with client.lock("import"):
        running = start("--no-timeout", "import", "--", "echo", "it ran")
        until(lambda: client.inspect("import").waiting == 1)
        running.process.send_signal(signal.SIGTERM)
        assert running.end()[:2] == (128 + signal.SIGTERM, "")
        until(lambda: client.inspect("import").waiting == 0)


@pytest.mark.parametrize(("words", "told"), [([], signal.SIGTERM), (["--on-lost", "usr1"], signal.SIGUSR1)])
def test_the_command_is_told_when_the_lock_is_lost(
    start: Start, client: distlock.Locks, words: list[str], told: int
) -> None:
    script = _TRAPPED.replace("sys.exit(100 + number)", "print(number, flush=True); sys.exit(0)")
    running = start(*words, "import", "--", sys.executable, "-c", script)
    running.until_it_runs()
    assert break_lock(client.namespace, client.inspect("import"), by="ann")
    code, out, error = running.end()
    assert (code, out) == (76, f"{int(told)}\n")
    assert "'import' was lost" in error


def test_a_command_whose_lock_is_lost_before_it_has_started_is_told_too() -> None:
    child = Child()
    child.tell(signal.SIGTERM)
    assert child.run(["sleep", "10"], {}) == 128 + signal.SIGTERM


def test_a_command_that_may_not_be_sent_a_signal_keeps_its_lock(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(pid: int, number: int) -> None:
        raise PermissionError("as sudo has it")

    child = Child()
    child.tell(signal.SIGTERM)
    monkeypatch.setattr(os, "kill", refuse)
    assert child.run(["sleep", "0.2"], {}) == 0, "it was awaited"
    assert "may not be sent" in capsys.readouterr().err


def test_the_list_has_the_command_and_not_its_arguments(start: Start, client: distlock.Locks) -> None:
    running = start("import", "--", *TRAPPED, "--password=secret")
    running.until_it_runs()
    until(lambda: bool(list(client.list())))
    (listed,) = client.list()
    assert listed.party.where == f"{Path(sys.executable).name} (distlock run)"
    assert listed.party.pid == running.process.pid
    running.process.terminate()
    running.end()
