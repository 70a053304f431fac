"""What a Redis server or the way to it can do wrong, told with its remedy."""

from __future__ import annotations

from redis import exceptions

from distlock.backends.redis.address import Address
from distlock.errors import BackendUnavailable

#: What the error is or how the server's text starts -> what to do about it. The first that fits is taken.
_REMEDIES: tuple[tuple[type[Exception] | str, str], ...] = (
    ("Authentication required", "Put the password in the URL: redis://:password@host."),
    (exceptions.AuthenticationError, "Check the user and the password in the URL."),
    ("WRONGPASS", "Check the user and the password in the URL."),
    ("NOPERM", "Let the user run the commands that docs/redis.md lists, on ~dl:* and &dl:*."),
    (
        exceptions.NoPermissionError,
        "Let the user run the commands that docs/redis.md lists, on ~dl:* and &dl:*.",
    ),
    (exceptions.OutOfMemoryError, "Raise maxmemory, or keep the locks in a server of their own."),
    (exceptions.ReadOnlyError, "It is a replica: put the primary in the URL."),
    ("DB index is out of range", "Put another number in the URL, or raise 'databases' on the server."),
    ("MISCONF", "It cannot save its data: free its disk, or see its log."),
    (exceptions.BusyLoadingError, "It is loading its data: try again when it is done."),
    ("BUSY", "A script or function of somebody else blocks it: see SCRIPT KILL."),
    (
        "WRONGTYPE",
        "Something else writes keys that begin with dl:1: there: give the locks a database of their own.",
    ),
    (exceptions.MaxConnectionsError, "Raise maxclients on the server."),
    ("max number of clients", "Raise maxclients on the server."),
    (
        exceptions.TimeoutError,
        "See whether it is overloaded or the network drops packets; io_timeout bounds the wait.",
    ),
    (exceptions.ConnectionError, "See whether it runs and can be reached from here."),
    (OSError, "See whether it runs and can be reached from here."),
)


def unavailable(address: Address, error: BaseException) -> BackendUnavailable:
    """What the user is told about *error*, ready to be raised ``from`` its cause."""
    text = str(error) or type(error).__name__
    shown = address.redact(text)
    remedy = "See the server's log."
    for what, advice in _REMEDIES:
        if what in text if isinstance(what, str) else isinstance(error, what):
            remedy = advice
            break
    told = BackendUnavailable(
        f"The Redis server at {address.shown} can't be used: {shown.rstrip('.')}. {remedy}"
    )
    # A cause is printed with the traceback. One that quotes a secret is left out.
    told.__cause__ = error if shown == text else None
    told.__suppress_context__ = True
    return told
