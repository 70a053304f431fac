"""The lock directory: its URL, who may write there, its file system, and its errors."""

from __future__ import annotations

import errno
import os
import pwd
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn
from urllib.parse import unquote, urlsplit

from distlock.backends.inspectable import Finding
from distlock.errors import BackendUnavailable, ConfigurationError, shown_as

#: The format of the files. Each format has a folder of its own.
FORMAT = "v2"

#: The name of the file in which every contender locks a byte. It also has the counters of the tickets.
STATE = "state"

#: A health check warns of fewer free files and bytes than these.
_FILES, _BYTES = 10_000, 64 * 1024**2

#: Errors that don't pass, and what is wrong with the path.
_HOPELESS = {
    errno.EACCES: "may not be written by this user",
    errno.EPERM: "may not be written by this user",
    errno.EROFS: "is on a read-only file system",
    errno.ENOTDIR: "is not a directory, is a symbolic link, or lies below a file",
    errno.ELOOP: "is a symbolic link where none may be, or a loop of them",
    errno.ENAMETOOLONG: "is too long a path",
}

#: Errors that may pass, with the remedy.
_PASSING = {
    errno.ENOSPC: "Free some space or inodes there.",
    errno.EDQUOT: "Raise this user's quota there.",
    errno.EMFILE: "Raise the limit of open files of this process (ulimit -n).",
    errno.ENFILE: "Raise the limit of open files of this host.",
    errno.ENOLCK: "The host has no more record locks, or this file system has none.",
}


class Directory:
    """The paths of one lock directory, and its errors."""

    def __init__(self, url: str) -> None:
        self.path = directory_of(url)
        self.root = f"{self.path}/{FORMAT}"
        self.state = f"{self.root}/{STATE}"
        self.refuse_network()

    def refuse_network(self) -> None:
        """Raise `ConfigurationError` if other hosts can share the directory: no file lock excludes them."""
        file_system = network_file_system_of(self.path)
        if file_system is not None:
            raise ConfigurationError(
                f"The lock directory {self.path} is on a network file system ({file_system}), "
                "where file locks exclude nobody on other hosts. "
                "Name a local directory, or use a lock service for several hosts, for example redis://."
            )

    def unmade(self) -> Finding | None:
        """Return a warning if nothing was ever locked there; else None. Raises the errors of `explain`."""
        with self.explained():
            try:
                os.lstat(self.root)
            except FileNotFoundError:
                there = os.path.lexists(self.path)
            else:
                return None
        about = "is there, and nothing has been locked in it yet" if there else "is not there"
        return Finding(
            "warning",
            "directory",
            f"The lock directory {self.path} {about}.",
            "The first lock makes what is missing. If the site has locked something already, compare the "
            "path with the one in its settings: a container has directories of its own.",
        )

    def examine(self) -> Iterator[Finding]:
        """Yield the findings about the directory, which exists. Raises OSError."""
        yield Finding("ok", "hosts", f"{self.root} serves the processes of this host, or of this container.")
        told = os.statvfs(self.root)
        left, files = told.f_bavail * told.f_frsize, told.f_favail
        said = f"{left / 1024**2:.0f} MiB are left"
        # Some file systems don't count files.
        if counted := told.f_files > 0:
            said += f", and {files} files"
        if left < _BYTES or (counted and files < _FILES):
            remedy = "Make room, or move the locks: a full disk lets nobody lock."
            yield Finding("warning", "space", f"{said}.", remedy)
        else:
            yield Finding("ok", "space", f"{said}.")

    def require_trusted_link(self, status: os.stat_result, path: str) -> None:
        """Raise `Distrusted` if another user can change the symbolic link at *path*."""
        if not _is_own(status):
            self._distrust(f"{path} is a symbolic link of {user_of(status.st_uid)}")

    def require_trusted(
        self, status: os.stat_result, path: str, *, group: int | None = None, inside: bool = False
    ) -> None:
        """Raise `Distrusted` if another user can change the file or directory at *path*.

        *group*: its members are trusted, too. *inside*: *path* is in the lock directory, where a sticky bit
        is not enough.
        """
        mode = status.st_mode
        if not (_is_own(status) or (mode & stat.S_IWGRP and _is_ours(status.st_gid, group))):
            self._distrust(f"{path} belongs to {user_of(status.st_uid)}")
        if mode & stat.S_IWOTH and (inside or not mode & stat.S_ISVTX):
            self._distrust(f"{path} may be written by everybody (mode {stat.S_IMODE(mode):04o})")

    def _distrust(self, what: str) -> NoReturn:
        raise Distrusted(
            f"The lock directory {self.path} cannot be trusted: {what}, so that another user could put "
            "something else in its place, and two would hold one lock. Take its rights away, or name a "
            f"directory of your own: {make_it(self.path)}"
        )

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn an OSError of the block into the error of `explain`."""
        try:
            yield
        except OSError as error:
            raise self.explain(error) from error

    def explain(self, error: OSError) -> ConfigurationError | BackendUnavailable:
        """Return an error with path, cause and remedy: a `BackendUnavailable` if *error* may pass."""
        code = errno.ENOTDIR if isinstance(error, FileExistsError) else error.errno or 0
        # A relative name was opened in one of our directories. `filename` can also be a descriptor.
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
    """A ``with`` block whose OSErrors name whole paths, although its files are opened relative to *path*."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, OSError):
            # For some calls Python leaves out the name.
            named = isinstance(error.filename, str)
            error.filename = os.path.join(self._path, error.filename) if named else self._path


