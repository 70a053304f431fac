"""The user that runs a database server, and where: servers refuse to run as root, or can't read its home."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from loadtest.child import Account, StackError

ROOT_UID = 0
#: The servers' own accounts, where Debian made them, before the one that is always there.
ACCOUNTS = ("postgres", "mysql", "nobody")


def find_account() -> Account | None:
    """Whom to become; None to stay who we are."""
    if os.getuid() != ROOT_UID:
        return None
    for name in ACCOUNTS:
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return Account(entry.pw_uid, entry.pw_gid)
    raise StackError("A database does not run as root, and there is no other user. Run: adduser nobody")


@contextlib.contextmanager
def home_of(account: Account | None) -> Iterator[Path]:
    """A directory for the server's data, gone in the end. Its name tells which run it belongs to."""
    home = Path(tempfile.mkdtemp(prefix=f"distlock-run-{os.getpid()}-"))
    try:
        if account:
            os.chown(home, account.uid, account.gid)
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)
