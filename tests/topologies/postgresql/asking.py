"""What tests ask the server beside distlock."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

import distlock
from distlock.testing.waits import wait_until

#: Makes a client of a URL, closed at the end of the test.
Connect = Callable[..., distlock.Locks]


def prepare(url: str) -> None:
    locks = distlock.connect(url)
    locks.namespace.prepare()
    locks.close()


def asked(url: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement)  # type: ignore[call-overload]
        return list(cursor.fetchall()) if cursor.description else []


def with_role(url: str, role: str, *more: str) -> str:
    """The URL for a new *role*, which has the rights that the page names."""
    asked(url, " ".join(["CREATE ROLE", role, "LOGIN", *more]))
    asked(url, f"GRANT SELECT, INSERT, UPDATE ON distlock_name TO {role}")
    asked(url, f"GRANT USAGE ON SEQUENCE distlock_number TO {role}")
    return url.replace("shop@", f"{role}@")


def waiting(url: str, key: str = "%") -> int:
    """How many sessions wait for the lock of *key*, or of any."""
    [(count,)] = asked(
        url,
        "SELECT count(*) FROM pg_locks JOIN distlock_name ON objid = id::oid "
        f"WHERE locktype = 'advisory' AND NOT granted AND name LIKE '{key}'",
    )
    assert isinstance(count, int)
    return count


def is_up(url: str) -> bool:
    try:
        return bool(asked(url, "SELECT 1"))
    except psycopg.OperationalError:
        return False


@contextmanager
def stopped(session: int) -> Iterator[None]:
    """Stop the server's process for *session* during the block."""
    os.kill(session, signal.SIGSTOP)
    try:
        # A signal that comes before the process has stopped overtakes SIGSTOP, and ends a wait.
        wait_until(lambda: status(session)["State"].startswith("T"), "it stands still")
        yield
    finally:
        os.kill(session, signal.SIGCONT)


def status(session: int) -> dict[str, str]:
    """Return the fields of the kernel's status of the process of *session*."""
    lines = Path(f"/proc/{session}/status").read_text("ascii").splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)
