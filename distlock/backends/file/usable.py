"""Whether this user can use a lock directory, as its first use would find. Nothing is made, opened or locked.

To be asked before a server starts, perhaps by another user, such as root: what that user makes would be in
the way of the server's own.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress

from distlock.backends.file.directory import STATE, Directory
from distlock.backends.file.tree import QUEUE, WAKE, Tree


class _Missing(Exception):
    """The first use makes it."""


def refuse_unusable(url: str) -> None:
    """Raise what the first use of the lock directory *url* by this user would raise: `ConfigurationError`,
    with the remedy, or `BackendUnavailable` for what may pass.
    """
    refuse_unusable_directory(Directory(url))


def refuse_unusable_directory(directory: Directory) -> None:
    """See `refuse_unusable`."""
    with suppress(_Missing), directory.explained():
        tree = Tree(directory, mkdir=_would_make)
        try:
            for name in (".", QUEUE, WAKE):
                _require(os.W_OK | os.X_OK, name, tree.root, os.path.normpath(f"{directory.root}/{name}"))
            # Only looked at: to close a descriptor of it would give up all locks of this process there.
            with suppress(FileNotFoundError):
                tree.require_file(os.lstat(STATE, dir_fd=tree.root), STATE)
                _require(os.R_OK | os.W_OK, STATE, tree.root, directory.state)
        finally:
            tree.close()


def _would_make(name: str, _: int, *, dir_fd: int) -> None:
    """In the place of `os.mkdir`."""
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
