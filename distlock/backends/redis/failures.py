"""The errors about a Redis server, or the connection to it, with their remedies."""

from __future__ import annotations

import errno
import re
import ssl
from collections.abc import Callable
from socket import gaierror

from distlock.backends import tls
from distlock.backends.redis.address import RedisAddress
from distlock.errors import BackendUnavailable, ConfigurationError

_PERMISSIONS = (
    "Let the user run the commands that the page 'The redis backend' of the docs lists, on ~dl:* and &dl:*."
)
NO_TLS = "See whether that port speaks TLS; where it does not, write the URL without it: redis for rediss."
#: The remedy if the server closes a TLS connection. It may have refused this client's certificate: it does so
#: after the handshake, and a reset may overtake its answer.
_CLOSED_TLS = (
    "See whether it runs and speaks TLS on that port. If it wants a certificate of its clients, name yours "
    "in the URL, ?ssl_certfile=/path/client.pem&ssl_keyfile=/path/client.key."
)
_CLOSED = (
    "See whether it runs, and whether it is Redis that listens on that port. Where it speaks TLS, write the "
    "URL with it: rediss for redis."
)
_CLUSTER = "It is a node of a cluster: write redis+cluster:// in the place of redis://, and no database."
_UNKNOWN = (
    "If it is a sentinel, write redis+sentinel://host/name, where name is what it calls the primary. If it "
    "renames or forbids the command, allow it."
)
_SLOW = (
    "See whether it is overloaded or the network drops packets; io_timeout and the time-out of the lock "
    "bound the wait."
)

#: The parts of a server's error that quote the request, with keys and tokens, or name a line of our script.
_ADDED = re.compile(r", with args beginning with:(?: '[^']*')*\s*|\.? script: [0-9a-f]{40}, on @?\w+:\d+")


Sign = type[Exception] | str | Callable[[BaseException], bool]


class Remedied(OSError):
    """An OSError with a remedy of its own, which `unavailable` shows."""

    def __init__(self, text: str, remedy: str) -> None:
        super().__init__(text)
        self.remedy = remedy


def _out_of(*numbers: int) -> Callable[[BaseException], bool]:
    # The errno of an SSLError is a number of OpenSSL, where 1 is not EPERM.
    return lambda error: (
        isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.errno in numbers
    )


def _unverified(*codes: int) -> Callable[[BaseException], bool]:
    """Return a test for failed verifications with one of *codes*, OpenSSL's X509_V_ERR_..."""
    return lambda error: isinstance(error, ssl.SSLCertVerificationError) and error.verify_code in codes


def _closed(error: BaseException) -> bool:
    """Return whether the other end closed an open connection."""
    return isinstance(error, (ConnectionError, ssl.SSLEOFError)) and not isinstance(
        error, ConnectionRefusedError
    )


