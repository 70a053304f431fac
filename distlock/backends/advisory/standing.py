"""What a server tells of a lock: the sessions that have it or wait for it, and whose they are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Standing:
    """One session that has the lock of *key*, or waits for it."""

    key: str
    #: The server's number for it.
    session: int
    #: For how long it has waited, seconds; None: it has the lock.
    waited: float | None
    #: For people: what the server tells of it.
    called: str
    #: The host and pid of its process, where that has said it; "" and 0: it has not.
    host: str = ""
    pid: int = 0
