"""``distlock run``: run a command under a lock, as flock(1) does on one host.

A watchdog, which is a small separate process, ends the command if this process is killed by SIGKILL. It reads
a pipe that closes when this process ends. So it works on every Unix, and reaches the command's children, too,
which the parent-death signal of Linux does not.
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

from distlock.cli.options import Where, with_options
from distlock.cli.output import LOST, NOT_FOUND, NOT_RUN, SIGNAL, Failed
from distlock.errors import ConfigurationError, LostInside
from distlock.grants.grant import Grant
from distlock.locks.lock import Lock
from distlock.names import check_name
from distlock.numbers import MOST_SECONDS, check_timeout
from distlock.terms import Terms

#: The watchdog's program. It reads a pipe to its end: the target, and "over" if the command is over.
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
    """Send the signal *number* if this process ends in the block; None: send nothing.

    Yield a function that takes the target: the id of a process, or the negative id of a process group, as for
    kill(2). Raises `Failed` if the watchdog can't be started.
    """
    if number is None:
        yield lambda target: None
        return
    # The watchdog is not in our process group, which may be signalled as a whole, and inherits no files.
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


#: The signals that are passed on to the command.
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


#: A shell program: wait at a gate, which opens when the watchdog knows the process, and run the command.
_BEHIND_GATE = 'read -r go <"$0" && exec "$@"'


class Child:
    """One command. Until it is started, signals end this process as usual."""

    def __init__(self, when_killed: signal.Signals | None = None) -> None:
        """Prepare the command. *when_killed*: the signal that it gets if this process is killed, or None."""
        self._when_killed = when_killed
        # A process group of its own could not read from our terminal, nor be stopped with us by Ctrl-Z.
        self._is_group = not _has_terminal()
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = False
        #: The signals that the command has not been sent yet. Threads and signal handlers may interrupt each
        #: other while they append and take signals: append() and popleft() are atomic.
        self._unsent: deque[int] = deque()

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Pass signals on to the command during the block, which the main thread runs."""
        # Ignored signals stay ignored: nohup and the background jobs of a shell rely on it.
        heeded = [number for number in PASSED_ON if signal.getsignal(number) != signal.SIG_IGN]
        before = {number: signal.signal(number, self._on_signal) for number in heeded}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> int:
        """Run *command* to its end. Return its exit code, or `SIGNAL` plus the signal that ended it."""
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

    def send_signal(self, number: int) -> None:
        """Send the command the signal *number*, as soon as it runs. Any thread may call this."""
        # Append first: if the command is not running yet, run() sends the signal when it is.
        self._unsent.append(number)
        if self._process is not None:
            self._pass_on(self._process)

    def _pass_on(self, process: subprocess.Popen[bytes]) -> None:
        with suppress(IndexError):
            while True:
                number = self._unsent.popleft()
                try:
                    self._send(process, number)
                except ProcessLookupError:
                    pass
                except PermissionError:
                    # The command runs as another user. An exit for that would free the lock while it runs.
                    click.echo(f"The command may not be sent signal {number}: it runs on.", err=True)

    def _send(self, process: subprocess.Popen[bytes], number: int) -> None:
        if not self._is_group:
            process.send_signal(number)
        elif process.poll() is None:
            os.killpg(process.pid, number)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self._starting:
            # This process still waits for the lock. That can be interrupted, and leaves nothing behind.
            raise SystemExit(SIGNAL + number)
        if number not in _OF_TERMINALS or not _is_in_foreground():
            self.send_signal(number)


@contextmanager
def _gate() -> Iterator[tuple[int, Callable[[], int]]]:
    """Yield the read end of a pipe, at which the command waits, and a function that lets it go on.

    If this process ends first, the command never runs.
    """
    read_end, write_end = os.pipe()
    try:
        # This process keeps both ends open, so that it can write even if the command has ended at the gate.
        yield read_end, partial(os.write, write_end, b"\n")
    finally:
        os.close(read_end)
        os.close(write_end)


