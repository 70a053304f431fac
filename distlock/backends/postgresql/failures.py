"""What PostgreSQL or the way to it can do wrong, told with its remedy."""

from __future__ import annotations

from distlock.backends.advisory.failures import Refused, Vanished
from distlock.backends.postgresql.address import Address
from distlock.errors import BackendUnavailable, ConfigurationError, LockError

MAKE_TABLE = (
    "Run 'distlock prepare' once, with this URL but a user that may make tables in --url or DISTLOCK_URL."
)
_TABLE_MISSING = ("42P01", "3F000")
_OLD_ROW = "the row of this name is gone"

#: A code of SQLSTATE, or what the text says -> what to do about it. The first that fits is taken.
_REMEDIES: tuple[tuple[str, str], ...] = (
    ("28P01", "Check the user and the password."),
    ("28000", "Let this user in: see pg_hba.conf on the server."),
    ("password authentication failed", "Check the user and the password."),
    ("no password supplied", "Put the password in the URL: postgresql://user:password@host/database."),
    ("no pg_hba.conf entry", "Let this user in: see pg_hba.conf on the server."),
    ("53300", "Raise max_connections on the server, or let fewer processes lock."),
    ("too many connections", "Raise max_connections on the server, or let fewer processes lock."),
    ("remaining connection slots", "Raise max_connections on the server, or let fewer processes lock."),
    ("sorry, too many clients", "Raise max_connections on the server, or let fewer processes lock."),
    ("53200", "Raise max_locks_per_transaction on the server: it has no room for more locks."),
    (
        "permission denied for schema",
        "To prepare it, be a user that may make tables. To lock, this user needs USAGE on the schema.",
    ),
    ("42501", "Grant this user SELECT, INSERT and UPDATE on distlock_name, and USAGE on distlock_number."),
    ("25006", "It is a standby, or read only: put the primary in the URL."),
    ("due to user request", "Somebody has ended the statement on the server: try again."),
    ("57P03", "It is starting or stopping: try again."),
    ("starting up", "It is starting: try again."),
    ("response to SSL negotiation", "It does not speak as PostgreSQL does: check host and port in the URL."),
    ("does not support SSL", "Switch TLS on there (ssl = on), or write another sslmode in the URL."),
    (' value: "', "Correct it in the URL."),
    ("root certificate file", "Correct sslrootcert in the URL, or the file."),
    ("does not match host name", "Write a host that the certificate names in the URL."),
    (
        "certificate verify failed",
        "Name who signed its certificate in the URL: ?sslrootcert=/path/ca.pem.",
    ),
    ("does not exist", "Check user and database in the URL."),
    ("could not translate", "Check the name of the host in the URL, and the resolver."),
    ("refused", "See whether it runs and can be reached from here."),
    ("start new thread", "This process can start no more threads: see 'ulimit -u'."),
    (_OLD_ROW, "The table was emptied or made anew: try again."),
    ("no answer", "See whether it is overloaded or the network drops packets; io_timeout bounds the wait."),
)


def old_row() -> Vanished:
    return Vanished("", _OLD_ROW)


def unavailable(address: Address, error: BaseException) -> LockError:
    """Return the error that a caller gets for *error*."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    code = error.code if isinstance(error, Refused) else ""
    if code in _TABLE_MISSING:
        return ConfigurationError(
            f"The PostgreSQL database at {address.shown} lacks what locks need: {lines[0]}. {MAKE_TABLE}"
        )
    if isinstance(error, TimeoutError):
        lines = ["no answer in time"]
    # libpq asks in a line of its own whether the server runs: the remedy says so.
    text = " ".join(line.strip() for line in lines if not line.endswith("?"))
    remedy = next((do for what, do in _REMEDIES if what == code or what in text), "See the server's log.")
    return BackendUnavailable(
        f"The PostgreSQL server at {address.shown} can't be used: {text.rstrip('.')}. {remedy}"
    )


def too_old(address: Address, version: int) -> ConfigurationError:
    return ConfigurationError(
        f"The PostgreSQL server at {address.shown} is version {version // 10000}, which can't end the "
        "session of a process that hangs (idle_session_timeout). Use version 14 or newer, or name another "
        "lock service, such as redis://."
    )


def pooled(address: Address) -> ConfigurationError:
    return ConfigurationError(
        f"Between this process and the PostgreSQL server at {address.shown} stands a proxy: the server "
        "answers from another session than the one that was opened. Where it pools transactions or "
        "statements, a lock would be left in a session that others get. Put the server itself in the URL, "
        "or, if the proxy pools whole sessions, say so: the option pools_sessions=True."
    )


def standby(address: Address) -> BackendUnavailable:
    return BackendUnavailable(
        f"The PostgreSQL server at {address.shown} can't be used: it is a standby, whose locks the others "
        "don't see. Put the primary in the URL; of several hosts, target_session_attrs=read-write finds it."
    )
