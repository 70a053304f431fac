"""Only users that are trusted with the locks may be able to put another directory or file in place of one.

Trusted are root, this user, and the members of a group that may write: an owner that gives a group the right
to write trusts its members. Anybody else could swap the directory, and two would hold a lock.
"""

from __future__ import annotations

import os
import pwd
import stat

from distlock.backends.file.address import make_it
from distlock.errors import ConfigurationError, shown_as


@shown_as(ConfigurationError)
class Distrusted(ConfigurationError):
    """Somebody who is not trusted could change what our locks depend on."""


def require_link(status: os.stat_result, path: str, directory: str) -> None:
    """Raise `Distrusted` if somebody else can let the symbolic link at *path* point elsewhere."""
    if not _is_own(status):
        raise _distrusted(directory, f"{path} is a symbolic link of {user_of(status.st_uid)}")


def require(
    status: os.stat_result, path: str, directory: str, *, group: int | None = None, inside: bool = False
) -> None:
    """Raise `Distrusted` if somebody who is not trusted can change what is at *path*.

    The members of *group* are trusted, too. *inside* the lock directory nobody else may write, sticky bit or
    not.
    """
    mode = status.st_mode
    if not (_is_own(status) or (mode & stat.S_IWGRP and _is_ours(status.st_gid, group))):
        raise _distrusted(directory, f"{path} belongs to {user_of(status.st_uid)}")
    if mode & stat.S_IWOTH and (inside or not mode & stat.S_ISVTX):
        raise _distrusted(directory, f"{path} may be written by everybody (mode {stat.S_IMODE(mode):04o})")


def _is_own(status: os.stat_result) -> bool:
    """Whether it is this user's or root's."""
    return status.st_uid in {0, os.geteuid()}


def _is_ours(group: int, trusted: int | None) -> bool:
    return group == trusted or group == os.getegid() or group in os.getgroups()


def _distrusted(directory: str, what: str) -> Distrusted:
    return Distrusted(
        f"The lock directory {directory} cannot be trusted: {what}, so that another user could put something "
        "else in its place, and two would hold one lock. Take its rights away, or name a directory of your "
        f"own: {make_it(directory)}"
    )


def user_of(uid: int) -> str:
    """The user *uid* in words."""
    try:
        return f"the user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"the user {uid}"
