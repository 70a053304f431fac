"""Buyers that cost little themselves: each a socket and a thread, which buys again when it is answered."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections import Counter

from bench.buyers import together

PATIENCE = 90.0
LENGTH = re.compile(rb"\r\nContent-Length: *(\d+)\r\n", re.IGNORECASE)


class Buyer:
    def __init__(self, port: int, path: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n".encode()

    def buy(self) -> int:
        """The status of the answer."""
        self._socket.sendall(self._request)
        answer = b""
        while not is_whole(answer):
            if not (data := self._socket.recv(1 << 16)):
                raise ConnectionError("The shop hung up.")
            answer += data
        return int(answer[9:12])

    def close(self) -> None:
        self._socket.close()


def is_whole(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    if not end:
        return False
    length = LENGTH.search(head + b"\r\n")
    return len(body) >= int(length[1]) if length else body.endswith(b"0\r\n\r\n")


def buy(port: int, path: str, buyers: int, seconds: float) -> tuple[list[float], Counter[int], float]:
    """*buyers* buy for so many *seconds*: the time of each answer, the statuses, and what it took in all."""
    times: list[float] = []
    statuses: Counter[int] = Counter()
    began = [0.0]
    mutex = threading.Lock()

    def begin() -> None:
        began[0] = time.monotonic()

    ready = threading.Barrier(buyers, begin)

    def come() -> None:
        buyer, mine, told = Buyer(port, path), list[float](), Counter[int]()
        ready.wait(PATIENCE)
        until = began[0] + seconds
        while (asked := time.monotonic()) < until:
            told[buyer.buy()] += 1
            mine.append(time.monotonic() - asked)
        buyer.close()
        with mutex:
            times.extend(mine)
            statuses.update(told)

    together([come] * buyers)
    return sorted(times), statuses, time.monotonic() - began[0]
