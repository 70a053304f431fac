"""What MariaDB, MySQL or the way to it can do wrong, told with its remedy."""

from __future__ import annotations

import re

from distlock.backends.advisory.failures import Refused
from distlock.backends.mysql.address import Address
from distlock.errors import BackendUnavailable, ConfigurationError, LockError

_MAKE_TABLE = (
    "Run 'distlock prepare' once, with this URL but a user that may make tables in --url or DISTLOCK_URL."
)
_TABLE_MISSING = "1146"
_DATABASE_MISSING = "1049"
_RAISE = "Raise max_connections on the server, or let fewer processes lock."
_RIGHTS = "Grant this user SELECT, INSERT and UPDATE on distlock_name."

#: The number of an error, or what the text says -> what to do about it. The first that fits is taken.
_REMEDIES: tuple[tuple[str, str], ...] = (
    ("1045", "Check the user and the password."),
    ("1698", "Check the user and the password."),
    ("1130", "Let this host in: see the hosts of the user on the server."),
    ("1044", "Grant this user the database, and SELECT, INSERT and UPDATE on distlock_name."),
    ("CREATE command denied", "To prepare it, be a user that may make tables."),
    ("1142", _RIGHTS),
    ("1143", _RIGHTS),
    ("1040", _RAISE),
    ("1203", _RAISE),
    ("1226", "Raise what the server lets this user have, or let fewer processes lock."),
    ("1205", "Somebody's transaction keeps a row of distlock_name locked: see SHOW FULL PROCESSLIST."),
    ("3159", "The server wants TLS: add ssl_ca=/path/to/ca.pem to the URL."),
    ("1290", "It is a replica, or read only: put the primary in the URL."),
    ("1836", "It is a replica, or read only: put the primary in the URL."),
    ("1317", "Somebody has ended the statement on the server: try again."),
    ("CERTIFICATE_VERIFY_FAILED", "Check ssl_ca, and with ssl_verify_identity the name of the host."),
    ("SSL", "Check the parameters ssl_… of the URL, and what the server has."),
    ("'cryptography' package is required", "Use TLS: add ssl_ca=/path/to/ca.pem to the URL."),
    ("Name or service not known", "Check the name of the host in the URL, and the resolver."),
    ("refused", "See whether it runs and can be reached from here."),
    ("No such file", "Check unix_socket in the URL."),
    ("start new thread", "This process can start no more threads: see 'ulimit -u'."),
    ("no answer", "See whether it is overloaded or the network drops packets; io_timeout bounds the wait."),
)


def unavailable(address: Address, error: BaseException) -> LockError:
    """Return the error that a caller gets for *error*."""
    code = error.code if isinstance(error, Refused) else ""
    text = " ".join(str(error).split()) or type(error).__name__
    if code == _TABLE_MISSING:
        return ConfigurationError(
            f"The MySQL database at {address.shown} lacks what locks need: {text.rstrip('.')}. {_MAKE_TABLE}"
        )
    if code == _DATABASE_MISSING:
        return ConfigurationError(
            f"The MySQL server at {address.shown} lacks the database: {text.rstrip('.')}. Check the URL."
        )
    if isinstance(error, TimeoutError):
        text = "no answer in time"
    remedy = next((do for what, do in _REMEDIES if what == code or what in text), "See the server's log.")
    return BackendUnavailable(
        f"The MySQL server at {address.shown} can't be used: {text.rstrip('.')}. {remedy}"
    )


def numbers_of(version: str) -> tuple[int, ...]:
    """``10.11.6-MariaDB-log`` as (10, 11, 6)."""
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("-")[0]))


def too_old(address: Address, version: str) -> ConfigurationError:
    return ConfigurationError(
        f"The MySQL server at {address.shown} is version {version}, in which a session can't hold several "
        "locks. Use MariaDB 10.11 or MySQL 8, or name another lock service, such as redis://."
    )


def pooled(address: Address) -> ConfigurationError:
    return ConfigurationError(
        f"Between this process and the MySQL server at {address.shown} stands a proxy: the server "
        "answers from another session than the one that was opened. Where it pools transactions or "
        "statements, a lock would be left in a session that others get. Put the server itself in the URL, "
        "or, if the proxy pools whole sessions, say so: the option pools_sessions=True."
    )


def replica(address: Address) -> BackendUnavailable:
    return BackendUnavailable(
        f"The MySQL server at {address.shown} can't be used: it is read only, as replicas are, whose locks "
        "the others don't see. Put the primary in the URL."
    )


def unencrypted(address: Address) -> ConfigurationError:
    return ConfigurationError(
        f"The MySQL server at {address.shown} speaks no TLS, which the URL asks for. Switch it on there, or "
        "take the parameters ssl_… out of the URL."
    )
