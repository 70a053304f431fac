"""The seed: the one empty file that a contender's entries are names of.

A new name is cheaper than a new file: for that a file system looks for a free inode, and ext4 passes over
those that were deleted lately, which are many where a lock is taken and released all the time.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress

from distlock import clock
from distlock.backends.file.record_locks import name_of
from distlock.backends.file.tree import Tree

#: Behind the contender in the name of its file.
SUFFIX = ".seed"
#: Seconds that one file serves for: cleaners delete what is old.
_LIFETIME = 3600.0


class Seed:
    """Of one contender. It lies beside the state file, and is made when it is needed."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._name = ""
        self._wilts = 0.0

    def sow(self, contender: int, path: str) -> bool:
        """Make the entry *path*. False where it has to be a file of its own."""
        root = self._tree.root
        try:
            if clock.now() >= self._wilts:
                self.remove()
                self._name = f"{name_of(contender)}{SUFFIX}"
                create(self._name, root)
                self._wilts = clock.now() + _LIFETIME
            # A symbolic link in its place is not followed.
            os.link(self._name, path, src_dir_fd=root, dst_dir_fd=self._tree.queue, follow_symlinks=False)
        except OSError as error:
            # The folder is missing, or there is no such thing in this file system, or worse: a file tells.
            if error.errno == errno.EMLINK or not self._there():
                self._wilts = 0.0
            return False
        return True

    def remove(self) -> None:
        if self._name:
            with suppress(OSError):
                os.unlink(self._name, dir_fd=self._tree.root)

    def _there(self) -> bool:
        with suppress(OSError):
            os.lstat(self._name, dir_fd=self._tree.root)
            return True
        return False


def create(path: str, parent: int) -> None:
    """Make an empty file below the directory *parent*."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600, dir_fd=parent))