def _of_a_file(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.filename is not None


#: A remedy, and the signs of the failures that it mends: types of errors, tests of them, or parts of the
#: server's text. The first match counts.
_REMEDIES: tuple[tuple[str, *tuple[Sign, ...]], ...] = (
    ("Put the password before the host of the URL, as in //:password@host.", "Authentication required"),
    (
        "Let it return a password, or a tuple of user and password, and within io_timeout.",
        "credential_provider",
    ),
    ("Check the user and the password.", "WRONGPASS", "invalid password"),
    ("Take the password out of the URL, or set one on the server.", "without any password configured"),
    (_PERMISSIONS, "NOPERM", "ACL failure in script", "executing the script can't"),
    ("Raise maxmemory, or keep the locks in a server of their own.", "OOM command not allowed"),
    ("It is a replica: put the primary in the URL.", "READONLY"),
    ("Put another number in the URL, or raise 'databases' on the server.", "DB index is out of range"),
    ("It cannot save its data: free its disk, or see its log.", "MISCONF"),
    ("It misses replicas (min-replicas-to-write): see what became of them.", "NOREPLICAS"),
    ("It is a replica that lost its primary: put the primary in the URL.", "MASTERDOWN"),
    (_CLUSTER, "CLUSTERDOWN", "MOVED"),
    (
        "It is no node of a cluster: write redis:// in the place of redis+cluster://.",
        "cluster support disabled",
    ),
    (_UNKNOWN, "unknown command"),
    ("It is loading its data: try again when it is done.", "LOADING"),
    ("A script or function of somebody else blocks it: see SCRIPT KILL.", "BUSY"),
    ("Raise maxclients on the server.", "max number of clients"),
    (
        "It does not speak as Redis does: check host and port in the URL.",
        "Protocol error",
        "more than was asked",
    ),
    (NO_TLS, "handshake operation timed out"),
    (_SLOW, TimeoutError),
    ("This process has no descriptors left: close files, or raise 'ulimit -n'.", _out_of(errno.EMFILE)),
    ("This host has run out of descriptors or memory.", _out_of(errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)),
    ("Correct the path in the URL, or the file: this process's user has to be able to read it.", _of_a_file),
    ("Let this process's user connect: see the rights of the socket.", _out_of(errno.EACCES, errno.EPERM)),
    ("Check the name of the host in the URL, and the resolver.", gaierror),
    (tls.EXPIRED, _unverified(9, 10)),
    (tls.OTHER_HOST, _unverified(62, 64)),
    (tls.UNVERIFIED, ssl.SSLCertVerificationError),
    (
        tls.CLIENT_CERTIFICATE,
        *("ALERT_CERTIFICATE", "ALERT_BAD_CERTIFICATE", "ALERT_HANDSHAKE_FAILURE", "ALERT_UNKNOWN_CA"),
    ),
    ("It refuses to speak TLS with this process: see its log.", "_ALERT_"),
    (NO_TLS, ssl.SSLError),
    ("This process can start no more threads: see 'ulimit -u'.", "start new thread"),
    ("Check the URL.", ValueError),
    (_CLOSED, _closed),
    ("See whether it runs and can be reached from here.", OSError),
)


def unavailable(
    address: RedisAddress, error: BaseException, command: str | None = None
) -> BackendUnavailable:
    """Return the error that a caller gets for *error*, which is its cause unless *error* quotes a secret.

    *command*: the command of a script that the server refused.
    """
    text = str(error) or type(error).__name__
    shown = address.redact(text)
    said = _ADDED.sub("", shown).rstrip(".")
    remedy = error.remedy if isinstance(error, Remedied) else _remedy(address, text, error)
    which = f" (the command {command})" if command else ""
    told = BackendUnavailable(f"The Redis server at {address.shown} can't be used: {said}{which}. {remedy}")
    # A cause is printed with the traceback, so one that quotes a secret is left out.
    told.__cause__ = error if shown == text else None
    told.__suppress_context__ = True
    return told


def _remedy(address: RedisAddress, text: str, error: BaseException) -> str:
    for remedy, *signs in ((_CLOSED_TLS, _closed), *_REMEDIES) if address.tls else _REMEDIES:
        if any(_fits(sign, text, error) for sign in signs):
            return remedy
    return "See the server's log."


def is_foreign(error: Exception) -> bool:
    """Return whether a script found a value that distlock did not write."""
    return "WRONGTYPE" in str(error) or "FOREIGN" in str(error)


def foreign(address: RedisAddress, keys: list[str]) -> BackendUnavailable:
    """Return the error for a lock whose *keys* have another program's values, or never expire."""
    named = " ".join(f"'{key}'" for key in keys)
    return BackendUnavailable(
        f"In the Redis server at {address.shown} {named or 'a key of this lock'} is something that distlock "
        "did not write, or that would stay for ever: nobody gets this lock while it is there. If nothing "
        f"needs it, run: redis-cli -n {address.db} DEL {named}. Give the locks a database of their own."
    )


def unending(address: RedisAddress, key: str) -> BackendUnavailable:
    """Return the error for a hold at *key* that had no lifetime, and was given one."""
    return BackendUnavailable(
        f"In the Redis server at {address.shown} the hold '{key}' had no lifetime: somebody took it away "
        "(PERSIST). It has one again, and ends with it unless its holder lives. If the holder is gone, it "
        f"can be freed at once: redis-cli -n {address.db} DEL '{key}'."
    )


def too_high(number: int) -> ConfigurationError:
    """Return the error for a fence that can't be raised above *number*."""
    return ConfigurationError(
        f"A database has seen the fence {number}, and Redis counts to 2**52: another lock service gave it "
        "out. Raise FENCE_EPOCH (epoch= of connect), on all servers: numbers begin anew."
    )


def _fits(sign: Sign, text: str, error: BaseException) -> bool:
    if isinstance(sign, str):
        return sign in text
    return isinstance(error, sign) if isinstance(sign, type) else sign(error)
