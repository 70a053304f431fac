"""``distlock run``, as a real process: exit codes, signals, and a lock that is lost."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import pytest

import distlock
from distlock.cli.run import Child
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
            stdin=subprocess.PIPE,
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
        epoch, number = map(int, fence.split(":"))
        assert (code, name) == (3, "import")
        assert (epoch, number) < grant.fence


def test_a_command_that_can_not_run_is_told_as_a_shell_does(start: Start, tmp_path: Path) -> None:
    assert start("a", "--", "no-such-command").end()[0] == 127
    (tmp_path / "text").write_text("no program")
    assert start("a", "--", str(tmp_path / "text")).end()[0] == 126
    assert start("a", "--", "sh", "-c", "kill -KILL $$").end()[0] == 128 + signal.SIGKILL


def test_a_command_that_can_not_be_watched_over_does_not_run(environment: dict[str, str]) -> None:
    """Python was upgraded meanwhile, or files, processes or memory are short."""
    program = "import sys; sys.executable = '/gone'; from distlock.__main__ import main; main()"
    for words, code, out in (((), 126, ""), (("--on-lost", "none"), 0, "it ran\n")):
        command = [sys.executable, "-c", program, "run", *words, "a", "--", "echo", "it ran"]
        run = subprocess.run(
            command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=PATIENCE
        )
        assert (run.returncode, run.stdout) == (code, out), run.stderr
        assert run.stderr.count("\n") == (code != 0)


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
    assert error.splitlines()[-1].startswith("Error: The command ended with 0, without its lock.")


def test_a_command_whose_lock_is_lost_before_it_has_started_is_told_too() -> None:
    child = Child()
    child.send_signal(signal.SIGTERM)
    assert child.run(["sleep", "10"], {}) == 128 + signal.SIGTERM


def test_a_command_that_may_not_be_sent_a_signal_keeps_its_lock(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(pid: int, number: int) -> None:
        raise PermissionError("as sudo has it")

    child = Child()
    child.send_signal(signal.SIGTERM)
    for name in ("kill", "killpg"):
        monkeypatch.setattr(os, name, refuse)
    assert child.run(["sleep", "0.2"], {}) == 0, "it was awaited"
    assert "may not be sent" in capsys.readouterr().err


#: A shell with a child: both have the pipe that the test reads to its end.
FAMILY = ("sh", "-c", 'sleep 1000 & echo runs; wait; echo "the shell went on"')


def test_signals_are_passed_on_to_the_children_of_a_shell(start: Start) -> None:
    running = start("import", "--", *FAMILY)
    running.until_it_runs()
    running.process.send_signal(signal.SIGTERM)
    assert running.end()[:2] == (128 + signal.SIGTERM, "")


def test_a_lost_lock_ends_the_children_of_a_shell(start: Start, client: distlock.Locks) -> None:
    running = start("import", "--", *FAMILY)
    running.until_it_runs()
    assert break_lock(client.namespace, client.inspect("import"), by="ann")
    assert running.end()[:2] == (76, "")


def test_a_killed_run_leaves_no_command_behind(start: Start) -> None:
    running = start("import", "--", *FAMILY)
    running.until_it_runs()
    running.process.kill()
    assert running.end()[:2] == (-signal.SIGKILL, "")


def test_a_run_that_is_killed_before_it_can_watch_over_the_command_never_runs_it(
    environment: dict[str, str],
) -> None:
    program = """
import os, signal
from contextlib import contextmanager
from distlock.cli import run
from distlock.__main__ import main

@contextmanager
def watchdog(number):
    yield lambda target: os.kill(os.getpid(), signal.SIGKILL)

run.watchdog = watchdog
main()
"""
    command = [sys.executable, "-c", program, "run", "a", "--", "echo", "it ran"]
    run = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=PATIENCE
    )
    assert (run.returncode, run.stdout) == (-signal.SIGKILL, "")


def test_a_command_that_is_to_be_told_nothing_outlives_a_killed_run(start: Start) -> None:
    running = start("--on-lost", "none", "import", "--", "sh", "-c", "echo runs; read word; echo went on")
    running.until_it_runs()
    running.process.kill()
    running.process.wait()
    assert running.process.stdout is not None
    assert running.process.stdin is not None
    running.process.stdin.write("\n")
    running.process.stdin.flush()
    assert running.process.stdout.readline() == "went on\n"


def test_nothing_of_the_run_is_left_when_the_command_has_ended(start: Start) -> None:
    # The one that looks is in the session of the run, and not in the group of its command.
    running = start("import", "--", "sh", "-c", "ps -o pid= --ppid $PPID")
    _, children, _ = running.end()
    assert len(children.split()) == 2, "the command, and what watches over it"
    for child in children.split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(child), 0)


class Terminal:
    """A command in the foreground of a terminal, as a person types it."""

    def __init__(self, environment: dict[str, str], *words: str) -> None:
        self._ours, theirs = os.openpty()
        self.process = subprocess.Popen(
            words,
            env={**os.environ, **environment},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self.shown = ""

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def until(self, line: str) -> None:
        while line not in self.shown:
            assert select.select([self._ours], [], [], PATIENCE)[0], self.shown
            self.shown += os.read(self._ours, 1000).decode()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


def test_on_a_terminal_the_command_reads_what_is_typed_and_ctrl_c_ends_it(
    environment: dict[str, str], client: distlock.Locks
) -> None:
    script = 'trap "echo interrupted; exit 7" INT; read word; echo "read $word"; while :; do sleep 0.1; done'
    run = [sys.executable, "-m", "distlock", "run"]
    terminal = Terminal(environment, *run, "import", "--", "sh", "-c", script)
    try:
        terminal.type("hello\n")
        terminal.until("read hello")
        terminal.type("\x03")
        terminal.until("interrupted")
        assert terminal.process.wait(PATIENCE) == 7
        assert terminal.shown.count("interrupted") == 1
        assert client.inspect("import").holder is None
    finally:
        terminal.close()


def test_on_a_terminal_a_killed_run_leaves_no_command_behind(environment: dict[str, str]) -> None:
    # The terminal tells its processes of the end of the first one only, which is a shell.
    run = f"{sys.executable} -m distlock run import -- sh -c 'echo runs $PPID $$; exec sleep 1000'"
    terminal = Terminal(environment, "sh", "-c", f"{run}; read word")
    try:
        terminal.until("\n")
        parent, command = map(int, terminal.shown.split()[1:])
        os.kill(parent, signal.SIGKILL)
        until(lambda: not Path(f"/proc/{command}").exists())
    finally:
        terminal.close()
