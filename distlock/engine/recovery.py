"""Recovery: the neighbours of a dead process release what it held for fenced guards.

*Neighbours* are the processes of one user on one host that use one lock service. Each of them notes in a file
of its own which locks it holds for fenced guards, and keeps the file locked by `flock`. The kernel ends that
lock when the process ends, and not before. So a neighbour that gets the lock has a proof, which no connection
to the lock service can give, and breaks the noted holds. Without a neighbour they last for their ttl.

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from distlock.backends.base import Backend
from distlock.backends.inspectable import Breaks
from distlock.engine.critical_section import CriticalSection
from distlock.engine.maintenance import LINGER, MaintenanceThread
from distlock.engine.sans_io import Call, Commands
from distlock.errors import LockError

logger = logging.getLogger("distlock")

#: Seconds from one look for dead neighbours to the next, while fenced guards are at work; and after a look
#: at which the lock service did not answer.
LOOK, AGAIN = 0.2, 1.0
#: Bytes for each noted hold. The longest key needs 1,100.
_SLOT = 2048
_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


class HoldsFile:
    """The file in which this process notes its holds. It is locked while the process lives.

    A note is a line with the number and the key of a hold, at the beginning of a slot of `_SLOT` bytes.
    """

    def __init__(self, directory: str, name: str) -> None:
        self._path = f"{directory}/{name}"
        # Neighbours don't look at hidden files, so they see this one when it is locked.
        hidden = f"{directory}/.{name}"
        self._descriptor = os.open(hidden, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(hidden, self._path)
        self._inode = _inode_of(self._descriptor)
        self._slots: dict[object, int] = {}
        self._free: list[int] = []
        self._size = 0

    def is_open(self) -> bool:
        """Return whether the descriptor is that of the file: a process that becomes a daemon closes all."""
        try:
            return _inode_of(self._descriptor) == self._inode
        except OSError:
            return False

    def note(self, grant: object, key: str, number: int) -> None:
        """Note the hold of *grant*. If it is noted, change its number."""
        if (slot := self._slots.get(grant)) is None:
            if self._free:
                slot = self._free.pop()
            else:
                slot, self._size = self._size, self._size + 1
            self._slots[grant] = slot
        os.pwrite(self._descriptor, f"{number} {key}\n".encode(), slot * _SLOT)

    def erase(self, grant: object) -> None:
        """Erase the note of *grant*, if there is one."""
        if (slot := self._slots.get(grant)) is not None:
            os.pwrite(self._descriptor, b"\n", slot * _SLOT)
            del self._slots[grant]
            self._free.append(slot)

    def close(self) -> None:
        """Close the file in a forked child. It stays locked by the parent."""
        if self.is_open():
            os.close(self._descriptor)

    def delete(self) -> None:
        """Delete the file, so that the neighbours find no note."""
        with suppress(OSError):
            os.unlink(self._path)
        self.close()


class Recovery:
    """Notes what this process holds for fenced guards, and breaks what its dead neighbours have noted.

    Until `join` is called, it does nothing. It is a `distlock.engine.maintenance.Job`.
    """

    def __init__(
        self, section: CriticalSection, backend: Backend, now: Callable[[], float], thread: MaintenanceThread
    ) -> None:
        self._section = section
        has = backend.capabilities
        #: None: the lock service frees the locks of a dead process by itself.
        self._backend = backend if has.lease and has.breaks and isinstance(backend, Breaks) else None
        self._now = now
        self._thread = thread
        #: What the names of the neighbours' files begin with; "": there is no recovery.
        self._beginning = ""
        self._own: HoldsFile | None = None
        self._next_look = math.inf
        self._looks_until = -math.inf

    def join(self, group: str) -> None:
        """Begin to work. Neighbours share the text *group*, which stands for their lock service."""
        if self._backend is not None and group:
            self._beginning = hashlib.blake2b(group.encode(), digest_size=8).hexdigest()

    # -- under the mutex -------------------------------------------------------------------------

    def note(self, grant: object, key: str, number: int) -> None:
        """Note that *grant*, of a fenced guard, has the hold of *key* whose block begins with *number*."""
        if not self._beginning:
            return
        try:
            if self._own is None or not self._own.is_open():
                self._own = HoldsFile(_directory(), f"{self._beginning}.{secrets.token_hex(8)}")
            self._own.note(grant, key, number)
        except OSError as error:
            self._give_up(error)
        self.look()

    def erase(self, grant: object) -> None:
        """Erase the note of *grant*, if there is one."""
        if self._own is not None and self._own.is_open():
            with suppress(OSError):
                self._own.erase(grant)

    def look(self) -> None:
        """Look for dead neighbours until no fenced guard has been at work for `LINGER` seconds."""
        if self._beginning:
            now = self._now()
            self._looks_until = now + LINGER
            if self._next_look == math.inf:
                self._next_look = now + LOOK
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

    def _give_up(self, error: OSError) -> None:
        logger.info("Fenced locks of a killed process will last for their ttl: %s", error)
        self._beginning = ""

    # -- a look ----------------------------------------------------------------------------------

    def tick(self, until: Callable[[], float]) -> Commands[None]:
        """Break the holds of the neighbours that have died."""
        with self._section.mutex:
            now = self._now()
            if now < self._next_look:
                return
            self._next_look = now + LOOK if now < self._looks_until else math.inf
        try:
            directory = _directory()
            for name in os.listdir(directory):
                if name.startswith(self._beginning):
                    with _if_dead(f"{directory}/{name}") as descriptor:
                        if descriptor is not None and (yield from self._break_noted(descriptor, until)):
                            os.unlink(f"{directory}/{name}")
        except OSError as error:
            self._give_up(error)

    def _break_noted(self, descriptor: int, until: Callable[[], float]) -> Commands[bool]:
        """Break the holds that are noted in the file *descriptor*. Return whether all are broken."""
        assert self._backend is not None
        for key, number in _noted(descriptor):
            with self._section.mutex:
                if self._now() >= until():
                    return False
            try:
                broken = yield Call(self._backend.break_hold, key, number)
            except LockError:
                with self._section.mutex:
                    self._next_look = self._now() + AGAIN
                return False
            if broken:
                logger.warning("The lock %r was released, because its process has died.", key)
        return True


def _directory() -> str:
    """Return the directory of the files of this user's processes. Make it if missing. Raises OSError."""
    path = f"{tempfile.gettempdir()}/distlock-{os.geteuid()}"
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise OSError(f"others may write in {path}")
    return path


@contextmanager
def _if_dead(path: str) -> Iterator[int | None]:
    """Yield a descriptor of the file at *path*, which is locked in the block; None if its process lives."""
    try:
        descriptor = os.open(path, _FLAGS)
    except FileNotFoundError:
        yield None
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield descriptor
    except BlockingIOError:
        yield None
    finally:
        os.close(descriptor)


def _noted(descriptor: int) -> Iterator[tuple[str, int]]:
    """Yield the key and the number of each hold that is noted in the file."""
    place = 0
    while slot := os.pread(descriptor, _SLOT, place):
        number, _, key = slot.partition(b"\n")[0].decode().partition(" ")
        if number.isdecimal():
            yield key, int(number)
        place += _SLOT


def _inode_of(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
