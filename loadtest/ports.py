"""Ports of the loopback: free ones, taken ones, and those where somebody answers."""

from __future__ import annotations

import errno
import socket

from loadtest.child import StackError


def check_free(port: int) -> None:
    """`StackError` if nginx could not listen on *port*."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise StackError(f"Port {port} is in use: choose another with --port.") from None
        raise StackError(f"Port {port}: {error.strerror}. Choose another with --port.") from None


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def listens(port: int) -> bool:
    """Whether a server lets us in and speaks, or waits for us to."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
