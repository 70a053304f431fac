"""The buyers of the bench read whole answers, however these are cut, and count what they say."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bench.buyers import is_whole, open_load

SIZED = b"HTTP/1.1 200 OK\r\nServer: nginx\r\ncontent-length: 4\r\n\r\nsold"
CHUNKED = b"HTTP/1.1 423 Locked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"


@pytest.mark.parametrize("answer", [SIZED, CHUNKED])
def test_an_answer_is_whole_when_its_last_byte_is_there(answer: bytes) -> None:
    assert is_whole(answer)
    assert not any(is_whole(answer[:length]) for length in range(len(answer)))


def test_one_who_comes_waits_from_that_moment_on_however_long_others_are_served() -> None:
    """One connection, a first answer that takes longer than all others take to come."""
    coming, slow = 0.1, 0.3
    with answering(slow) as port:
        answers = open_load(port, "/", rate=200.0, seconds=coming, most=1, seed=1)
        assert answers.sold == len(answers.times) > 1
        assert answers.times[0] >= slow - coming
        # It is the same crowd each time, so that what is compared meets the same.
        assert open_load(port, "/", 200.0, coming, 1, seed=1).sold == answers.sold


@contextmanager
def answering(slow: float) -> Iterator[int]:
    """The port of a shop that sells: the first unit of each connection *slow* seconds later."""

    def serve() -> None:
        while True:
            try:
                connection = listener.accept()[0]
            except OSError:
                return
            with connection:
                time.sleep(slow)
                while connection.recv(1 << 16):
                    connection.sendall(SIZED)

    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
