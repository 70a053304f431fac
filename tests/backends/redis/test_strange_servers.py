"""Servers that are no Redis, or answer what nobody asked: told in time, and never believed."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

import distlock
from distlock.errors import BackendUnavailable
from tests.backends.redis.contender import MakeContender, ask

Answer = Callable[[bytes], bytes]

#: It has the token of an ask as its last argument.
TOKEN = re.compile(rb"\$32\r\n([0-9a-f]{32})\r\n$")


def echo(*rest: bytes) -> Answer:
    """Answers with the token that was sent, and *rest*."""

    def answer(asked: bytes) -> bytes:
        found = TOKEN.search(asked)
        if found is None:
            return b":0\r\n"
        return b"*%d\r\n$32\r\n%b\r\n%b" % (1 + len(rest), found[1], b"".join(rest))

    return answer


ANSWERS: dict[str, Answer] = {
    "http": lambda asked: b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "nothing, and hangs up": lambda asked: b"",
    "noise": lambda asked: bytes(range(256)),
    "ok": lambda asked: b"+OK\r\n",
    "a number": lambda asked: b":1\r\n",
    "nil": lambda asked: b"$-1\r\n",
    "no list": lambda asked: b"*-1\r\n",
    "an empty list": lambda asked: b"*0\r\n",
    "a string without end": lambda asked: b"$99999999\r\n" + b"x" * 65536,
    "a list without end": lambda asked: b"*99999999\r\n" + b":1\r\n" * 10000,
    "lists in lists": lambda asked: b"*1\r\n" * 5000,
    "what RESP3 has": lambda asked: b"%1\r\n+a\r\n:1\r\n",
    "the token alone": echo(),
    "held, without a fence": echo(b":1\r\n"),
    "held, by nonsense": echo(b":1\r\n", b"+many\r\n"),
    "held, by nothing": echo(b":1\r\n", b"$-1\r\n"),
    "an unknown word": echo(b"+yes\r\n"),
    "an error inside": echo(b"-ERR x\r\n"),
}


class Strange:
    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._subscription = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._subscription.getsockname()[1]
        self._made: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._subscription.accept()
                self._made.append(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client:
            while asked := client.recv(65536):
                if not (told := self._answer(asked)):
                    return
                client.sendall(told)

    def close(self) -> None:
        for one in [self._subscription, *self._made]:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Strange]:
    made = Strange(ANSWERS[request.param])
    yield made
    made.close()


@pytest.mark.parametrize("server", ANSWERS, indirect=True)
def test_an_answer_that_no_script_gives_is_told_and_grants_nothing(
    server: Strange, contender: MakeContender
) -> None:
    one = contender(f"redis://127.0.0.1:{server.port}", client_name="", io_timeout=1.0)
    with pytest.raises(BackendUnavailable):
        one.request(ask())
    with pytest.raises(BackendUnavailable):
        one.raise_fence(ask(), 1)


@pytest.mark.parametrize("server", ["http", "noise", "the token alone", "held, by nonsense"], indirect=True)
def test_acquire_tells_it(server: Strange) -> None:
    locks = distlock.connect(f"redis://127.0.0.1:{server.port}", client_name="", io_timeout=1.0)
    with pytest.raises(distlock.BackendUnavailable):
        locks.lock("product_1").acquire(timeout=30)
    server.close()
    locks.close()
