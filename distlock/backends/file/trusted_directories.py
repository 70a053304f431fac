"""The directories of the locks, opened and checked from the root of the file system down.

Each directory is opened by the descriptor of its parent, and never again by its whole path, so that what was
checked is what is used. Only symbolic links of root and of this user are followed.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from distlock.backends.file.directory import FORMAT, STATE, Below, Directory, Distrusted

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: An ancestor need not be readable, if the system has O_PATH.
_ANCESTOR = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS = 40
#: The folder of the waiters' FIFOs. It is opened for each use, because cleaners may delete it: it is empty
#: while no process waits.
WAKE = "wake"
#: The folder of the queues.
QUEUE = "queue"


class _Opened(NamedTuple):
    device: int
    inode: int
    path: str


class Tree:
    """Open descriptors of a lock directory and of its folders, which are made if missing.

    Only this user may write in a directory that we make. In a directory that an administrator has made, all
    users who may write there may use the locks: its owner, or its group too.
    """

    def __init__(self, directory: Directory, mkdir: Callable[..., None] = os.mkdir) -> None:
        """*mkdir* is called as `os.mkdir` for missing directories."""
        self._directory = directory
        self._mkdir = mkdir
        self._opened: dict[int, _Opened] = {}
        #: The user and the status of each directory at the last successful check.
        self._good: tuple[int, Sequence[tuple[float, ...]]] | None = None
        self._group: int | None = None
        self._base = self._keep(_walk(directory, mkdir), directory.path)
        try:
            self._require(os.fstat(self._base), directory.path)
            #: The descriptors of the directories of the state file and of the queues.
            self.root = self._enter(FORMAT, self._base)
            self.queue = self._enter(QUEUE, self.root)
            self.in_queue = Below(f"{directory.root}/{QUEUE}")
            self.in_wake = Below(f"{directory.root}/{WAKE}")
            os.close(self.enter(WAKE, self.root))
        except BaseException:
            self.close()
            raise

    def intact(self) -> bool:
        """Return whether the directories exist, only trusted users may write there, and we have them open.

        A process that becomes a daemon closes all its descriptors.
        """
        try:
            statuses = [os.fstat(descriptor) for descriptor in self._opened]
            # These are mode, inode, device, links, owner and group. If none has changed, the check holds.
            looked = os.geteuid(), [status[:6] for status in statuses]
            if looked == self._good:
                return True
            for status, opened in zip(statuses, self._opened.values(), strict=True):
                # A directory without links was deleted.
                if (status.st_dev, status.st_ino) != opened[:2] or not status.st_nlink:
                    return False
                self._require(status, opened.path)
        except (OSError, Distrusted):
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
        """Return the names in the directory *name* of *parent*."""
        # Open the directory each time: threads would share the position of a kept descriptor.
        descriptor = self.open(name, parent)
        try:
            return os.listdir(descriptor)
        finally:
            os.close(descriptor)

    def listed(self, folder: str) -> list[str]:
        """Return the names in *folder* of the lock directory; none if *folder* does not exist."""
        with suppress(FileNotFoundError):
            return self.names(folder, self.root)
        return []

    @contextmanager
    def opened(self, folder: str, make: bool = False) -> Iterator[int]:
        """Yield a descriptor of *folder* in the lock directory. *make*: make the folder if it is missing."""
        descriptor = self.enter(folder, self.root) if make else self.open(folder, self.root)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def make(self, name: str, parent: int) -> None:
        """Make the directory *name* in *parent* if it is missing.

        Its group rights and setgid are those of the lock directory, but the group has no rights if everybody
        may write to the lock directory. The owner has all rights, other users have none.
        """
        try:
            self._mkdir(name, 0o700, dir_fd=parent)
        except FileExistsError:
            return
        descriptor = os.open(name, _DIRECTORY, dir_fd=parent)
        try:
            # A shared directory depends on setgid, which passes the group on to new files.
            os.fchmod(descriptor, self._rights() & (stat.S_ISGID | 0o770) | 0o700)
        finally:
            os.close(descriptor)

    def file_mode(self) -> int:
        """Return the mode of our files: as the lock directory's for owner and group, and closed to others."""
        return self._rights() & 0o660 | 0o600

    def require_file(self, status: os.stat_result, name: str) -> None:
        """Raise `Distrusted` unless *name* is a regular file that only trusted users can change."""
        self._require(status, f"{self._directory.root}/{name}")
        # With a hard link, another user could have us write into one of this user's other files.
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            raise Distrusted(
                f"{self._directory.root}/{name} is no plain file with one name: somebody put it there. Stop "
                f"every process that uses the locks, then delete {self._directory.root}."
            )

    def _rights(self) -> int:
        mode = os.fstat(self._base).st_mode
        # In a sticky directory, everybody may create files, so only this user may read and write ours.
        return mode & ~0o070 if mode & stat.S_IWOTH else mode

    def enter(self, name: str, parent: int) -> int:
        """As `open`, but make the directory if it is missing. Errors name the whole path."""
        try:
            self.make(name, parent)
            return self.open(name, parent)
        except OSError as error:
            error.filename = f"{self._opened[parent].path}/{name}"
            raise

    def _enter(self, name: str, parent: int) -> int:
        return self._keep(self.enter(name, parent), f"{self._opened[parent].path}/{name}")

    def open(self, name: str, parent: int) -> int:
        """Return a descriptor of the directory *name* in *parent*, which the caller closes."""
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
        if path == self._directory.path:
            # A group that may write in the lock directory is trusted.
            self._group = status.st_gid if status.st_mode & stat.S_IWGRP else None
            self._directory.require_trusted(status, path)
        else:
            self._directory.require_trusted(status, path, group=self._group, inside=True)


