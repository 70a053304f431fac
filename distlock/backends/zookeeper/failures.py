"""Errors that say what went wrong with ZooKeeper, or on the way to it, with the remedy."""

from __future__ import annotations

import struct

from kazoo import exceptions
from kazoo.handlers.threading import KazooTimeoutError

from distlock.backends import tls
from distlock.backends.zookeeper.address import ZooKeeperAddress
from distlock.errors import BackendUnavailable, shown_as

#: The usual remedy for a connection that broke.
_CLOSED = (
    "See whether it has a quorum, and in its log why it closes connections: maxClientCnxns is how many one "
    "host may have. If the port is its secureClientPort, write zookeepers://."
)
_NO_TLS = "See whether that port speaks TLS (secureClientPort); where it does not, write zookeeper://."

#: A type of error, or a part of its text, and the remedy. The first match counts.
_REMEDIES: tuple[tuple[type[Exception] | str, str], ...] = (
    (
        exceptions.NoAuthError,
        "Put the user:password@ that may use these nodes (getAcl) in the URL, or let everybody (setAcl).",
    ),
    (
        exceptions.AuthFailedError,
        "Check the user and the password in the URL and, with sasl=, that the server has SASL.",
    ),
    (
        exceptions.InvalidACLError,
        "The server knows no digest authentication: take user:password@ out of the URL.",
    ),
    ("Cannot resolve", "Check the host's name in the URL."),
    ("No host resolved", "Check the hosts' names in the URL."),
    ("refused", "See whether it runs and can be reached from here."),
    ("Too many open files", "Close files of this process, or raise its limit (ulimit -n)."),
    ("No such file", "Correct the path in the URL, or the file."),
    ("Permission denied: '", "Let this process's user read the file."),
    ("can't be used (", "Correct the path in the URL, or the file."),
    ("certificate has expired", tls.EXPIRED),
    ("mismatch", tls.OTHER_HOST),
    ("CERTIFICATE_VERIFY_FAILED", tls.UNVERIFIED),
    ("_ALERT_", tls.CLIENT_CERTIFICATE),
    ("[SSL", _NO_TLS),
    ("EOF occurred", _NO_TLS),
    ("handshake operation timed out", _NO_TLS),
    ("socket connection", _CLOSED),
    (KazooTimeoutError, "See whether it is overloaded or has no quorum; io_timeout bounds the wait."),
)
_NO_SESSION = "See whether it runs, has a quorum and can be reached from here; io_timeout bounds the wait."

#: Errors of the connection, after which the outcome of a request is unknown.
LOSSES = (
    exceptions.ConnectionLoss,
    exceptions.ConnectionClosedError,
    exceptions.SessionExpiredError,
    exceptions.SessionMovedError,
    exceptions.OperationTimeoutError,
)


#: The exceptions that kazoo raises for an answer that it can't parse.
UNREADABLE = (struct.error, ValueError, LookupError, RuntimeError)


@shown_as(BackendUnavailable)
class Broken(BackendUnavailable):
    """The connection broke during a request, which the server may have carried out."""


def unavailable(address: ZooKeeperAddress, error: BaseException) -> BackendUnavailable:
    """Return the error to raise for *error*, its cause: `Broken` if *error* is one of `LOSSES`."""
    text = str(error) or type(error).__name__
    made = Broken if isinstance(error, LOSSES) else BackendUnavailable
    told = made(f"ZooKeeper at {address.shown} can't be used: {text.rstrip('.')}. {_remedy(text, error)}")
    told.__cause__ = error
    told.__suppress_context__ = True
    return told


def no_session(address: ZooKeeperAddress, seconds: float, trouble: str) -> BackendUnavailable:
    """Return the error for *seconds* without a connection. *trouble*: kazoo's latest warning; "": none."""
    cause = trouble or "it did not answer"
    return BackendUnavailable(
        f"ZooKeeper at {address.shown} opened no session within {seconds:.2g} s: {cause.rstrip('.')}. "
        f"{_remedy(cause, otherwise=_NO_SESSION)}"
    )


def _remedy(text: str, error: BaseException | None = None, otherwise: str = "See the server's log.") -> str:
    for what, advice in _REMEDIES:
        if what in text if isinstance(what, str) else isinstance(error, what):
            return advice
    return otherwise
