"""Record locks: which contenders are alive, and who is the only writer of a shard.

POSIX record locks serve both purposes: the kernel drops them the moment their process dies, and a forked
child does not inherit them, so that its parent's locks end with the parent. (A lock of `flock` is held until
the last child that shares the descriptor has ended.)

Closing *any* descriptor of the file drops every record lock that the process has on it. So each process has
exactly one descriptor of each state file, found by device and inode, and all its backends share it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import struct
import sys
import threading
import time
from types import FrameType

from distlock.backends.file.directory import STATE, Directory
from distlock.backends.file.trusted_directories import Tree
from distlock.errors import BackendUnavailable

SHARDS = 256

#: The offset of the contenders' bytes in the state file. Locked bytes need not exist. The first bytes of the
#: file serialise writers, one for each shard. A contender's byte has this offset plus a random number of 60
#: bits, so that no byte has to be assigned.
_CONTENDERS = 1 << 61
_BITS = 60

#: ``struct flock`` of 64-bit Linux: l_type, l_whence, l_start, l_len, l_pid.
_FLOCK = struct.Struct("hhqqi4x")
_KNOWS_PIDS = sys.platform == "linux" and struct.calcsize("P") == 8


def name_of(contender: int) -> str:
    """Return the name of *contender* in file names."""
    return f"{contender:0{_BITS // 4}x}"


def contender_of(name: str) -> int:
    """Return the contender that `name_of` named. Raises ValueError for any other name."""
    contender = int(name, 16)
    if name != name_of(contender) or not 0 <= contender < 1 << _BITS:
        raise ValueError(f"{name!r} is no contender's name.")
    return contender


class RecordLocks:
    """This process's only descriptor of one state file, and its locks there."""

    def __init__(self, directory: Directory, descriptor: int) -> None:
        self.descriptor = descriptor
        #: Whether this descriptor was closed. Another file may have its number.
        self.closed = False
        self._identity = _identity(os.fstat(descriptor))
        self.users = 0
        self._directory = directory
        self.forget()

    def forget(self) -> None:
        """Begin without locks. A forked child forgets its parent's; the descriptor stays usable."""
        self.users = 0
        self._contenders: set[int] = set()
        #: This process's writer of each shard: record locks do not exclude its threads from each other.
        self.inside: dict[int, Writing] = {}
        self._healing = threading.Lock()

    def current(self) -> bool:
        """Return whether the directory still has our state file, which may be deleted or replaced."""
        try:
            status = os.stat(self._directory.state, follow_symlinks=False)
        except OSError:
            return False
        return _identity(status) == self._identity and self.intact()

    def intact(self) -> bool:
        """Return whether the descriptor is still ours: a process that becomes a daemon closes all of them."""
        try:
            status = os.fstat(self.descriptor)
        except OSError:
            return False
        return _identity(status) == self._identity and not self.closed

    def enter(self) -> int:
        """Return a new contender, which is alive until `leave` or the death of this process."""
        contender = secrets.randbits(_BITS)
        fcntl.lockf(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _CONTENDERS + contender)
        self._contenders.add(contender)
        return contender

    def leave(self, contender: int) -> None:
        self._contenders.discard(contender)
        if not self.intact():
            return
        fcntl.lockf(self.descriptor, fcntl.LOCK_UN, 1, _CONTENDERS + contender)

    def alive(self, contender: int) -> bool:
        """Return whether *contender* has not left, and its process, even if it is stopped, has not ended."""
        if contender in self._contenders:
            return True  # The kernel does not report a process's own locks.
        byte = _CONTENDERS + contender
        try:
            # Try a shared lock: two processes that look at once would see each other's exclusive lock.
            fcntl.lockf(self.descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, byte)
        except OSError as error:
            if error.errno in _HELD_BY_OTHERS:
                return True
            raise
        fcntl.lockf(self.descriptor, fcntl.LOCK_UN, 1, byte)
        return False

    def pid(self, contender: int) -> int | None:
        """Return the pid of *contender*, or None if it is dead or in another PID namespace.

        The kernel translates the pid into our own PID namespace, so no file has to contain pids.
        """
        if contender in self._contenders:
            return os.getpid()
        if not _KNOWS_PIDS:
            return None
        question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _CONTENDERS + contender, 1, 0)
        kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(self.descriptor, fcntl.F_GETLK, question))
        return pid if kind != fcntl.F_UNLCK and pid > 0 else None

    def writing(self, shard: int, patience: float) -> Writing:
        """Return a context manager. In its block, the thread is the only writer of *shard*: see `Writing`."""
        return Writing(self, shard, patience)

    def heal(self) -> None:
        """Release the shards of interrupted writers of this process."""
        if self.inside:
            for writer in self.inside.copy().values():
                if writer.gone():
                    self.abandon(writer)

    def abandon(self, writer: Writing) -> None:
        """Release the shard of *writer*. May be called twice."""
        with self._healing:
            if self.inside.get(writer.shard) is writer:
                # Other threads can't get the shard before the last step, so this can be repeated.
                try:
                    fcntl.lockf(self.descriptor, fcntl.LOCK_UN, 1, writer.shard)
                finally:
                    del self.inside[writer.shard]

    def stalled(self, patience: float, ours: bool) -> BackendUnavailable:
        """Return the error after *patience* seconds behind another writer. *ours*: it is in this process."""
        who = "Another thread of this process" if ours else "Another process"
        why = (
            "the disk does not answer, or a signal handler asks inside of the call that it interrupted."
            if ours
            else "it was stopped in the middle. Continue it or kill it."
        )
        return BackendUnavailable(
            f"{who} has been writing in the lock directory {self._directory.path} for longer than "
            f"this call could wait ({patience:.3g} s): {why}"
        )


