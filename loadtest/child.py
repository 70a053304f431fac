"""A program that the load test starts, and ends: in a session of its own, and gone when we are."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PATIENCE = 30.0
GRACE = 5.0
#: Nothing that `Child.freeze` stops stands still for longer, seconds, also when we are killed meanwhile.
LONGEST = 60


class StackError(Exception):
    """The stack can't run here; the message is one line with the remedy."""


@dataclass(frozen=True, slots=True)
class Account:
    """Another user than ours."""

    uid: int
    gid: int


class Child:
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
        """Ask until it is *ready*. `StackError` if it ends first or never gets there."""
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
        """End it and whatever it started: politely, and if need be not."""
        if self.process.poll() is None:
            self.process.send_signal(self.stop_with)
            # What stands still hears of it only when it goes on.
            self.thaw()
            try:
                self.process.wait(GRACE)
            except subprocess.TimeoutExpired:
                pass
        self.kill()

    def freeze(self) -> None:
        """SIGSTOP to the whole session that this child leads, and to nobody else. `thaw` ends it.

        Returns when every thread of it stands still: the signal alone leaves time for a query or two.
        """
        group = self.process.pid
        self._waker = subprocess.Popen(waking(group, LONGEST), start_new_session=True)
        os.killpg(group, signal.SIGSTOP)
        self.wait_until(lambda: all(state in "TZX" for state in thread_states(group)))

    def thaw(self) -> None:
        """Nothing, where it doesn't stand still or is gone."""
        for group, what in ((self.process, signal.SIGCONT), (self._waker, signal.SIGKILL)):
            if group is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(group.pid, what)
        if self._waker is not None:
            self._waker.wait()
            self._waker = None

    def kill(self) -> None:
        """SIGKILL to the whole session that this child leads, and to nobody else."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def waking(group: int, seconds: int) -> list[str]:
    """The command that lets a process group go on after *seconds*, also when nobody else is left to do it."""
    # Without -s the sh of Debian takes the group for an option.
    return ["sh", "-c", f"sleep {seconds}; kill -s CONT -- -{group} 2>/dev/null"]


def thread_states(group: int) -> list[str]:
    """The letter of each thread of a process group, as Linux tells it; elsewhere nothing is told."""
    states = []
    for process in Path("/proc").glob("[0-9]*"):
        # One that ends while we look has no states any more.
        with contextlib.suppress(OSError):
            # After the name, which may have any characters in it: state, parent, group.
            _, _, pgrp = (process / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(pgrp) == group:
                tasks = [(task / "stat").read_text() for task in (process / "task").iterdir()]
                states += [task.rpartition(")")[2].split()[0] for task in tasks]
    return states


def run_once(name: str, command: Sequence[str], log: Path, account: Account | None = None) -> None:
    """Run a program that ends by itself, and well."""
    child = Child(name, command, log, account=account)
    try:
        if child.process.wait(PATIENCE):
            raise StackError(f"{name} failed. It said: {child.last_words()}")
    except subprocess.TimeoutExpired:
        raise StackError(f"{name} did not end within {PATIENCE:.0f} s.") from None
    finally:
        child.stop()
