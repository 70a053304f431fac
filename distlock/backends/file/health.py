"""Health checks of a lock directory, and whether this user could use it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress

from distlock.backends.file.directory import STATE, Directory
from distlock.backends.file.tree import QUEUE, WAKE, Tree
from distlock.backends.inspectable import Finding

#: From this many free files on …
_FILES = 10_000
#: … and this many free bytes on there is no warning.
_BYTES = 64 * 1024**2


def unmade(directory: Directory) -> Finding | None:
    """Return a warning if *directory* does not exist. A look must not make it."""
    if not directory.is_missing():
        return None
    if not os.path.lexists(directory.path):
        said = f"The lock directory {directory.path} is not there."
    else:
        said = f"The lock directory {directory.path} is there, and nothing has been locked in it yet."
    return Finding(
        "warning",
        "directory",
        said,
        "The first lock makes what is missing. If the site has locked something already, compare the path "
        "with the one in its settings: a container has directories of its own.",
    )


def examine(root: str) -> Iterator[Finding]:
    """Yield the findings about the existing directory *root*. Raises OSError."""
    yield Finding("ok", "hosts", f"{root} serves the processes of this host, or of this container.")
    told = os.statvfs(root)
    left, files = told.f_bavail * told.f_frsize, told.f_favail
    said = f"{left / 1024**2:.0f} MiB are left"
    # Some file systems don't count files.
    counted = told.f_files > 0
    if counted:
        said += f", and {files} files"
    if left < _BYTES or (counted and files < _FILES):
        yield Finding(
            "warning", "space", f"{said}.", "Make room, or move the locks: a full disk lets nobody lock."
        )
    else:
        yield Finding("ok", "space", f"{said}.")


class _Missing(Exception):
    """The directory would be made by its first use."""


def refuse_unusable(url: str) -> None:
    """Raise what the first use of the lock directory *url* by this user would raise.

    That is a `ConfigurationError` with the remedy, or `BackendUnavailable` for what may pass.
    """
    refuse_unusable_directory(Directory(url))


def refuse_unusable_directory(directory: Directory) -> None:
    """As `refuse_unusable`, for a *directory* that was read from a URL."""
    with suppress(_Missing), directory.explained():
        tree = Tree(directory, mkdir=_would_make)
        try:
            for name in (".", QUEUE, WAKE):
                _require(os.W_OK | os.X_OK, name, tree.root, os.path.normpath(f"{directory.root}/{name}"))
            # Only looked at, because closing a descriptor of it would drop all locks of this process there.
            with suppress(FileNotFoundError):
                tree.require_file(os.lstat(STATE, dir_fd=tree.root), STATE)
                _require(os.R_OK | os.W_OK, STATE, tree.root, directory.state)
        finally:
            tree.close()


def _would_make(name: str, _: int, *, dir_fd: int) -> None:
    """Stand in for `os.mkdir`: raise in the place of making anything."""
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
