"""What servers are made of: a child process, a free port, a directory for its data, an account to run as."""

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
#: A child that `ChildProcess.freeze` stops goes on after so many seconds, also when we are killed meanwhile.
LONGEST = 60


class StackError(Exception):
    """The stack can't run here; the message is one line with the remedy."""


@dataclass(frozen=True, slots=True)
class Account:
    """A user other than ours, whom a server runs as."""

    uid: int
    gid: int


class ChildProcess:
    """A program that the load test starts and ends: in a session of its own, and gone when we are."""

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
        # If we are killed the kernel tells our servers, so that nothing outlives us.
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
                # Ctrl-C in the terminal reaches us alone: we end our servers in order.
                start_new_session=True,
                # A database refuses to run as root, and its account can read nothing but its home.
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
        """End the program and whatever it started: by a signal, and if need be by SIGKILL."""
        if self.process.poll() is None:
            self.process.send_signal(self.stop_with)
            # A process that stands still receives the signal only when it goes on.
            self.thaw()
            try:
                self.process.wait(GRACE)
            except subprocess.TimeoutExpired:
                pass
        self.kill()

    def freeze(self) -> None:
        """Send SIGSTOP to the whole session that this child leads, and to nobody else. `thaw` ends it.

        Returns when every thread of it stands still: the signal alone leaves time for a query or two.
        """
        group = self.process.pid
        self._waker = subprocess.Popen(waking(group, LONGEST), start_new_session=True)
        os.killpg(group, signal.SIGSTOP)
        self.wait_until(lambda: all(state in "TZX" for state in thread_states(group)))

    def thaw(self) -> None:
        """Let the session go on. Does nothing where it does not stand still or is gone."""
        for group, what in ((self.process, signal.SIGCONT), (self._waker, signal.SIGKILL)):
            if group is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(group.pid, what)
        if self._waker is not None:
            self._waker.wait()
            self._waker = None

    def kill(self) -> None:
        """Send SIGKILL to the whole session that this child leads, and to nobody else."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def waking(group: int, seconds: int) -> list[str]:
    """Return the command that lets a process group go on after *seconds*, also when we are gone."""
    # Without -s the sh of Debian takes the group for an option.
    return ["sh", "-c", f"sleep {seconds}; kill -s CONT -- -{group} 2>/dev/null"]


def thread_states(group: int) -> list[str]:
    """Return the state of each thread of a process group, a letter, on Linux; elsewhere nothing."""
    states = []
    for process in Path("/proc").glob("[0-9]*"):
        # A process that ends while we look has no states any more.
        with contextlib.suppress(OSError):
            # After the name, which may have any characters in it: state, parent, group.
            _, _, pgrp = (process / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(pgrp) == group:
                tasks = [(task / "stat").read_text() for task in (process / "task").iterdir()]
                states += [task.rpartition(")")[2].split()[0] for task in tasks]
    return states


def run_once(name: str, command: Sequence[str], log: Path, account: Account | None = None) -> None:
    """Run a program that ends by itself, and well."""
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
    """Return a port that nobody else is given in the next minute, so that runs side by side don't collide.

    The kernel keeps it: a connection that this end has closed first stays in TIME_WAIT, and its port is no
    longer among those that are free to choose from. A server may listen there by name, as all do that start
    again at once (``SO_REUSEADDR``).
    """
    with socket.socket() as listener, socket.socket() as client:
        # Reusable only from here on: with the option set, bind might choose a port that is kept for another.
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
    """Make the directory of a run, which is gone when the run ends, or when the next one starts."""
    VAR.mkdir(exist_ok=True)
    sweep(VAR, "run-")
    sweep(Path(tempfile.gettempdir()), "distlock-run-")
    directory = Path(tempfile.mkdtemp(prefix=f"run-{os.getpid()}-", dir=VAR))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def sweep(parent: Path, prefix: str) -> None:
    """Remove the directories of runs that were killed, and could not do it themselves."""
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
        pass  # somebody else's, but there
    return True


ROOT_UID = 0
#: The servers' own accounts, where Debian made them, before the one that is always there.
ACCOUNTS = ("postgres", "mysql", "nobody")


def find_account() -> Account | None:
    """Return the user that a database runs as; None: ours. Servers refuse to run as root."""
    if os.getuid() != ROOT_UID:
        return None
    for name in ACCOUNTS:
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return Account(entry.pw_uid, entry.pw_gid)
    raise StackError("A database does not run as root, and there is no other user. Run: adduser nobody")


@contextlib.contextmanager
def home_of(account: Account | None) -> Iterator[Path]:
    """Make a directory for a server's data, which *account* owns. Its name says which run it belongs to."""
    home = Path(tempfile.mkdtemp(prefix=f"distlock-run-{os.getpid()}-"))
    try:
        if account:
            os.chown(home, account.uid, account.gid)
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)
