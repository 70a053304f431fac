"""Recovery: the neighbours of a dead process release what it held for fenced guards.

*Neighbours* are the processes of one user on one host that use one lock service. Each client of such a
process notes in a file of its own what it holds for fenced guards, and keeps the file locked by `flock`. The
kernel ends that lock when the process ends, and not before. So a neighbour that gets the lock has a proof,
which no connection to the lock service can give, and breaks the noted holds. Without a neighbour they last
for their ttl.

Only a fence makes this safe: the last statement of a dead process may reach the database after its end.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import math
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from distlock.backends.base import Backend
from distlock.backends.inspectable import Breaks
from distlock.engine.critical_section import CriticalSection
from distlock.engine.maintenance import MaintenanceThread
from distlock.engine.sans_io import Call, Commands
from distlock.errors import BackendUnavailable, LockError

logger = logging.getLogger("distlock")

#: Seconds between two looks for dead neighbours, and after a look in which the lock service did not answer.
LOOK_INTERVAL, RETRY_INTERVAL = 0.2, 1.0
#: Seconds without notes after the file could not be made or written.
WITHOUT_NOTES = 60.0
#: Bytes for each noted hold, of which the longest key needs 1,100, and the most notes of a file.
_SLOT, _MOST = 2048, 10_000
#: Seconds after which a file that no process has locked is of no use to anybody.
_OLD = 86_400.0
_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
#: A folder in memory, where no note waits for a disk.
IN_MEMORY = "/dev/shm"  # noqa: S108


class HoldsFile:
    """The file in which this process notes its holds. It is locked while the process lives.

    A note is a line with the number and the key of a hold, at the beginning of a slot of `_SLOT` bytes.
    """

    #: Set here because `__del__` runs even if `__init__` failed.
    _descriptor: int | None = None

    def __init__(self, directory: str, name: str) -> None:
        self._process = os.getpid()
        # Neighbours don't look at hidden files, so they see this one when it is locked.
        self._path = hidden = f"{directory}/.{name}"
        self._descriptor = os.open(hidden, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
        self._file = _identity(os.fstat(self._descriptor))
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(hidden, path := f"{directory}/{name}")
        self._path = path
        self._slots: dict[object, int] = {}
        self._free: list[int] = []
        self._size = 0

    def __del__(self) -> None:
        # A client may be dropped without close().
        self.delete()

    def is_usable(self) -> bool:
        """Return whether this process still has the file open, and neighbours can find it.

        A process that becomes a daemon closes all descriptors, and cleaners delete old files.
        """
        try:
            status = os.fstat(-1 if self._descriptor is None else self._descriptor)
        except OSError:
            return False
        return _identity(status) == self._file and status.st_nlink > 0

    def note(self, grant: object, key: str, number: int) -> None:
        """Note the hold of *grant*. If it is noted, change its number."""
        if (slot := self._slots.get(grant)) is None:
            if self._free:
                slot = self._free.pop()
            else:
                slot, self._size = self._size, self._size + 1
            self._slots[grant] = slot
        self._write(slot, f"{number} {key}\n".encode())

    def erase(self, grant: object) -> None:
        """Erase the note of *grant*, if there is one."""
        if (slot := self._slots.get(grant)) is not None:
            self._write(slot, b"\n")
            del self._slots[grant]
            self._free.append(slot)

    def _write(self, slot: int, line: bytes) -> None:
        assert self._descriptor is not None
        os.pwrite(self._descriptor, line, slot * _SLOT)

    def close(self) -> None:
        """Close the descriptor. If this is a forked child, the parent's descriptor keeps the file locked."""
        descriptor, self._descriptor = self._descriptor, None
        with suppress(OSError):
            if descriptor is not None and _identity(os.fstat(descriptor)) == self._file:
                os.close(descriptor)

    def delete(self) -> None:
        """Delete the file, so that the neighbours find no note."""
        if self._descriptor is not None and self._process == os.getpid():
            with suppress(OSError):
                os.unlink(self._path)
        self.close()