_attached: dict[tuple[int, int], RecordLocks] = {}
_mutex = threading.Lock()


def attach(directory: Directory, tree: Tree) -> RecordLocks:
    """Return this process's locks on the state file of *directory*. Make the file if it is missing."""
    with _mutex:
        try:
            # Look before opening, because closing a second descriptor would drop all locks.
            status = os.stat(STATE, dir_fd=tree.root, follow_symlinks=False)
            locks = _attached.get(_identity(status))
        except FileNotFoundError:
            locks = None
        if locks is None or not locks.intact():
            if locks is not None:
                locks.closed = True
            descriptor = _open(tree)
            locks = RecordLocks(directory, descriptor)
            _attached[_identity(os.fstat(descriptor))] = locks
        locks.users += 1
        return locks


def detach(locks: RecordLocks) -> None:
    """Undo one `attach`. The last user in the process closes the file."""
    with _mutex:
        locks.users -= 1
        if locks.users > 0:
            return
        for identity in [identity for identity, known in _attached.items() if known is locks]:
            del _attached[identity]
        if locks.intact():
            os.close(locks.descriptor)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _open(tree: Tree) -> int:
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(STATE, flags | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=tree.root)
    except FileExistsError:
        descriptor = os.open(STATE, flags, dir_fd=tree.root)
    else:
        os.fchmod(descriptor, tree.file_mode())
    try:
        tree.require_file(os.fstat(descriptor), STATE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _forget_after_fork() -> None:
    global _mutex
    _mutex = threading.Lock()
    for locks in _attached.values():
        locks.forget()


os.register_at_fork(after_in_child=_forget_after_fork)


_HELD_BY_OTHERS = {errno.EACCES, errno.EAGAIN}


class Writing:
    """A context manager. In its block, the thread is the only writer of *shard*.

    `__enter__` raises `BackendUnavailable` after *patience* seconds behind another writer. A signal handler
    may raise between `__enter__` and the block, so that `__exit__` is never called. So the frame of the block
    is kept: once the frame has ended, the next writer releases the shard.
    """

    __slots__ = ("_frame", "_locks", "_patience", "shard")

    def __init__(self, locks: RecordLocks, shard: int, patience: float) -> None:
        self.shard = shard
        self._locks = locks
        self._patience = patience
        self._frame: FrameType | None = None

    def __enter__(self) -> None:
        self._frame = sys._getframe(1)
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *exc_info: object) -> None:
        self._locks.abandon(self)
        self._frame = None

    def gone(self) -> bool:
        """Return whether the block was left without `__exit__`."""
        frame = self._frame
        if frame is None:
            return False
        try:
            # `clear` raises while the frame runs, in any thread or greenlet.
            frame.clear()
        except RuntimeError:
            return False
        return True

    def _wait(self) -> None:
        deadline = time.monotonic() + self._patience
        pause = 0.00005  # Another writer takes some 20 µs.
        while True:
            # `setdefault` is one atomic step, so that the current writer is always known.
            first = self._locks.inside.setdefault(self.shard, self)
            if first is self:
                if self._lock():
                    return
            elif first.gone():
                self._locks.abandon(first)
                continue
            if time.monotonic() >= deadline:
                raise self._locks.stalled(self._patience, first is not self)
            time.sleep(pause)
            pause = min(pause * 2, 0.005)

    def _lock(self) -> bool:
        try:
            fcntl.lockf(self._locks.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, self.shard)
        except OSError as error:
            if error.errno not in _HELD_BY_OTHERS:
                raise
            return False
        return True
