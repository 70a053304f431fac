"""Notifications: a FIFO for each waiting contender, and the thread that reads it and watches for deaths.

No lock depends on a notification, because only the entries decide who has it. A lost notification costs a
poll.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import threading
from collections.abc import Callable
from contextlib import suppress

from distlock.backends.base import Sink
from distlock.backends.file.directory import Distrusted
from distlock.backends.file.record_locks import name_of
from distlock.backends.file.trusted_directories import WAKE, Tree
from distlock.signal_safety import backend_thread, no_thread

#: Sent to a holder instead of a proof: one of its holds was broken, or its release was requested.
CHECK_HOLDS = "broken"
#: Nearly as many bytes as a pipe holds on Linux. If so many are read at once, more may have been lost.
_NEARLY_FULL = 60_000


def send(tree: Tree, contender: int, proof: str) -> None:
    """Send *proof* to *contender*, without waiting and without errors.

    *proof*: the `QueueEntry.sign` of an entry that may take the lock, `proof_of` a latch's key, or
    `CHECK_HOLDS`.
    """
    try:
        descriptor = _open(tree, name_of(contender), os.O_WRONLY)
    except (OSError, Distrusted):
        return  # The contender does not listen, or is dead.
    try:
        # So short a write is atomic.
        os.write(descriptor, f"{proof}\n".encode())
    except OSError:
        pass  # The pipe is full. Its reader notices that, and looks at everything.
    finally:
        os.close(descriptor)


class FileListener:
    """The thread that turns notifications and deaths into `Sink.notified`."""

    def __init__(self, tree: Tree, contender: int, sink: Sink) -> None:
        self._sink = sink
        self._tree = tree
        self._name = name_of(contender)
        self._mutex = threading.Lock()
        self._keys: dict[str, str] = {}
        self._watched: dict[int, int] = {}
        self._closing = False
        #: Whether the thread has to close the FIFO, because its start was interrupted and nobody else will.
        self._orphan = False
        # An earlier listener of this contender that was interrupted may have left its FIFO.
        self._unlink()
        with tree.opened(WAKE, make=True) as folder, tree.in_wake:
            os.mkfifo(self._name, 0o600, dir_fd=folder)
        try:
            # Open the FIFO for writing, too, so that the thread reads no end of file when a writer closes it.
            self._fifo = _open(tree, self._name, os.O_RDWR)
            try:
                os.fchmod(self._fifo, tree.file_mode())
                self._thread = backend_thread("distlock-file-listener", self._run)
            except BaseException:
                os.close(self._fifo)
                raise
            self._start()
        except BaseException:
            self._unlink()
            raise

    def reachable(self) -> bool:
        """Return whether the FIFO still exists. Somebody may have deleted it."""
        try:
            os.stat(f"{WAKE}/{self._name}", dir_fd=self._tree.root, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def expect(self, proof: str, key: str) -> None:
        """Report *key* to the sink when a notification for *proof* comes."""
        with self._mutex:
            self._keys[proof] = key

    def forget(self, proof: str) -> None:
        with self._mutex:
            self._keys.pop(proof, None)

    def watch(self, contender: int, find: Callable[[int], int | None]) -> bool:
        """Notify all waiters when the process of *contender* dies. Return False if it can't be watched.

        *find* returns the pid of a living contender. It is called a second time after the process was opened
        by its pid, because another process may have got the pid in between.
        """
        with self._mutex:
            if self._closing:
                return False
            if contender in self._watched:
                return True
            pid = find(contender)
            if pid is None or not hasattr(os, "pidfd_open"):
                return False
            if pid == os.getpid():
                return True  # A contender of this process notifies by itself.
            try:
                descriptor = os.pidfd_open(pid)
            except OSError:
                return False
            if find(contender) != pid:
                os.close(descriptor)
                return False
            self._watched[contender] = descriptor
            # Do this under the mutex: after a close, another file may have the FIFO's descriptor number.
            self._poke()
        return True

    def close(self) -> None:
        with self._mutex:
            if self._closing:
                return
            self._closing = True
            self._poke()
        if self._thread is not threading.current_thread():
            self._thread.join()
        self.abandon()
        self._unlink()

    def abandon(self) -> None:
        """Close the descriptors. A forked child calls this for its copies of the parent's descriptors."""
        for descriptor in (self._fifo, *self._watched.values()):
            os.close(descriptor)
        self._watched.clear()

    def _start(self) -> None:
        try:
            self._thread.start()
        except BaseException as error:
            if self._thread.ident is not None or not isinstance(error, RuntimeError):
                # After an interrupt the thread may run: have it end, and close the FIFO.
                with self._mutex:
                    self._closing = self._orphan = True
                    self._poke()
                raise
            os.close(self._fifo)
            raise no_thread("A lock cannot be waited for", error) from error

    def _unlink(self) -> None:
        with suppress(OSError):
            os.unlink(f"{WAKE}/{self._name}", dir_fd=self._tree.root)

    def _poke(self) -> None:
        """Wake the thread. The caller has the mutex, and the FIFO is open."""
        with suppress(BlockingIOError):
            os.write(self._fifo, b"\n")

    def _run(self) -> None:
        while not self._closing:
            poll = select.poll()
            poll.register(self._fifo, select.POLLIN)
            with self._mutex:
                contenders = {descriptor: contender for contender, descriptor in self._watched.items()}
            for descriptor in contenders:
                poll.register(descriptor, select.POLLIN)
            ready = [descriptor for descriptor, _ in poll.poll()]
            dead = [contenders[descriptor] for descriptor in ready if descriptor in contenders]
            if self._fifo in ready:
                self._read_notifications()
            if dead:
                self._report_deaths(dead)
        with self._mutex:
            if self._orphan:
                os.close(self._fifo)

    def _read_notifications(self) -> None:
        """Read all notifications that have come, and report each key once."""
        try:
            heard = os.read(self._fifo, 1 << 20)
        except BlockingIOError:
            return
        lines = set(heard.decode("ascii", "replace").split("\n"))
        with self._mutex:
            keys = {self._keys.get(line) for line in lines}
        for key in keys:
            if key is not None:
                self._sink.notified(key)
        if len(heard) >= _NEARLY_FULL or CHECK_HOLDS in lines:
            self._sink.missed_notifications()

    def _report_deaths(self, dead: list[int]) -> None:
        with self._mutex:
            for contender in dead:
                # The sink may have closed us from this thread.
                if (descriptor := self._watched.pop(contender, None)) is not None:
                    os.close(descriptor)
            keys = set(self._keys.values())
        for key in keys:
            self._sink.notified(key)


def _open(tree: Tree, name: str, flags: int) -> int:
    with tree.opened(WAKE) as folder, tree.in_wake:
        descriptor = os.open(name, flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), f"{WAKE}/{name}")
    return descriptor
