"""A proxy between a client and a real server, which changes what the server answers."""

from __future__ import annotations

import array
import fcntl
import itertools
import random
import socket
import struct
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Self
from urllib.parse import urlsplit

from tests.redis_server import eventually

#: How many bytes of a giant answer follow its beginning at once.
_BEGUN = 1000


@dataclass(frozen=True)
class AnswerChange:
    """How a proxy changes one answer, or that one and all later ones."""

    #: One of `KINDS`.
    kind: str
    #: How many answers pass unchanged before.
    after: int
    #: The place of the change in the answer, as a fraction of its length.
    at: float
    #: Chooses among the answers that a protocol has, and the random bytes.
    seed: int
    #: Whether all later answers are changed, too.
    lasts: bool = False


#: What may be made of an answer. None: the connection is cut behind it.
Changed = Iterator[bytes | None]


def _cut(answer: bytes, held: list[bytes], change: AnswerChange, unexpected: UnexpectedAnswers) -> Changed:
    yield answer[: int(change.at * len(answer))]
    yield None


def _swallow(
    answer: bytes, held: list[bytes], change: AnswerChange, unexpected: UnexpectedAnswers
) -> Changed:
    yield b""


def _double(answer: bytes, held: list[bytes], change: AnswerChange, unexpected: UnexpectedAnswers) -> Changed:
    yield answer + answer


def _reorder(
    answer: bytes, held: list[bytes], change: AnswerChange, unexpected: UnexpectedAnswers
) -> Changed:
    """Keep the answer back until the next one has passed."""
    held.append(answer)
    yield b""


def _repeat(answer: bytes, held: list[bytes], change: AnswerChange, unexpected: UnexpectedAnswers) -> Changed:
    """Send the answer at once, and again behind the next one."""
    held.append(answer)
    yield answer


def _random_bytes(
    answer: bytes, held: list[bytes], change: AnswerChange, unexpected: UnexpectedAnswers
) -> Changed:
    yield random.Random(change.seed).randbytes(max(1, len(answer)))


def _insert(answer: bytes, held: list[bytes], change: AnswerChange, unexpected: UnexpectedAnswers) -> Changed:
    at = int(change.at * len(answer))
    yield answer[:at] + random.Random(change.seed).randbytes(9) + answer[at:]


def _other_type(
    answer: bytes, held: list[bytes], change: AnswerChange, unexpected: UnexpectedAnswers
) -> Changed:
    yield unexpected.others[change.seed % len(unexpected.others)]


def _giant(answer: bytes, held: list[bytes], change: AnswerChange, unexpected: UnexpectedAnswers) -> Changed:
    """Announce more than there can be, and begin to send it."""
    yield unexpected.giants[change.seed % len(unexpected.giants)]
    yield b"x" * _BEGUN


KINDS: dict[str, Callable[[bytes, list[bytes], AnswerChange, UnexpectedAnswers], Changed]] = {
    "cut": _cut,
    "swallow": _swallow,
    "double": _double,
    "reorder": _reorder,
    "repeat": _repeat,
    "random bytes": _random_bytes,
    "insert": _insert,
    "other type": _other_type,
    "giant": _giant,
}


@dataclass(frozen=True)
class UnexpectedAnswers:
    """Answers that a protocol allows, but that answer no request of ours."""

    #: Whole answers of other types.
    others: tuple[bytes, ...]
    #: The beginnings of giant answers.
    giants: tuple[bytes, ...]
    #: Yields what follows a giant answer, without end.
    flood: Callable[[], Iterator[bytes]] = lambda: itertools.repeat(bytes(1 << 16))


def _message(kind: bytes, body: bytes = b"") -> bytes:
    """Return a message of PostgreSQL."""
    return kind + struct.pack("!i", len(body) + 4) + body


def _packet(body: bytes, number: int = 1) -> bytes:
    """Return a packet of MySQL."""
    return struct.pack("<I", len(body))[:3] + bytes([number]) + body


def _packets() -> Iterator[bytes]:
    """Yield the rest of the giant packet of MySQL that `_giant` has begun, and then more of them."""
    rest = 0xFFFFFF - _BEGUN
    for number in itertools.count(2):
        while rest:
            yield bytes(min(rest, 1 << 16))
            rest -= min(rest, 1 << 16)
        yield struct.pack("<I", 0xFFFFFF | number % 256 << 24)
        rest = 0xFFFFFF


def _reply(xid: int, body: bytes = b"", error: int = 0) -> bytes:
    """Return a reply of ZooKeeper."""
    return struct.pack("!iiqi", 16 + len(body), xid, 1, error) + body