def _walk(directory: Directory, mkdir: Callable[..., None]) -> int:
    """Return a descriptor of the absolute *directory*, made if missing. Raises `Distrusted`."""
    here, path = os.open("/", _ANCESTOR), "/"
    ahead = _steps(directory.path)
    links = 0
    try:
        directory.require_trusted(os.fstat(here), path)
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
            directory.require_trusted(os.fstat(here), path)
    except BaseException:
        os.close(here)
        raise
    return here


def _steps(path: str) -> list[str]:
    """Return the steps of *path*, the first one last."""
    return [step for step in reversed(path.split("/")) if step not in {"", "."}]


def _link(step: str, here: int, path: str, directory: Directory) -> str | None:
    """Return where the symbolic link *step* points to, or None if it is no link."""
    with suppress(FileNotFoundError):
        status = os.lstat(step, dir_fd=here)
        if stat.S_ISLNK(status.st_mode):
            directory.require_trusted_link(status, path)
            return os.readlink(step, dir_fd=here)
    return None


def _ancestor(step: str, here: int, mode: int, mkdir: Callable[..., None]) -> int:
    with suppress(FileNotFoundError):
        return os.open(step, _ANCESTOR, dir_fd=here)
    with suppress(FileExistsError):
        mkdir(step, mode, dir_fd=here)
    return os.open(step, _ANCESTOR, dir_fd=here)


#: The end of the name of a file that is being written.
NEW = ".new"


def write_file(tree: Tree, folder: str, name: str, text: bytes) -> None:
    """Replace the file *name* of *folder*, which is made if missing, by *text*. One writer at a time."""
    new = f"{name}{NEW}"
    with tree.opened(folder, make=True) as descriptor:
        with suppress(FileNotFoundError):
            os.unlink(new, dir_fd=descriptor)
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(new, flags, 0o600, dir_fd=descriptor), "wb") as file:
            os.fchmod(file.fileno(), tree.file_mode())
            file.write(text)
        os.rename(new, name, src_dir_fd=descriptor, dst_dir_fd=descriptor)


def read_file(tree: Tree, folder: str, name: str) -> tuple[bytes, os.stat_result] | None:
    """Return content and status of the file *name* of *folder*, or None if it does not exist."""
    while True:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            with tree.opened(folder) as within:
                descriptor = os.open(name, flags, dir_fd=within)
        except FileNotFoundError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not status.st_nlink:
                # The file was replaced after it was opened.
                continue
            tree.require_file(status, f"{folder}/{name}")
            return file.read(), status


class _Missing(Exception):
    """A directory is missing, and the first use would make it."""


def refuse_unusable(directory: Directory) -> None:
    """Raise what the first use of *directory* by this user would raise, and make nothing.

    Raises a `ConfigurationError` with the remedy, or `BackendUnavailable` for an error that may pass.
    """
    with suppress(_Missing), directory.explained():
        tree = Tree(directory, mkdir=_would_make)
        try:
            for name in (".", QUEUE, WAKE):
                _require(os.W_OK | os.X_OK, name, tree.root, os.path.normpath(f"{directory.root}/{name}"))
            # The state file is not opened, because closing it would drop all locks of this process there.
            with suppress(FileNotFoundError):
                tree.require_file(os.lstat(STATE, dir_fd=tree.root), STATE)
                _require(os.R_OK | os.W_OK, STATE, tree.root, directory.state)
        finally:
            tree.close()


def _would_make(name: str, _: int, *, dir_fd: int) -> None:
    """Raise what `os.mkdir` would raise, or `_Missing` instead of making the directory."""
    try:
        os.lstat(name, dir_fd=dir_fd)
    except FileNotFoundError:
        _require(os.W_OK | os.X_OK, ".", dir_fd, name)
        raise _Missing from None
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def _require(rights: int, name: str, directory: int, shown: str) -> None:
    if os.access(name, rights, dir_fd=directory, effective_ids=True):
        return
    code = errno.EROFS if os.fstatvfs(directory).f_flag & os.ST_RDONLY else errno.EACCES
    raise OSError(code, os.strerror(code), shown)