def _refuse_unrunnable(command: str) -> None:
    """Raise `Failed` with the exit code of a shell if *command* can't be run."""
    if shutil.which(command) is None:
        if os.path.exists(command):
            raise Failed(f"The command {command!r} can't be run: it is not executable.", NOT_RUN)
        raise Failed(f"There is no command {command!r}.", NOT_FOUND)


@contextmanager
def _terminal() -> Iterator[int | None]:
    """Yield a descriptor of our terminal; None: there is none, as in a crontab or a container."""
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
    """Return the signal that *word* names, such as TERM or SIGTERM; None for "none"."""
    if word.lower() == "none":
        return None
    try:
        return signal.Signals[f"SIG{word.upper().removeprefix('SIG')}"]
    except KeyError:
        raise click.BadParameter(
            f"{word!r} is no signal. Write TERM, INT, HUP, USR1, USR2, KILL, or none."
        ) from None


#: By default, a command that runs for more seconds than this counts as hung.
A_DAY = 86_400.0

_SECONDS = click.FloatRange(0, MOST_SECONDS)


@click.command("run")
@click.argument("name")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option("--timeout", "-w", type=_SECONDS, help="The longest wait, seconds. Default: the client's.")
@click.option("--nonblock", "-n", is_flag=True, help="Don't wait, as --timeout 0.")
@click.option("--no-timeout", is_flag=True, help="Wait as long as it takes.")
@click.option(
    "--max-hold",
    type=click.FloatRange(0, MOST_SECONDS, min_open=True),
    default=A_DAY,
    show_default=True,
    help="Seconds after which the command counts as hung, and its lock goes to the next.",
)
@click.option(
    "--on-lost",
    callback=signal_of,
    metavar="SIGNAL",
    default="TERM",
    show_default=True,
    help="What the command is sent when the lock is lost, or this process is killed; none: nothing.",
)
@with_options
@click.pass_context
def run(
    context: click.Context,
    where: Where,
    name: str,
    command: tuple[str, ...],
    timeout: float | None,
    nonblock: bool,
    no_timeout: bool,
    max_hold: float,
    on_lost: signal.Signals | None,
) -> None:
    """Run COMMAND holding the lock NAME, and exit with its code.

    Signals are passed on to it; without a terminal to its children, too. It finds DISTLOCK_NAME and
    DISTLOCK_FENCE, as 1:42, in its environment. Exits with 75 if the lock stays taken, with 69 if the lock
    service does not answer, with 76 if the lock was lost while the command ran, and with 128 and its number
    if a signal ended it.
    """
    if nonblock + no_timeout + (timeout is not None) > 1:
        raise click.UsageError("Say one of --timeout, --nonblock and --no-timeout.")
    child = Child(when_killed=on_lost)

    def lost(grant: Grant, why: str) -> None:
        click.echo(f"The lock {name!r} was lost: {why}.", err=True)
        if on_lost is not None:
            child.send_signal(on_lost)

    if timeout is not None:
        check_timeout(timeout)
    seconds = 0.0 if nonblock else -1 if no_timeout else timeout
    with where.locks(lost) as locks:
        if not locks.namespace.may_be_unavailable:
            raise ConfigurationError(
                "A row is locked as long as a transaction, which a command can't be: 'distlock run' needs a "
                "lock service. Name one with --url or --alias."
            )
        # Only the command's name is published, because its arguments may hold secrets.
        terms = Terms(locks.namespace.terms.ttl, max_hold, f"{command[0].rpartition('/')[2]} (distlock run)")
        lock = Lock(locks, (check_name(name),), seconds, terms)
        try:
            with child.signals(), lock as grant:
                fence = f"{grant.fence.epoch}:{grant.fence.number}"
                code = child.run(command, {"DISTLOCK_NAME": name, "DISTLOCK_FENCE": fence})
        except LostInside as error:
            raise Failed(
                f"The command ended with {code}, without its lock. What it did may stand, and somebody else "
                "may have worked at the same time: look before you repeat it.",
                LOST,
            ) from error
    context.exit(code)
