"""Whether a session of a database has ended, by its socket or because another thread has closed it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from distlock.backends.sql.session import SQLSession
from distlock.clock import now


class UnreadConnection:
    """A connection whose incoming bytes nobody reads."""

    def __init__(self, end: socket.socket) -> None:
        self.sent_at: float | None = None
        self.fileno = end.fileno()


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, servers = socket.socketpair()
    with ours, servers:
        yield ours, servers


def session_on(end: socket.socket) -> SQLSession:
    connection: Any = UnreadConnection(end)
    dialect: Any = None
    return SQLSession(dialect, connection, patience=1.0, window=1.0, main=True, number=1)


def test_an_idle_session_lives(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, _ = ends
    assert not session_on(ours).has_ended()


def test_the_message_before_the_end_of_the_connection_ends_it(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    """PostgreSQL frees the locks of a session between this message and the end of its connection."""
    ours, servers = ends
    servers.sendall(b"FATAL: terminating connection due to administrator command")
    assert session_on(ours).has_ended()


def test_an_answer_to_a_call_that_is_under_way_is_no_end(ends: tuple[socket.socket, socket.socket]) -> None:
    """Or a busy process would give back every tenth lock that the next of its own callers waits for."""
    ours, servers = ends
    session = session_on(ours)
    session.connection.sent_at = now()
    servers.sendall(b"an answer")
    assert not session.has_ended()


def test_the_end_of_the_connection_ends_it_whatever_is_under_way(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, servers = ends
    session = session_on(ours)
    session.connection.sent_at = now()
    servers.close()
    assert session.has_ended()


def test_a_session_that_was_lost_during_a_call_stays_closed_when_the_call_times_out(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    session = session_on(ends[0])

    def time_out() -> None:
        session.connection.sent_at = now()
        # What SessionPool.lose does before it has the mutex.
        session.closed = True
        raise TimeoutError

    with pytest.raises(TimeoutError), session.exclusive(now() + 1.0):
        time_out()
    assert session.closed
