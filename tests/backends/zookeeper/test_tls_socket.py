"""OpenSSL is for one thread at a time: https://docs.openssl.org/master/man7/openssl-threads/."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from distlock.backends.zookeeper.client import TlsSocket

#: For how long one thread stays in there, so that another could come in, seconds.
A_WHILE = 0.2


class Narrow:
    """In the place of an `ssl.SSLSocket`: notices a second thread."""

    def __init__(self) -> None:
        self.entered, self.crowded = threading.Event(), threading.Event()
        self._taken = False

    def send(self, data: bytes) -> int:
        self._stay()
        return len(data)

    def recv(self, size: int) -> bytes:
        self._stay()
        return b"x" * size

    def _stay(self) -> None:
        if self._taken:
            self.crowded.set()
        self._taken = True
        self.entered.set()
        self.crowded.wait(A_WHILE)
        self._taken = False


@pytest.mark.parametrize(("first", "second"), [("send", "recv"), ("recv", "send"), ("send", "send")])
def test_threads_that_read_and_write_at_once_are_let_in_one_by_one(first: str, second: str) -> None:
    narrow = Narrow()
    socket = TlsSocket(cast(Any, narrow))
    calls = {"send": lambda: socket.send(b"x"), "recv": lambda: socket.recv(1)}
    thread = threading.Thread(target=calls[first])
    thread.start()
    assert narrow.entered.wait(60)
    calls[second]()
    thread.join(60)
    assert not narrow.crowded.is_set()
