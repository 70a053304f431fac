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
    """A port that nobody else is given in the next minute, so that runs side by side don't meet in one.

    The kernel keeps it: a connection that this end has closed first stays in TIME_WAIT, and its port is no
    longer among those that are free to choose from. A server may listen there by name, as all do that start
    again at once (``SO_REUSEADDR``).
    """
    with socket.socket() as listener, socket.socket() as client:
        # Reusable only from here on: with the option set, bind might choose a port that is kept for another.
        listener.bind(("127.0.0.1", 0))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.listen(1)
        client.connect(listener.getsockname())
        listener.accept()[0].close()
        port: int = listener.getsockname()[1]
        return port


def listens(port: int) -> bool:
    """Whether a server lets us in and speaks, or waits for us to."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
