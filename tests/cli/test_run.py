"""``distlock run``, as a real process: exit codes, signals, and a lock that is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest

import distlock
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


def ran(environment: dict[str, str], *words: str) -> tuple[int, str, str]:
    return Running(environment, *words).end()


def test_the_command_has_the_lock_its_fence_and_the_last_word(
    environment: dict[str, str], client: distlock.Locks
) -> None:
    code, out, _ = ran(
        environment, "import", "--", "sh", "-c", 'echo "$DISTLOCK_NAME $DISTLOCK_FENCE"; exit 3'
    )
    with client.lock("import") as grant:
        name, fence = out.split()
        era, number = map(int, fence.split(":"))
        assert (code, name) == (3, "import")
        assert (era, number) < grant.fence


def test_a_command_that_can_not_run_is_told_as_a_shell_does(
    environment: dict[str, str], tmp_path: Path
) -> None:
    assert ran(environment, "a", "--", "no-such-command")[0] == 127
    (tmp_path / "text").write_text("no program")
    assert ran(environment, "a", "--", str(tmp_path / "text"))[0] == 126
    assert ran(environment, "a", "--", "sh", "-c", "kill -KILL $$")[0] == 128 + signal.SIGKILL


def test_a_lock_that_stays_taken_has_an_exit_code_of_its_own(
    environment: dict[str, str], client: distlock.Locks
) -> None:
    with client.lock("import"):
        code, out, error = ran(environment, "--nonblock", "import", "--", "echo", "it ran")
    assert (code, out) == (75, "")
    assert "'import'" in error
    assert ran(environment, "-n", "-w", "1", "import", "--", "true")[0] == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_signals_are_passed_on(environment: dict[str, str], number: int, client: distlock.Locks) -> None:
    running = Running(environment, "import", "--", *TRAPPED)
    running.until_it_runs()
    assert client.inspect("import").holder is not None
    running.process.send_signal(number)
    assert running.end()[0] == 100 + number
    assert client.inspect("import").holder is None


def test_what_nohup_ignores_stays_ignored(environment: dict[str, str]) -> None:
    running = Running(
        environment, "import", "--", *TRAPPED, prepare=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
    )
    running.until_it_runs()
    running.process.send_signal(signal.SIGHUP)
    running.process.send_signal(signal.SIGTERM)
    assert running.end()[0] == 100 + signal.SIGTERM


def test_who_waits_may_be_interrupted_and_leaves_nothing(
    environment: dict[str, str], client: distlock.Locks
) -> None:
    with client.lock("import"):
        running = Running(environment, "--no-timeout", "import", "--", "echo", "it ran")
        until(lambda: client.inspect("import").waiting == 1)
        running.process.send_signal(signal.SIGTERM)
        assert running.end()[:2] == (128 + signal.SIGTERM, "")
        until(lambda: client.inspect("import").waiting == 0)


@pytest.mark.parametrize(("words", "told"), [([], signal.SIGTERM), (["--on-lost", "usr1"], signal.SIGUSR1)])
def test_the_command_is_told_when_the_lock_is_lost(
    environment: dict[str, str], client: distlock.Locks, words: list[str], told: int
) -> None:
    script = _TRAPPED.replace("sys.exit(100 + number)", "print(number, flush=True); sys.exit(0)")
    running = Running(environment, *words, "import", "--", sys.executable, "-c", script)
    running.until_it_runs()
    assert break_lock(client.namespace, client.inspect("import"), by="ann")
    code, out, error = running.end()
    assert (code, out) == (76, f"{int(told)}\n")
    assert "'import' was lost" in error


def test_the_list_has_the_command_and_not_its_arguments(
    environment: dict[str, str], client: distlock.Locks
) -> None:
    running = Running(environment, "import", "--", *TRAPPED, "--password=secret")
    running.until_it_runs()
    until(lambda: bool(list(client.list())))
    (listed,) = client.list()
    assert listed.party.where == f"{Path(sys.executable).name} (distlock run)"
    assert listed.party.pid == running.process.pid
    running.process.terminate()
    running.end()
