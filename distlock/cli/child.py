"""The command that runs under a lock: what this process is told to do, it is told."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

import click

from distlock.cli.exits import NOT_FOUND, NOT_RUN, SIGNAL, Failed

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


class Child:
    """One command. Until it runs, a signal ends this process as it would without us."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = False
        #: Those that it is still to be sent. To append and to pop are atomic: they come from other threads,
        #: and from a handler in the middle of anything.
        self._untold: deque[int] = deque()

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Signals are the command's, in the block. Of the main thread."""
        # What is ignored stays so: nohup and the background jobs of a shell rely on it.
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
        try:
            process = subprocess.Popen(command, env={**os.environ, **environment})  # noqa: S603 - the user's
        except FileNotFoundError as error:
            raise Failed(f"There is no command {command[0]!r}.", NOT_FOUND) from error
        except OSError as error:
            raise Failed(f"The command {command[0]!r} can't be run: {error.strerror}.", NOT_RUN) from error
        self._process = process
        self._pass_on(process)
        code = process.wait()
        return code if code >= 0 else SIGNAL - code

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
                    process.send_signal(number)
                except PermissionError:
                    # It runs as another user. To end for that would free the lock under it.
                    click.echo(f"The command may not be sent signal {number}: it runs on.", err=True)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self._starting:
            # It is waited for the lock. That can be interrupted, and leaves nothing behind.
            raise SystemExit(SIGNAL + number)
        if number not in _OF_TERMINALS or not _is_in_foreground():
            self.tell(number)


def _is_in_foreground() -> bool:
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


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
