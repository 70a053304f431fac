"""The least that a queue on Redis can be: a floor for what passes a lock from process to process in order.

Nothing here lives through a crash, a lost connection or a waiter that gives up; there is no fence and nobody
renews. The lock is handed off inside the script that lets go, and the next one is woken by ``BLPOP``.
"""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import hiredis
import redis

ENTER = """
if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', 10000) then return 1 end
redis.call('rpush', KEYS[2], ARGV[1])
return 0
"""
LEAVE = """
local next = redis.call('lpop', KEYS[2])
if not next then return redis.call('del', KEYS[1]) end
redis.call('set', KEYS[1], next, 'PX', 10000)
return redis.call('lpush', 'wake:' .. next, 1)
"""
#: Of a wait, seconds.
PATIENCE = "60"


class Caller(threading.local):
    """A connection for each thread: what is sent is packed once, and the answer to `LEAVE` is read late."""

    def __init__(self, url: str, enter: str, leave: str) -> None:
        where = urlsplit(url)
        self._socket = socket.create_connection((where.hostname, where.port or 6379))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader, self._unread = hiredis.Reader(), 0
        self._token, self._enter, self._leave = secrets.token_hex(16), enter, leave
        self._wait = packed("BLPOP", f"wake:{self._token}", PATIENCE)

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        keys = (name, f"queue:{name}", self._token)
        if not self._asked(packed("EVALSHA", self._enter, 2, *keys)):
            assert self._asked(self._wait), "Nobody has handed it over."
        yield
        self._socket.sendall(packed("EVALSHA", self._leave, 2, *keys))
        self._unread += 1

    def _asked(self, command: bytes) -> object:
        self._socket.sendall(command)
        for _ in range(self._unread):
            self._answer()
        self._unread = 0
        return self._answer()

    def _answer(self) -> object:
        while (answer := self._reader.gets()) is False:
            self._reader.feed(self._socket.recv(1 << 16))
        if isinstance(answer, Exception):
            raise answer
        return answer


def packed(*words: str | int) -> bytes:
    # Its types know tuples of one word only.
    command: Any = words
    made: bytes = hiredis.pack_command(command)
    return made


def caller(url: str) -> Caller:
    with redis.Redis.from_url(url) as client:
        return Caller(url, client.script_load(ENTER), client.script_load(LEAVE))
