"""What an operator looks at in a lock directory: what is left of its file system, and whom it serves."""

from __future__ import annotations

import os
from collections.abc import Iterator

from distlock.backends.file.directory import Directory
from distlock.backends.findings import Finding

#: A lock is a file or two. So many may be made, at least, …
_FILES = 10_000
#: … and so many bytes be written.
_BYTES = 64 * 1024**2


def unmade(directory: Directory) -> Finding | None:
    """What an operator is told of a *directory* that is not there, and is not to be made by looking."""
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
    """*root*: the directory, which is there. Raises OSError."""
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
