"""The directories of the locks, opened and checked from the root down: what was checked is what is used.

Each level is opened in the one above it, never by its whole path again, and no symbolic link is followed but
root's and our own.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from distlock.backends.file import trust
from distlock.backends.file.directory import FORMAT, Below, Directory

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: An ancestor need not be readable, where the system can do without.
_ANCESTOR = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS = 40
#: Where the FIFOs of those who wait are. It is not kept open: it is empty while nobody waits, and cleaners
#: delete what is empty.
WAKE = "wake"
#: Where the lines are.
QUEUE = "queue"


class _Opened(NamedTuple):
    device: int
    inode: int
    path: str


class Tree:
    """Open descriptors of a lock directory and of what is in it. It is made where it is missing.

    A directory that we make is this user's alone. One that an administrator made is followed: those that may
    write there (its owner, or its group too) may use the locks.
    """

    def __init__(self, directory: Directory, mkdir: Callable[..., None] = os.mkdir) -> None:
        """*mkdir*: called as `os.mkdir` for what is missing."""
        self._directory = directory
        self._mkdir = mkdir
        self._opened: dict[int, _Opened] = {}
        #: What was looked at and found good: the user that looked, and the status of each directory.
        self._good: tuple[int, Sequence[tuple[float, ...]]] | None = None
        self._group: int | None = None
        self._base = self._keep(_walk(directory.path, mkdir), directory.path)
        try:
            self._require(os.fstat(self._base), directory.path)
            #: Where the state file is, and the lines.
            self.root = self._enter(FORMAT, self._base)
            self.queue = self._enter(QUEUE, self.root)
            self.in_queue = Below(f"{directory.root}/{QUEUE}")
            self.in_wake = Below(f"{directory.root}/{WAKE}")
            os.close(self.enter(WAKE, self.root))
        except BaseException:
            self.close()
            raise

    def intact(self) -> bool:
        """Whether the directories are there, only trusted users may write in them, and we have them.

        A process that becomes a daemon closes all descriptors that it finds.
        """
        try:
            statuses = [os.fstat(descriptor) for descriptor in self._opened]
            # Mode, inode, device, links, owner and group: nearly always as before, and each call looks.
            looked = os.geteuid(), [status[:6] for status in statuses]
            if looked == self._good:
                return True
            for status, opened in zip(statuses, self._opened.values(), strict=True):
                # What has no name left was deleted: nobody is in there, and nobody comes.
                if (status.st_dev, status.st_ino) != opened[:2] or not status.st_nlink:
                    return False
                self._require(status, opened.path)
        except (OSError, trust.Distrusted):
            return False
        self._good = looked
        return True

    def close(self) -> None:
        for descriptor, opened in self._opened.items():
            with suppress(OSError):
                status = os.fstat(descriptor)
                if (status.st_dev, status.st_ino) == opened[:2]:
                    os.close(descriptor)
        self._opened.clear()

    def names(self, name: str, parent: int) -> list[str]:
        """What is in the directory *name* of *parent*."""
        # Never of a descriptor that is kept: threads would share its position, and miss an entry.
        descriptor = self.open(name, parent)
        try:
            return os.listdir(descriptor)
        finally:
            os.close(descriptor)

    def make(self, name: str, parent: int) -> None:
        """Make the directory *name* in *parent*, with the rights of the lock directory."""
        try:
            self._mkdir(name, 0o700, dir_fd=parent)
        except FileExistsError:
            return
        descriptor = os.open(name, _DIRECTORY, dir_fd=parent)
        try:
            # setgid keeps the group of what is made in it, which a shared directory depends on.
            os.fchmod(descriptor, self._rights() & (stat.S_ISGID | 0o770) | 0o700)
        finally:
            os.close(descriptor)

    def file_mode(self) -> int:
        """The rights of our files: those that may write in the lock directory, but never everybody."""
        return self._rights() & 0o660 | 0o600

    def require_file(self, status: os.stat_result, name: str) -> None:
        """Raise unless the file *name* is a plain one that only trusted users can change."""
        self._require(status, f"{self._directory.root}/{name}")
        # A second name is somebody else's way to have us write into a file of another purpose.
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            raise trust.Distrusted(
                f"{self._directory.root}/{name} is no plain file with one name: somebody put it there. Stop "
                f"every process that uses the locks, then delete {self._directory.root}."
            )

    def _rights(self) -> int:
        mode = os.fstat(self._base).st_mode
        # Where everybody may make something (a sticky directory), what we make is this user's alone.
        return mode & ~0o070 if mode & stat.S_IWOTH else mode

    def enter(self, name: str, parent: int) -> int:
        """`open`, where it may be missing."""
        try:
            self.make(name, parent)
            return self.open(name, parent)
        except OSError as error:
            error.filename = f"{self._opened[parent].path}/{name}"
            raise

    def _enter(self, name: str, parent: int) -> int:
        return self._keep(self.enter(name, parent), f"{self._opened[parent].path}/{name}")

    def open(self, name: str, parent: int) -> int:
        """A descriptor of the directory *name* in *parent*, for the caller to close."""
        descriptor = os.open(name, _DIRECTORY, dir_fd=parent)
        try:
            self._require(os.fstat(descriptor), f"{self._opened[parent].path}/{name}")
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _keep(self, descriptor: int, path: str) -> int:
        status = os.fstat(descriptor)
        self._opened[descriptor] = _Opened(status.st_dev, status.st_ino, path)
        return descriptor

    def _require(self, status: os.stat_result, path: str) -> None:
        directory = self._directory.path
        if path == directory:
            # The owner of the lock directory trusts the group that may write there.
            self._group = status.st_gid if status.st_mode & stat.S_IWGRP else None
            trust.require(status, path, directory)
        else:
            trust.require(status, path, directory, group=self._group, inside=True)


def _walk(directory: str, mkdir: Callable[..., None]) -> int:
    """A descriptor of the absolute *directory*, made where it is missing. Raises `trust.Distrusted`."""
    here, path = os.open("/", _ANCESTOR), "/"
    ahead = _steps(directory)
    links = 0
    try:
        trust.require(os.fstat(here), path, directory)
        while ahead:
            step = ahead.pop()
            below = os.path.normpath(os.path.join(path, step))
            try:
                target = _link(step, here, below, directory)
                if target is None:
                    following = _ancestor(step, here, 0o755 if ahead else 0o700, mkdir)
                else:
                    links += 1
                    if links > _MOST_LINKS:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                    ahead += _steps(target)
                    if not target.startswith("/"):
                        continue
                    following, below = os.open("/", _ANCESTOR), "/"
            except OSError as error:
                error.filename = below
                raise
            os.close(here)
            here, path = following, below
            trust.require(os.fstat(here), path, directory)
    except BaseException:
        os.close(here)
        raise
    return here


def _steps(path: str) -> list[str]:
    """The names in *path*, the first one last."""
    return [step for step in reversed(path.split("/")) if step not in {"", "."}]


def _link(step: str, here: int, path: str, directory: str) -> str | None:
    """Where the symbolic link *step* points to; None if it is none. Nobody else can change *here*."""
    with suppress(FileNotFoundError):
        status = os.lstat(step, dir_fd=here)
        if stat.S_ISLNK(status.st_mode):
            trust.require_link(status, path, directory)
            return os.readlink(step, dir_fd=here)
    return None


def _ancestor(step: str, here: int, mode: int, mkdir: Callable[..., None]) -> int:
    with suppress(FileNotFoundError):
        return os.open(step, _ANCESTOR, dir_fd=here)
    with suppress(FileExistsError):
        mkdir(step, mode, dir_fd=here)
    return os.open(step, _ANCESTOR, dir_fd=here)
