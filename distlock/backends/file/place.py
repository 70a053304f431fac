"""The directory: where it is, what lies where in it, who may use it, and what to do when it fails."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from distlock.backends.file.mounts import network_file_system_of
from distlock.errors import BackendUnavailable, ConfigurationError

#: The format of what lies in the directory; another format gets another folder and never meets this one.
FORMAT = "v1"

_EXAMPLE = "file:///var/lock/shop"

#: What no repetition of the call will heal.
_HOPELESS = {
    errno.EACCES: "may not be written by this user",
    errno.EPERM: "may not be written by this user",
    errno.EROFS: "is on a read-only file system",
    errno.ENOTDIR: "is not a directory, or lies below a file",
    errno.ELOOP: "is a loop of symbolic links",
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


class Place:
    """Paths below one lock directory."""

    def __init__(self, url: str) -> None:
        self.directory = _directory(url)
        root = f"{self.directory}/{FORMAT}"
        self.root = root
        self.state = f"{root}/state"
        self.queue = f"{root}/queue"
        self.wake = f"{root}/wake"
        self.refuse_network()

    def refuse_network(self) -> None:
        """Raise `ConfigurationError` if other hosts can share the directory: locks there hold on one host."""
        file_system = network_file_system_of(self.directory)
        if file_system is not None:
            raise ConfigurationError(
                f"The lock directory {self.directory} is on a network file system ({file_system}), "
                "where file locks exclude nobody on other hosts. "
                "Name a local directory, or use a lock service for several hosts, for example redis://."
            )

    def prepare(self) -> None:
        """Make what is missing.

        A directory that we make is this user's alone. One that an administrator made is followed: who may
        write there (its owner, or its group too) may use the locks.
        """
        with self.explained():
            os.makedirs(self.directory, mode=0o700, exist_ok=True)
            self.refuse_network()
            for path in (self.root, self.queue, self.wake):
                self.make_directory(path)

    def make_directory(self, path: str) -> None:
        """Make one of our directories, with the rights of the lock directory whatever the umask is."""
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
            # setgid keeps the group of what is made in it, which a shared directory depends on.
            mode = os.stat(self.directory).st_mode
            os.chmod(path, mode & (stat.S_ISGID | 0o770) | 0o700)

    def file_mode(self) -> int:
        """The rights of our files: whoever may write in the lock directory, but never everybody."""
        return os.stat(self.directory).st_mode & 0o660 | 0o600

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn an OSError into an error that names the path, the cause and the remedy."""
        try:
            yield
        except OSError as error:
            path = error.filename or self.directory
            if isinstance(error, FileExistsError):
                error.errno = errno.ENOTDIR
            code = error.errno or 0
            if code in _HOPELESS:
                raise ConfigurationError(
                    f"The lock directory {self.directory} cannot be used: {path} {_HOPELESS[code]}. "
                    "Name a local directory that every process of the application may write, or make it so: "
                    f"install -d -m 2770 -g GROUP {self.directory}"
                ) from error
            remedy = _PASSING.get(code, "Look at the directory and at its disk.")
            raise BackendUnavailable(
                f"The lock directory {self.directory} failed at {path}: {os.strerror(code)}. {remedy}"
            ) from error


def _directory(url: str) -> str:
    """The absolute directory that *url* names: ``file:///var/lock/shop``, or a bare absolute path."""
    parts = urlsplit(url)
    if parts.scheme not in {"", "file"}:
        raise ConfigurationError(
            f"The file backend takes file:// and not {parts.scheme}://. Write {_EXAMPLE}"
        )
    if parts.netloc not in {"", "localhost"}:
        raise ConfigurationError(
            f"{url!r} names the host {parts.netloc!r}: write three slashes, for example {_EXAMPLE}"
        )
    if parts.query or parts.fragment:
        raise ConfigurationError(f"{url!r} has a query or fragment: the file backend takes none in its URL.")
    path = unquote(parts.path) if parts.scheme else parts.path
    if "\0" in path or not path.startswith("/") or not path.strip("/"):
        raise ConfigurationError(f"{url!r} names no absolute directory. Write for example {_EXAMPLE}")
    return str(Path(os.path.normpath("/" + path.lstrip("/"))))