class Recovery:
    """Notes what this process holds for fenced guards, and breaks what its dead neighbours have noted.

    Until `join` is called, it does nothing. It is a `distlock.engine.maintenance.Job`.

    Args:
        waits: returns whether a caller of this process waits for a lock.
    """

    def __init__(
        self,
        section: CriticalSection,
        backend: Backend,
        now: Callable[[], float],
        thread: MaintenanceThread,
        waits: Callable[[], bool],
    ) -> None:
        self._section = section
        has = backend.capabilities
        leases = has.lease and has.breaks and has.several_processes
        #: None: the lock service frees the locks of a dead process by itself, or has one process.
        self._backend = backend if leases and isinstance(backend, Breaks) else None
        self._now = now
        self._thread = thread
        self._waits = waits
        #: The beginning of the names of the neighbours' files; "": there is no recovery.
        self._beginning = ""
        self._own: HoldsFile | None = None
        #: Before this moment no file is made.
        self._not_before = -math.inf
        self._next_look = math.inf

    def join(self, group: str) -> None:
        """Begin to work. Neighbours share the text *group*, which stands for their lock service."""
        if self._backend is not None and group:
            text = f"{_host()} {group}"
            self._beginning = f"{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}."

    # -- under the mutex -------------------------------------------------------------------------

    def note(self, grant: object, key: str, number: int) -> None:
        """Note that *grant*, of a fenced guard, has *key*. *number*: the first fence number of the hold."""
        if not self._beginning or (now := self._now()) < self._not_before:
            return
        try:
            if self._own is None or not self._own.is_usable():
                if self._own is not None:
                    self._own.delete()
                directory = _directory()
                _clean(directory)
                self._own = HoldsFile(directory, f"{self._beginning}{secrets.token_hex(8)}")
            self._own.note(grant, key, number)
        except OSError as error:
            self._not_before = now + WITHOUT_NOTES
            logger.warning("If this process is killed, its fenced locks will last for their ttl: %s", error)

    def erase(self, grant: object) -> None:
        """Erase the note of *grant*, if there is one."""
        if self._own is None:
            return
        try:
            if self._own.is_usable():
                self._own.erase(grant)
                return
        except OSError:
            pass
        # The file may no longer be locked, and the next holder here may have no fence.
        self._own.delete()
        self._own = None

    def begin_looking(self) -> None:
        """Look for dead neighbours for as long as callers wait."""
        if self._beginning and self._next_look == math.inf:
            self._next_look = self._now() + LOOK_INTERVAL
            self._thread.wake_before(self._next_look)

    def due(self, now: float) -> float:
        return self._next_look

    def is_idle(self) -> bool:
        return self._next_look == math.inf

    def forget(self) -> None:
        """Begin anew in a forked child: the file is the parent's."""
        if self._own is not None:
            self._own.close()
        self._own, self._next_look = None, math.inf

    def stop(self) -> None:
        """Delete the file, because this process holds nothing any more. The next note makes another file."""
        if self._own is not None:
            self._own.delete()
        self._own, self._next_look = None, math.inf

    # -- a look ----------------------------------------------------------------------------------

    def tick(self, until: Callable[[], float]) -> Commands[None]:
        """Break the holds of the neighbours that have died."""
        with self._section.mutex:
            now = self._now()
            if now < self._next_look:
                return
            self._next_look = now + LOOK_INTERVAL if self._waits() else math.inf
        try:
            directory = _directory()
            names = [name for name in os.listdir(directory) if name.startswith(self._beginning)]
        except OSError:
            return
        for name in names:
            with suppress(OSError), _if_dead(f"{directory}/{name}") as descriptor:
                if descriptor is not None:
                    if not (yield from self._break_noted(descriptor, until)):
                        return
                    os.unlink(f"{directory}/{name}")

    def _break_noted(self, descriptor: int, until: Callable[[], float]) -> Commands[bool]:
        """Break the holds that are noted in the file *descriptor*. Return False if there is no time left."""
        assert self._backend is not None
        for place, key, number in _noted(descriptor):
            with self._section.mutex:
                if self._now() >= until():
                    return False
            broken = False
            try:
                broken = yield Call(self._backend.break_hold, key, number)
            except BackendUnavailable:
                with self._section.mutex:
                    self._next_look = self._now() + RETRY_INTERVAL
                return False
            except LockError as error:
                logger.warning("The lock %r of a dead process lasts for its ttl: %s", key, error)
            if broken:
                logger.warning("The lock %r was released, because its process has died.", key)
            os.pwrite(descriptor, b"\n", place)
        return True


def _host() -> str:
    """Return a text for this run of this host, and its network: elsewhere localhost is another server."""
    found: list[str] = []
    with suppress(OSError):
        found.append(Path("/proc/sys/kernel/random/boot_id").read_text("ascii"))
        found.append(str(os.stat("/proc/self/ns/net").st_ino))
    return " ".join(found)


def _directory() -> str:
    """Return the directory of the files of this user's processes. Make it if missing. Raises OSError."""
    parent = IN_MEMORY if os.access(IN_MEMORY, os.W_OK | os.X_OK) else tempfile.gettempdir()
    path = f"{parent}/distlock-{os.geteuid()}"
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise OSError(f"{path} is no directory of this user alone")
    return path


def _clean(directory: str) -> None:
    """Delete the files of dead processes that have had no neighbour for long."""
    for name in os.listdir(directory):
        path = f"{directory}/{name}"
        with suppress(OSError):
            if os.lstat(path).st_mtime < time.time() - _OLD:
                with _if_dead(path) as descriptor:
                    if descriptor is not None:
                        os.unlink(path)


@contextmanager
def _if_dead(path: str) -> Iterator[int | None]:
    """Yield a descriptor of the file at *path*, which is locked in the block; None if its process lives."""
    descriptor = os.open(path, _FLAGS)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        yield None
        return
    try:
        yield descriptor
    finally:
        # A child that was forked meanwhile has the descriptor, too.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _noted(descriptor: int) -> Iterator[tuple[int, str, int]]:
    """Yield the place, the key and the number of each hold that is noted in the file."""
    for place in range(0, _MOST * _SLOT, _SLOT):
        if not (slot := os.pread(descriptor, _SLOT, place)):
            return
        number, _, key = slot.partition(b"\n")[0].decode("utf-8", "replace").partition(" ")
        if number.isdecimal():
            yield place, key, int(number)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