_READY = _message(b"Z", b"I")
UNEXPECTED = {
    "redis": UnexpectedAnswers(
        others=(
            b"+OK\r\n",
            b":1\r\n",
            b"$-1\r\n",
            b"*-1\r\n",
            b"*0\r\n",
            b"$5\r\nhello\r\n",
            b"-ERR no\r\n",
            b"-MOVED 1 127.0.0.1:1\r\n",
            b"-NOSCRIPT x\r\n",
            b"-LOADING x\r\n",
            b"*3\r\n$1\r\nx\r\n:1\r\n$1\r\n1\r\n",
            b"*3\r\n:1\r\n:1\r\n:1\r\n",
            b"*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n",
            b"*3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$1\r\ny\r\n",
            b"_\r\n",
            b"#t\r\n",
            b",nan\r\n",
            b"%1\r\n+a\r\n:1\r\n",
            b">2\r\n+a\r\n+b\r\n",
            b"+\xff\xfe\r\n",
            b"-\xff\xfe\r\n",
            b"*1\r\n" * 5000 + b":1\r\n",
        ),
        giants=(
            b"$536870912\r\n",
            b"$1000000000000\r\n",
            b"$9223372036854775807\r\n",
            b"$99999999999999999999999\r\n",
            b"*1000000000000\r\n",
            b"*2147483647\r\n",
            b"*4294967297\r\n:1\r\n",
            b"*1048576\r\n" * 6,
            b"$-2\r\n",
            b"*-2\r\n",
            b"*1\r\n" * 200_000,
        ),
    ),
    "postgresql": UnexpectedAnswers(
        others=(
            _message(b"C", b"SELECT 1\x00") + _READY,
            _message(b"I") + _READY,
            _READY,
            _message(b"T", struct.pack("!h", 0)) + _message(b"C", b"SELECT 0\x00") + _READY,
            _message(b"D", struct.pack("!hi", 1, 1) + b"t") + _READY,
            _message(b"T", struct.pack("!h", 1) + b"a\x00" + struct.pack("!ihihih", 0, 0, 25, -1, -1, 0))
            + _message(b"D", struct.pack("!hi", 1, 2) + b"\xff\xfe")
            + _message(b"C", b"SELECT 1\x00")
            + _READY,
            _message(b"T", struct.pack("!h", 1) + b"a\x00" + struct.pack("!ihihih", 0, 0, 25, -1, -1, 0))
            + _message(b"D", struct.pack("!hi", 1, -1))
            + _message(b"C", b"SELECT 1\x00")
            + _READY,
            _message(b"E", b"SERROR\x00C\xff\xff\xff\xff\xff\x00M\xff\xfe\x00\x00") + _READY,
            _message(b"E", b"\x00") + _READY,
            _message(b"N", b"SNOTICE\x00C00000\x00Mhello\x00\x00"),
            _message(b"S", b"client_encoding\x00SQL_ASCII\x00"),
            _message(b"A", struct.pack("!i", 1) + b"x\x00y\x00"),
            _message(b"G", b"\x00\x00\x00"),
            _message(b"H", b"\x00\x00\x00"),
            _message(b"W", b"\x00\x00\x00"),
            _message(b"R", struct.pack("!i", 0)),
            _message(b"K", struct.pack("!ii", 1, 1)),
            _message(b"X"),
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
        ),
        giants=(
            b"D" + struct.pack("!i", 0x7FFFFFFF),
            b"D" + struct.pack("!i", 0x20000000),
            b"T" + struct.pack("!i", 0x7FFFFFFF),
            b"E" + struct.pack("!i", 0x7FFFFFFF),
            b"d" + struct.pack("!i", 0x7FFFFFFF),
            b"S" + struct.pack("!i", 0x20000000),
            b"D" + struct.pack("!i", -1),
            b"D" + struct.pack("!i", 3),
            _message(b"T", struct.pack("!h", 32767)),
            _message(b"D", struct.pack("!hi", 1, 0x7FFFFFFF)),
        ),
    ),
    "mysql": UnexpectedAnswers(
        others=(
            _packet(b"\x00\x00\x00\x02\x00\x00\x00"),
            _packet(b"\xff\x15\x04#28000no\xff"),
            _packet(b"\xff"),
            _packet(b"\xfe\x00\x00\x02\x00"),
            _packet(b"\xfb/etc/passwd"),
            _packet(b"\x01") + _packet(b"\x03def", 2),
            _packet(b"\x01"),
            _packet(b"\x00"),
            _packet(b""),
            # A row with a number that is none.
            _packet(b"\x01")
            + _packet(b"\x03def" + b"\x00" * 4 + b"\x01a\x00\x0c\x2d\x00\x0b\x00\x00\x00\xf6" + bytes(5), 2)
            + _packet(b"\xfe\x00\x00\x02\x00", 3)
            + _packet(b"\x04no 1", 4)
            + _packet(b"\xfe\x00\x00\x02\x00", 5),
            _packet(b"\x00\x00\x00\x0a\x00\x00\x00"),
            _packet(b"\x00\x00\x00\x02\x00\x00\x00", 9),
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
        ),
        giants=(
            b"\xff\xff\xff\x01",
            b"\xff\xff\xff\x01" + b"\xfe" + b"\xff" * 8,
            _packet(b"\xfe" + struct.pack("<Q", 10**12)),
            _packet(b"\xfd\xff\xff\xff"),
            _packet(b"\xfc\xff\xff"),
        ),
        flood=_packets,
    ),
    "zookeeper": UnexpectedAnswers(
        others=(
            _reply(1),
            _reply(-1, struct.pack("!iii", 1, 3, 1) + b"/"),
            _reply(-1, struct.pack("!iii", 99, 99, 5) + b"/a"),
            _reply(-2),
            _reply(-4, error=-115),
            _reply(0x7FFFFFFF),
            _reply(2, b"\xff" * 20),
            _reply(2, error=-112),
            _reply(2, error=-999),
            struct.pack("!i", 0),
            struct.pack("!i", 4) + b"abcd",
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
        ),
        giants=(
            struct.pack("!i", 0x7FFFFFF0),
            struct.pack("!i", 0x20000000),
            struct.pack("!i", -1),
            struct.pack("!i", -(2**31)),
            _reply(2, struct.pack("!i", 0x7FFFFFFF)),
            _reply(-1, struct.pack("!iii", 1, 3, 0x7FFFFFFF)),
        ),
    ),
}


