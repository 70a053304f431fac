"""Record locks: which contenders are alive, and whose turn it is to write.

POSIX record locks fit both needs as nothing else does: the kernel drops them the moment their process dies,
and a forked child does not inherit them, so that a child that lives on keeps nothing alive. (`flock` stays
held until the last child that shares the descriptor has gone.)

They have one trap: closing *any* descriptor of the file drops every lock that the process has on it. So each
process has exactly one descriptor of each state file, found by device and inode, shared by all backends.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import struct
import sys
import threading

from distlock.backends.file.directory import STATE, Directory
from distlock.backends.file.tree import Tree
from distlock.backends.file.writing import HELD_BY_OTHERS, Writers, Writing
from distlock.errors import BackendUnavailable

SHARDS = 256

#: Locked bytes need not exist. The first bytes serialise writers, one for each shard; a contender's byte lies
#: this far out plus its own 60 random bits, so that nobody has to hand out bytes or take them back.
_CONTENDERS = 1 << 61
_BITS = 60

#: struct flock where off_t has 64 bits by nature: l_type, l_whence, l_start, l_len, l_pid.
_FLOCK = struct.Struct("hhqqi4x")
_KNOWS_PIDS = sys.platform == "linux" and struct.calcsize("P") == 8


def name_of(contender: int) -> str:
    """As it is written in the names of files."""
    return f"{contender:0{_BITS // 4}x}"


def contender_of(name: str) -> int:
    """Whose name `name_of` gave. Raises ValueError for a name that is not of our making."""
    contender = int(name, 16)
    if name != name_of(contender) or not 0 <= contender < 1 << _BITS:
        raise ValueError(f"{name!r} is no contender's name.")
    return contender


class RecordLocks:
    """This process's one descriptor of one state file, and the locks it has there."""

    def __init__(self, directory: Directory, descriptor: int) -> None:
        self.descriptor = descriptor
        #: Another has the file now, perhaps under the same number.
        self.replaced = False
        self._identity = _identity(os.fstat(descriptor))
        self.users = 0
        self._directory = directory
        self.forget()

    def forget(self) -> None:
        """In a forked child: its parent's locks are not its own. The descriptor itself may go on."""
        self.users = 0
        self._contenders: set[int] = set()
        self._writers = Writers(self.descriptor, self._stalled)

    def current(self) -> bool:
        """Whether the state file in the directory is still ours: somebody may have deleted or replaced it."""
        try:
            status = os.stat(self._directory.state, follow_symlinks=False)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._identity and self.intact()

    def intact(self) -> bool:
        """Whether the descriptor is still ours: a process that becomes a daemon closes all that it finds."""
        try:
            status = os.fstat(self.descriptor)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._identity and not self.replaced

    def enter(self) -> int:
        """Become a new contender, alive until `leave` or the death of this process."""
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
        """Whether *contender*'s process lives, stopped or not, and has not left."""
        if contender in self._contenders:
            return True  # A process never meets its own locks.
        byte = _CONTENDERS + contender
        try:
            # Shared, so that two that look at the same time do not take each other for the living.
            fcntl.lockf(self.descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, byte)
        except OSError as error:
            if error.errno in HELD_BY_OTHERS:
                return True
            raise
        fcntl.lockf(self.descriptor, fcntl.LOCK_UN, 1, byte)
        return False

    def pid(self, contender: int) -> int | None:
        """The process of *contender* as this process sees it; None if it is dead or out of sight.

        The kernel translates it into our own PID namespace, so no PID ever has to be written down.
        """
        if contender in self._contenders:
            return os.getpid()
        if not _KNOWS_PIDS:
            return None
        question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _CONTENDERS + contender, 1, 0)
        kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(self.descriptor, fcntl.F_GETLK, question))
        return pid if kind != fcntl.F_UNLCK and pid > 0 else None

    def writing(self, shard: int, patience: float) -> Writing:
        """Be the only writer of *shard*, among threads and processes; give up after *patience* seconds."""
        return Writing(self._writers, shard, patience)

    def heal(self) -> None:
        """Put right what interrupted writers of this process have left behind."""
        self._writers.heal()

    def _stalled(self, patience: float, ours: bool) -> BackendUnavailable:
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
    """This process's locks on the state file of *directory*, which is made if it is missing."""
    with _mutex:
        try:
            # Look before opening: a second descriptor could never be closed again.
            status = os.stat(STATE, dir_fd=tree.root, follow_symlinks=False)
            locks = _attached.get(_identity(status))
        except FileNotFoundError:
            locks = None
        if locks is None or not locks.intact():
            if locks is not None:
                locks.replaced = True
            descriptor = _open(tree)
            locks = RecordLocks(directory, descriptor)
            _attached[_identity(os.fstat(descriptor))] = locks
        locks.users += 1
        return locks


def detach(locks: RecordLocks) -> None:
    """The last user in the process closes the file."""
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
