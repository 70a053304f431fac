"""The directory: where it is, what lies where in it, and what to do when it fails."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from distlock.backends.file.address import directory_of, give_it, make_it
from distlock.backends.file.mounts import network_file_system_of
from distlock.backends.file.trust import user_of
from distlock.errors import BackendUnavailable, ConfigurationError

#: The format of what lies in the directory; another format gets another folder and never meets this one.
FORMAT = "v2"

#: The file in there that every contender has locked a byte of.
STATE = "state"

#: What no repetition of the call will heal.
_HOPELESS = {
    errno.EACCES: "may not be written by this user",
    errno.EPERM: "may not be written by this user",
    errno.EROFS: "is on a read-only file system",
    errno.ENOTDIR: "is not a directory (a symbolic link is none), or lies below a file",
    errno.ELOOP: "is a symbolic link where none may be, or a loop of them",
    errno.ENAMETOOLONG: "is too long a path",
}

#: What may pass, with the remedy.
_PASSING = {
    errno.ENOSPC: "Free some space or inodes there.",
    errno.EDQUOT: "Raise this user's quota there.",
    errno.EMFILE: "Raise the limit of open files of this process (ulimit -n).",
    errno.ENFILE: "Raise the limit of open files of this host.",
    errno.ENOLCK: "The host has no more record locks, or this file system has none.",
}


class Directory:
    """Paths below one lock directory: to be shown, and to see whether it is still the same."""

    def __init__(self, url: str) -> None:
        self.path = directory_of(url)
        self.root = f"{self.path}/{FORMAT}"
        self.state = f"{self.root}/{STATE}"
        self.refuse_network()

    def refuse_network(self) -> None:
        """Raise `ConfigurationError` if other hosts can share the directory: locks there hold on one host."""
        file_system = network_file_system_of(self.path)
        if file_system is not None:
            raise ConfigurationError(
                f"The lock directory {self.path} is on a network file system ({file_system}), "
                "where file locks exclude nobody on other hosts. "
                "Name a local directory, or use a lock service for several hosts, for example redis://."
            )

    def is_missing(self) -> bool:
        """Whether nobody has locked anything there yet, so that it is to be made. Raises `explain`'s."""
        with self.explained():
            try:
                os.lstat(self.root)
            except FileNotFoundError:
                return True
            return False

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn an OSError into `explain`'s."""
        try:
            yield
        except OSError as error:
            raise self.explain(error) from error

    def explain(self, error: OSError) -> ConfigurationError | BackendUnavailable:
        """The error that names the path, the cause and the remedy."""
        code = errno.ENOTDIR if isinstance(error, FileExistsError) else error.errno or 0
        # Relative is what was opened in one of our directories; a number is a descriptor.
        path = os.path.join(self.root, error.filename) if isinstance(error.filename, str) else self.root
        if code in _HOPELESS:
            other = _other_owner(path) if code in {errno.EACCES, errno.EPERM} else None
            remedy = (
                "Name a local directory that every process of the application may write, or make it so: "
                f"{make_it(self.path)}"
            )
            if other is not None:
                remedy = (
                    f"It belongs to {other}. Run every process that uses the locks as one user, or as "
                    "members of one group. While nothing uses them, give them to that user: "
                    f"{give_it(self.path)}"
                )
            return ConfigurationError(
                f"The lock directory {self.path} cannot be used: {path} {_HOPELESS[code]}. {remedy}"
            )
        remedy = _PASSING.get(code, "Look at the directory and at its disk.")
        return BackendUnavailable(
            f"The lock directory {self.path} failed at {path}: {os.strerror(code)}. {remedy}"
        )


class Below:
    """Errors of the block name their file by its whole path: it was opened in the directory *path*."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, OSError):
            # Some calls don't say the name.
            named = isinstance(error.filename, str)
            error.filename = os.path.join(self._path, error.filename) if named else self._path


def _other_owner(path: str) -> str | None:
    """Another user who made what is in the way at *path*, most likely by using the locks first."""
    while path != "/":
        with suppress(OSError):
            owner = os.lstat(path).st_uid
            return None if owner == os.geteuid() else user_of(owner)
        path = os.path.dirname(path)
    return None
