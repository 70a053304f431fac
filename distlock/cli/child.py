"""The command that runs under a lock, and the watchdog that ends it if this process is killed.

With SIGKILL nobody else can. The watchdog is a small process of its own. A pipe tells it of our end, so it
works on every Unix, and reaches the command's children, too, which a parent-death signal of Linux does not.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType

import click

from distlock.cli.exits import NOT_FOUND, NOT_RUN, SIGNAL, Failed

#: Reads to the end of the pipe: whom to signal, and perhaps that it is over.
_PROGRAM = """
import os, sys
said = b""
while part := os.read(0, 64):
    said += part
target, *over = said.split() or [b"", b""]
if not over:
    os.kill(int(target), int(sys.argv[1]))
"""


@contextmanager
def watchdog(number: signal.Signals | None) -> Iterator[Callable[[int], None]]:
    """Send *number* to the target that the block names if this process ends in it; None: nothing.

    The target is a process, or a group of them if it is negative, as for kill(2). Raises `Failed`.
    """
    if number is None:
        yield lambda target: None
        return
    # Not in our group, which may be signalled as a whole, and with nothing of ours left open.
    try:
        process = subprocess.Popen(  # noqa: S603 - the program above
            [sys.executable, "-I", "-S", "-c", _PROGRAM, str(int(number))],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        raise Failed(
            f"The process that watches over the command can't be run: {error.strerror}. The command has not "
            "run. Free what is short, or do without by --on-lost none.",
            NOT_RUN,
        ) from error
    pipe = process.stdin
    assert pipe is not None

    def say(line: str) -> None:
        # If somebody has killed the watchdog, the command runs without it.
        with suppress(BrokenPipeError):
            pipe.write(line.encode())

    try:
        yield lambda target: say(f"{target}\n")
    finally:
        say("over\n")
        pipe.close()
        process.kill()
        process.wait()


#: Passed on to the command.
PASSED_ON = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
#: A terminal sends these to all processes in the foreground, the command among them.
_OF_TERMINALS = {signal.SIGINT, signal.SIGQUIT}


#: The command begins when whatever ends it with us knows its process.
_BEHIND_GATE = 'read -r go <"$0" && exec "$@"'


class Child:
    """One command. Until it runs, a signal ends this process as it would without us."""

    def __init__(self, when_killed: signal.Signals | None = None) -> None:
        """*when_killed*: what the command is sent if this process is killed; None: nothing."""
        self._when_killed = when_killed
        # On a terminal a group of its own could not read from it, nor be stopped with us by Ctrl-Z.
        self._is_group = not _has_terminal()
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = False
        #: Those that it is still to be sent. To append and to pop are atomic: they come from other threads,
        #: and from a handler in the middle of anything.
        self._untold: deque[int] = deque()

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Signals are the command's, in the block. Of the main thread."""
        # Ignored signals stay ignored: nohup and the background jobs of a shell rely on it.
        heeded = [number for number in PASSED_ON if signal.getsignal(number) != signal.SIG_IGN]
        before = {number: signal.signal(number, self._on_signal) for number in heeded}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> int:
        """Run it to its end. Returns its exit code, or `SIGNAL` and the signal that ended it."""
        self._starting = True
        _refuse_unrunnable(command[0])
        with watchdog(self._when_killed) as watch, _gate() as (gate, open_gate):
            process = self._started(command, environment, gate)
            watch(-process.pid if self._is_group else process.pid)
            open_gate()
            self._process = process
            self._pass_on(process)
            code = process.wait()
        return code if code >= 0 else SIGNAL - code

    def _started(
        self, command: Sequence[str], environment: Mapping[str, str], gate: int
    ) -> subprocess.Popen[bytes]:
        try:
            # The user chooses the command.
            return subprocess.Popen(  # noqa: S603
                ["/bin/sh", "-c", _BEHIND_GATE, f"/dev/fd/{gate}", *command],
                env={**os.environ, **environment},
                process_group=0 if self._is_group else None,
                pass_fds=[gate],
            )
        except OSError as error:
            raise Failed(f"The command {command[0]!r} can't be run: {error.strerror}.", NOT_RUN) from error

    def tell(self, number: int) -> None:
        """Send it a signal, as soon as it runs. From any thread."""
        # First this: a process that is not seen below sees it when it has started.
        self._untold.append(number)
        if self._process is not None:
            self._pass_on(self._process)

    def _pass_on(self, process: subprocess.Popen[bytes]) -> None:
        with suppress(IndexError):
            while True:
                number = self._untold.popleft()
                try:
                    self._send(process, number)
                except ProcessLookupError:
                    pass
                except PermissionError:
                    # It runs as another user. To end for that would free the lock under it.
                    click.echo(f"The command may not be sent signal {number}: it runs on.", err=True)

    def _send(self, process: subprocess.Popen[bytes], number: int) -> None:
        if not self._is_group:
            process.send_signal(number)
        elif process.poll() is None:
            os.killpg(process.pid, number)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self._starting:
            # It is waited for the lock. That can be interrupted, and leaves nothing behind.
            raise SystemExit(SIGNAL + number)
        if number not in _OF_TERMINALS or not _is_in_foreground():
            self.tell(number)


@contextmanager
def _gate() -> Iterator[tuple[int, Callable[[], int]]]:
    """Yield where the command waits, and what lets it go. If this process ends first, it never runs."""
    behind, before = os.pipe()
    try:
        # Both ends are ours, so that it can be written to also when the command was ended at the gate.
        yield behind, partial(os.write, before, b"\n")
    finally:
        os.close(behind)
        os.close(before)


def _refuse_unrunnable(command: str) -> None:
    """Raise `Failed`, with the codes of a shell, for what is no command."""
    if shutil.which(command) is None:
        if os.path.exists(command):
            raise Failed(f"The command {command!r} can't be run: it is not executable.", NOT_RUN)
        raise Failed(f"There is no command {command!r}.", NOT_FOUND)


@contextmanager
def _terminal() -> Iterator[int | None]:
    """Our terminal, opened; None: we have none, as in a crontab or a container."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        yield terminal
    finally:
        os.close(terminal)


def _has_terminal() -> bool:
    with _terminal() as terminal:
        return terminal is not None


def _is_in_foreground() -> bool:
    with _terminal() as terminal, suppress(OSError):
        return terminal is not None and os.tcgetpgrp(terminal) == os.getpgrp()
    return False


def signal_of(context: click.Context, option: click.Parameter, word: str) -> signal.Signals | None:
    """TERM, SIGTERM, or none."""
    if word.lower() == "none":
        return None
    try:
        return signal.Signals[f"SIG{word.upper().removeprefix('SIG')}"]
    except KeyError:
        raise click.BadParameter(
            f"{word!r} is no signal. Write TERM, INT, HUP, USR1, USR2, KILL, or none."
        ) from None