def _has_arrived(sock: socket.socket) -> bool:
    """Return whether the other end's system has confirmed all bytes that were sent."""
    unconfirmed = array.array("i", [0])
    fcntl.ioctl(sock, termios.TIOCOUTQ, unconfirmed)
    return not unconfirmed[0]


class ChangingProxy:
    """Forwards connections to the server at *url*. `apply` has it change the answers in all of them."""

    def __init__(self, url: str, unexpected: UnexpectedAnswers) -> None:
        parts = urlsplit(url)
        self._target = parts.hostname or "127.0.0.1", parts.port or 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        login, at, _ = parts.netloc.rpartition("@")
        self.url = parts._replace(netloc=f"{login}{at}127.0.0.1:{self._listener.getsockname()[1]}").geturl()
        self._unexpected = unexpected
        self._open: set[socket.socket] = set()
        self._mutex = threading.Lock()
        self._change: AnswerChange | None = None
        self._answers = itertools.count()
        #: Whether an answer was changed since `apply`.
        self.has_changed = False
        #: With this, answers are followed by as many bytes as the client takes.
        self.floods = False
        #: With this, answers that are held back pass when `send_late` is called.
        self.is_late = False
        self._late: list[tuple[socket.socket, bytes]] = []

    def send_late(self) -> None:
        """Let the answers pass that were held back, and wait until their clients' systems have them."""
        late, self._late = self._late, []
        for client, answer in late:
            with suppress(OSError, ValueError):  # it is closed
                client.sendall(answer)
                eventually(partial(_has_arrived, client), "the answer has arrived")

    def apply(self, change: AnswerChange) -> None:
        with self._mutex:
            self._change, self._answers, self.has_changed = change, itertools.count(), False

    def stop(self) -> None:
        """Pass everything on, and break the open connections, whose clients may have read changed bytes."""
        with self._mutex:
            self._change, self.floods, self.is_late = None, False, False
            self._late.clear()
        for end in list(self._open):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self.stop()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with suppress(OSError):
                server = socket.create_connection(self._target, timeout=10)
                for end in (client, server):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    end.settimeout(None)
                self._open |= {client, server}
                threading.Thread(target=self._pass_on, args=(client, server), daemon=True).start()
                threading.Thread(target=self._answer, args=(server, client), daemon=True).start()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while chunk := client.recv(1 << 16):
                server.sendall(chunk)
        self._close(client, server)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        held: list[bytes] = []
        with suppress(OSError):
            while chunk := server.recv(1 << 16):
                before, held = held, []
                for changed in self._changed(chunk, held):
                    if self.is_late:
                        self._late += [(client, kept) for kept in held]
                        held.clear()
                    if changed is None:
                        self._close(client, server)
                        return
                    client.sendall(changed)
                client.sendall(b"".join(before))
                if self.floods:
                    for more in self._unexpected.flood():
                        client.sendall(more)
        self._close(client, server)

    def _changed(self, answer: bytes, held: list[bytes]) -> Changed:
        with self._mutex:
            change = self._change
            number = next(self._answers)
            if change is None or number < change.after or (number > change.after and not change.lasts):
                return iter([answer])
            self.has_changed = True
        return KINDS[change.kind](answer, held, change, self._unexpected)

    def _close(self, *ends: socket.socket) -> None:
        for end in ends:
            self._open.discard(end)
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            with suppress(OSError):
                end.close()