def _other_owner(path: str) -> str | None:
    """Return the owner of *path*, or of the nearest directory above it that exists; None: this user.

    Another user is the owner most likely because they used the locks first.
    """
    while path != "/":
        with suppress(OSError):
            owner = os.lstat(path).st_uid
            return None if owner == os.geteuid() else user_of(owner)
        path = os.path.dirname(path)
    return None


#: The URL of a directory that no other user can replace. `make_it` returns the command that makes it.
EXAMPLE = "file:///var/lib/shop/locks"

_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HARMLESS = re.compile(r"[\w.-]+")


def make_it(directory: str) -> str:
    """Return the commands that make *directory* for a user, and for a group."""
    return (
        f'sudo install -d -o "$USER" {directory} (or, for the users of a group: '
        f"sudo install -d -m 2770 -g GROUP {directory})"
    )


def give_it(directory: str) -> str:
    """Return the commands that give *directory* and its contents to a user, or to a group."""
    return (
        f'sudo chown -R "$USER" {directory} (or, for the users of a group: '
        f"sudo rm -r {directory} && sudo install -d -m 2770 -g GROUP {directory})"
    )


def directory_of(url: str) -> str:
    """Return the directory that *url* names: ``file:///var/lib/shop/locks``, or an absolute path.

    Raises `ConfigurationError`, with the line to write, for everything else.
    """
    if not url.isprintable():
        raise _misread("has control characters")
    try:
        parts = urlsplit(url)
    except ValueError:
        # The cause would quote the URL.
        raise _misread("cannot be read") from None
    path = parts.path
    if parts.scheme not in {"", "file"}:
        raise ConfigurationError(f"The file backend takes file:// and not {parts.scheme}://. Write {EXAMPLE}")
    if parts.netloc not in {"", "localhost"}:
        harmless = _HARMLESS.fullmatch(parts.netloc + path.replace("/", "."))
        raise _misread(
            "names a host: file:// takes the directory of this host, behind three slashes",
            f"file:///{parts.netloc}{path}" if harmless else EXAMPLE,
        )
    if "?" in url or "#" in url:
        raise _misread(
            "has a query or fragment: the file backend takes none. "
            "Options are arguments of connect() or OPTIONS",
            f"{EXAMPLE}; a ? in a name is %3F, and a # is %23.",
        )
    if parts.scheme:
        if _BROKEN_ESCAPE.search(path):
            write = f"%25 for a %, for example {EXAMPLE}/100%25"
            raise _misread("has a % without two hexadecimal digits behind it", write)
        if "%2f" in path.lower():
            raise _misread("has %2F: a name has no slash", f"/, as in {EXAMPLE}")
        path = unquote(path, errors="surrogateescape")
    if "\0" in path or not path.startswith("/") or not path.strip("/"):
        raise _misread("names no absolute directory: its path has to begin with a slash")
    return os.path.normpath("/" + path.lstrip("/"))


def _misread(why: str, write: str = EXAMPLE) -> ConfigurationError:
    return ConfigurationError(f"The URL of the lock directory {why}. Write {write}")


@shown_as(ConfigurationError)
class Distrusted(ConfigurationError):
    """Another user could change what the locks depend on."""


def _is_own(status: os.stat_result) -> bool:
    """Return whether this user or root is the owner."""
    return status.st_uid in {0, os.geteuid()}


def _is_ours(group: int, trusted: int | None) -> bool:
    return group == trusted or group == os.getegid() or group in os.getgroups()


def user_of(uid: int) -> str:
    """Return the name of the user *uid*, for errors."""
    try:
        return f"the user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"the user {uid}"


#: The types of the file systems that other hosts may share.
_NETWORK = re.compile(
    "9p|acfs|afs|beegfs|ceph|cifs|coda|gfs|gfs2|glusterfs|gpfs|lustre|ncpfs|nfs|nfs4|ocfs2|orangefs|pvfs2|"
    "smb2|smb3|smbfs|vboxsf|virtiofs|vmhgfs|wekafs"
)

#: FUSE mostly reaches other hosts (sshfs, s3fs, glusterfs, rclone). These file systems are local.
LOCAL_FUSE = frozenset({"fuse.fuse-overlayfs", "fuse.lxcfs", "fuse.mergerfs"})

MOUNTINFO = Path("/proc/self/mountinfo")

_ESCAPE = re.compile(r"\\([0-7]{3})")


def is_network(file_system: str) -> bool:
    """Return whether other hosts may share a mount of type *file_system*."""
    if file_system.startswith("fuse."):
        return file_system not in LOCAL_FUSE
    return _NETWORK.fullmatch(file_system) is not None


def file_system_of(path: str, mountinfo: str) -> str | None:
    """Return the type of the file system of the absolute, resolved *path*; None if it is unknown.

    *mountinfo* is the text of /proc/self/mountinfo, see proc(5). The longest mount point above *path* counts.
    If two mounts have that point, the later one covers the earlier one.
    """
    found, longest = None, -1
    for line in mountinfo.splitlines():
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if not separator or len(fields) < 5:
            continue
        point = _unescape(fields[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= longest:
            found, longest = after.split(" ")[0], len(point)
    return found


def network_file_system_of(path: str) -> str | None:
    """Return the type of the network file system that *path* is on, or will be; None: local, or unknown."""
    try:
        mountinfo = MOUNTINFO.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None  # Not Linux, or no /proc.
    file_system = file_system_of(os.path.realpath(path), mountinfo)
    return file_system if file_system is not None and is_network(file_system) else None


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)
