"""The parts of servers: a child process, a free port, a directory for data, an account to run as."""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from demo_shop.configuration import VAR

PATIENCE = 30.0
GRACE = 5.0
#: A child that `ChildProcess.freeze` stops goes on after this many seconds, even if we are killed meanwhile.
LONGEST = 60


class StackError(Exception):
    """The stack can't run here; the message is one line with the remedy."""


@dataclass(frozen=True, slots=True)
class Account:
    """Another user, as whom a server runs."""

    uid: int
    gid: int


class ChildProcess:
    """A program that the load test starts and ends. It has its own session, and ends with the load test."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
        account: Account | None = None,
        stop_with: signal.Signals = signal.SIGTERM,
    ) -> None:
        self.name, self.log, self.stop_with = name, log, stop_with
        self._waker: subprocess.Popen[bytes] | None = None
        # If we are killed, the kernel signals our servers, so that none outlives us.
        guardian = shutil.which("setpriv")
        tied = [guardian, "--pdeathsig", stop_with.name, *command] if guardian else list(command)
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                tied,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=None if environment is None else {**os.environ, **environment},
                pass_fds=pass_fds,
                # Ctrl-C in the terminal reaches only us, so that we stop our servers in order.
                start_new_session=True,
                # A database refuses to run as root, and its account can read only its home.
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=[] if account else None,
                cwd=log.parent if account else None,
            )

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Wait until the program is *ready*. Raises `StackError` if it ends first, or after `PATIENCE`."""
        deadline = time.monotonic() + PATIENCE
        while not ready():
            if self.process.poll() is not None:
                raise StackError(f"{self.name} did not start. It said: {self.last_words()}")
            if time.monotonic() > deadline:
                said = self.last_words()
                raise StackError(f"{self.name} is not ready after {PATIENCE:.0f} s. It said: {said}")
            time.sleep(0.02)

    def last_words(self) -> str:
        said = self.log.read_text(errors="replace").strip().splitlines()
        return said[-1] if said else "nothing"

    def stop(self) -> None:
        """End the program and all that it started, by its signal and after `GRACE` seconds by SIGKILL."""
        if self.process.poll() is None:
            self.process.send_signal(self.stop_with)
            # A stopped process receives the signal only when it goes on.
            self.thaw()
            try:
                self.process.wait(GRACE)
            except subprocess.TimeoutExpired:
                pass
        self.kill()

    def freeze(self) -> None:
        """Send SIGSTOP to the whole session of this child. `thaw` lets it go on.

        Return when all its threads stand still: right after the signal, they could still send a query or two.
        """
        group = self.process.pid
        self._waker = subprocess.Popen(waking(group, LONGEST), start_new_session=True)
        os.killpg(group, signal.SIGSTOP)
        self.wait_until(lambda: all(state in "TZX" for state in thread_states(group)))

    def thaw(self) -> None:
        """Let the session of this child go on. Do nothing if it is not stopped, or has ended."""
        for group, what in ((self.process, signal.SIGCONT), (self._waker, signal.SIGKILL)):
            if group is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(group.pid, what)
        if self._waker is not None:
            self._waker.wait()
            self._waker = None

    def kill(self) -> None:
        """Send SIGKILL to the whole session of this child."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def waking(group: int, seconds: int) -> list[str]:
    """Return the command that lets a process group go on after *seconds*, even if we have ended."""
    # Without -s, Debian's sh takes the group for an option.
    return ["sh", "-c", f"sleep {seconds}; kill -s CONT -- -{group} 2>/dev/null"]


def thread_states(group: int) -> list[str]:
    """Return a letter for the state of each thread of a process group on Linux; elsewhere, an empty list."""
    states = []
    for process in Path("/proc").glob("[0-9]*"):
        # A process may end while we look at it.
        with contextlib.suppress(OSError):
            # After the name, which may contain any characters, follow state, parent and group.
            _, _, pgrp = (process / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(pgrp) == group:
                tasks = [(task / "stat").read_text() for task in (process / "task").iterdir()]
                states += [task.rpartition(")")[2].split()[0] for task in tasks]
    return states


def run_once(name: str, command: Sequence[str], log: Path, account: Account | None = None) -> None:
    """Run a program to its end. Raise `StackError` if it fails."""
    child = ChildProcess(name, command, log, account=account)
    try:
        if child.process.wait(PATIENCE):
            raise StackError(f"{name} failed. It said: {child.last_words()}")
    except subprocess.TimeoutExpired:
        raise StackError(f"{name} did not end within {PATIENCE:.0f} s.") from None
    finally:
        child.stop()


def check_free(port: int) -> None:
    """Raise `StackError` if nginx could not listen on *port*."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise StackError(f"Port {port} is in use: choose another with --port.") from None
        raise StackError(f"Port {port}: {error.strerror}. Choose another with --port.") from None


def free_port() -> int:
    """Return a port that the kernel gives to nobody else for a minute, so that parallel runs don't collide.

    A connection that this end closes first stays in TIME_WAIT, and until it ends the kernel does not choose
    its port. A server may still listen on it by number if it sets ``SO_REUSEADDR``, as usual.
    """
    with socket.socket() as listener, socket.socket() as client:
        # Set the option only after bind(), which otherwise might choose a port that is kept for another run.
        listener.bind(("127.0.0.1", 0))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.listen(1)
        client.connect(listener.getsockname())
        listener.accept()[0].close()
        port: int = listener.getsockname()[1]
        return port


def listens(port: int) -> bool:
    """Return whether a server accepts connections at *port*."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def workspace() -> Iterator[Path]:
    """Make the directory of a run. It is deleted when the run ends, or else when the next one starts."""
    VAR.mkdir(exist_ok=True)
    sweep(VAR, "run-")
    sweep(Path(tempfile.gettempdir()), "distlock-run-")
    directory = Path(tempfile.mkdtemp(prefix=f"run-{os.getpid()}-", dir=VAR))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def sweep(parent: Path, prefix: str) -> None:
    """Delete the directories of runs that were killed."""
    for left in parent.glob(f"{prefix}*-*"):
        owner = left.name.removeprefix(prefix).split("-")[0]
        if owner.isdecimal() and not is_alive(int(owner)):
            shutil.rmtree(left, ignore_errors=True)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # The process lives, as another user.
    return True


ROOT_UID = 0
#: The accounts that Debian makes for the servers, and last the one that always exists.
ACCOUNTS = ("postgres", "mysql", "nobody")


def find_account() -> Account | None:
    """Return the account for a database, because servers refuse to run as root; None: our own will do."""
    if os.getuid() != ROOT_UID:
        return None
    for name in ACCOUNTS:
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return Account(entry.pw_uid, entry.pw_gid)
    raise StackError("A database does not run as root, and there is no other user. Run: adduser nobody")


@contextlib.contextmanager
def home_of(account: Account | None) -> Iterator[Path]:
    """Make a directory for a server's data, owned by *account*. Its name has the process id of the run."""
    home = Path(tempfile.mkdtemp(prefix=f"distlock-run-{os.getpid()}-"))
    try:
        if account:
            os.chown(home, account.uid, account.gid)
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)
