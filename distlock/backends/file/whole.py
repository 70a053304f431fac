"""Small files that are read and written as a whole: written under another name, and then renamed."""

from __future__ import annotations

import os
from contextlib import suppress

from distlock.backends.file.tree import Tree

#: Behind the name of a file that is being written.
NEW = ".new"


def write(tree: Tree, folder: str, name: str, text: bytes) -> None:
    """Have *text* in the file *name* of *folder*, which is made if it is missing. One writer at a time."""
    new = f"{name}{NEW}"
    descriptor = tree.enter(folder, tree.root)
    try:
        with suppress(FileNotFoundError):
            os.unlink(new, dir_fd=descriptor)
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(new, flags, 0o600, dir_fd=descriptor), "wb") as file:
            os.fchmod(file.fileno(), tree.file_mode())
            file.write(text)
        os.rename(new, name, src_dir_fd=descriptor, dst_dir_fd=descriptor)
    finally:
        os.close(descriptor)


def read(tree: Tree, folder: str, name: str) -> tuple[bytes, os.stat_result] | None:
    """What is in the file, and its state; None if it is not there."""
    while True:
        try:
            within = tree.open(folder, tree.root)
        except FileNotFoundError:
            return None
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(name, flags, dir_fd=within)
        except FileNotFoundError:
            return None
        finally:
            os.close(within)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not status.st_nlink:
                # It was replaced after it was opened.
                continue
            tree.require_file(status, f"{folder}/{name}")
            return file.read(), status
