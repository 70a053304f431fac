"""Locks in a majority of several Redis servers, none of which knows of the others.

https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/ has the algorithm. This adds fences
and renewal, and does not wait for servers that are away.
"""

from __future__ import annotations

import hashlib
import math
import random
import re
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from distlock import clock
from distlock.backends.base import Acquired, Busy, Capabilities, LockRequest, Queued, Sink, WeakSink
from distlock.backends.redis.address import RedisAddress
from distlock.backends.redis.inspection import PROCESS_LENGTH
from distlock.backends.redlock.inspection import RedlockInspection
from distlock.backends.redlock.server import (
    WORKERS,
    Answers,
    AnswersToSeveral,
    Member,
    Server,
    ServerCall,
    ask_all,
    ignore,
)
from distlock.errors import ConfigurationError
from distlock.numbers import LONG, check_seconds

_URL = re.compile(
    r"redlock(?P<tls>s?)://(?P<login>[^/?#]*@)?(?P<hosts>[^/?#@]*)(?P<more>.*)", re.DOTALL | re.IGNORECASE
)
_WRITE = (
    "Write redlock://[user:password@]host[:port],host[:port],host[:port][/db], or redlocks://… for TLS; in "
    "user, password and query write special characters as %XX."
)

#: More attempts than any request has.
_MOST_ATTEMPTS = 1 << 32

#: Seconds between two attempts of a waiter, at random, so that no two processes keep hindering each other.
_POLL = (0.01, 0.04)
#: A hold of this many seconds counts as a turn, in which the engine hands the hold off locally.
_TURN = 0.05
#: Expired entries are pruned above this count.
_MANY = 1000


class ServerAddress(NamedTuple):
    """The URL of one of the servers, and how it is shown to people."""

    url: str
    shown: str


def addresses_in(url: str) -> list[ServerAddress]:
    """Return the addresses that *url* names. Raises `ConfigurationError`, and shows no secret."""
    parts = _URL.fullmatch(url)
    hosts = parts["hosts"].split(",") if parts is not None else []
    if parts is None or not all(hosts):
        raise ConfigurationError(f"The URL of the Redlock servers cannot be read. {_WRITE}")
    scheme, login = "rediss" if parts["tls"] else "redis", parts["login"] or ""
    urls = [f"{scheme}://{login}{host}{parts['more']}" for host in hosts]
    shown = [RedisAddress(one).shown.lower() for one in urls]
    _check_number(len(hosts))
    for one in shown:
        if shown.count(one) > 1:
            raise ConfigurationError(
                f"The URL of the Redlock servers names {one} twice: when that is away, two are. Name "
                "servers that don't fail together, each once."
            )
    return list(map(ServerAddress, urls, shown))


def _check_number(servers: int) -> None:
    if servers < 3:
        named = f"{servers} server" + "s" * (servers != 1)
        raise ConfigurationError(
            f"The URL of the Redlock servers names {named}, and needs 3 or more: the majority of fewer is "
            f"all of them, and none may fail. Name more, or one with redis://. {_WRITE}"
        )
    if servers % 2 == 0:
        raise ConfigurationError(
            f"The URL of the Redlock servers names {servers}, an even number: no more of them may fail than "
            f"of {servers - 1}. Take one out, or name another one."
        )


# Each attempt has a token of its own. A waiting process sends the same `LockRequest` again and again, and
# releases an attempt that got no majority. A server that stopped, or a slow network, may carry out such a
# release late, and it must not end the hold of a later attempt. So the servers know another token for each
# attempt. `LockRequest.number` has the number of the latest attempt, beside the number of the hold.


class AttemptSink(WeakSink):
    """A sink that translates the tokens of attempts, which the servers know, to the requests' own."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        #: The token of each renewed request, by the token of its latest attempt. Replaced, never changed.
        self.requests: Mapping[str, str] = {}

    def release_requested(self, key: str, token: str) -> None:
        if (asked := self.requests.get(token)) is not None:
            super().release_requested(key, asked)


def begin_attempt(request: LockRequest) -> None:
    """Begin an attempt of *request*, with a token of its own. Grants to earlier ones no longer count."""
    request.number = request.number % _MOST_ATTEMPTS + 1


def attempt_token(request: LockRequest) -> str:
    """Return the token of the latest attempt. It shows the process, and nothing else of the request's."""
    attempt = f"{request.token} {request.number % _MOST_ATTEMPTS}"
    return request.token[:PROCESS_LENGTH] + hashlib.blake2b(attempt.encode(), digest_size=16).hexdigest()


def number_of(request: LockRequest) -> int:
    """Return the first fence number of the hold; 0 if it was not granted."""
    return request.number // _MOST_ATTEMPTS


def set_number(request: LockRequest, number: int) -> None:
    request.number = number * _MOST_ATTEMPTS + request.number % _MOST_ATTEMPTS


def poll() -> float:
    """Return in how many seconds a waiter asks again."""
    return random.uniform(*_POLL)  # noqa: S311 - spreads clients, hides nothing


class Backoff:
    """When this process may ask again for a key after a turn.

    There is no queue on the servers. Without this, a process with many callers would ask again right after
    each release, before any other process polls. Threads share it, because each change is one step.
    """

    def __init__(self) -> None:
        #: By key: since when it is held, and until when other processes may ask first.
        self._since: dict[str, float] = {}
        self._until: dict[str, float] = {}

    def granted(self, key: str) -> None:
        self._since[key] = clock.now()

    def released(self, key: str) -> None:
        since, now = self._since.pop(key, None), clock.now()
        if since is None or now < since + _TURN:
            return
        if len(self._until) >= _MANY:
            self._until = {one: until for one, until in list(self._until.items()) if now < until}
        self._until[key] = now + poll()

    def wait(self, key: str, deadline: float) -> None:
        """Wait until other processes have had time to ask for *key*, or *deadline* is over."""
        until = self._until.pop(key, 0.0)
        if (left := min(until, deadline) - clock.now()) > 0:
            time.sleep(left)


def drift(ttl: float) -> float:
    """Return by how much clocks may differ after *ttl* seconds, as the algorithm allows."""
    return 0.01 * ttl + 0.002


class RedlockBackend(RedlockInspection):
    """One process's locks in several Redis servers: ``redlock://host,host,host``, ``redlocks://`` for TLS.

    *io_timeout* bounds the time of one server for one answer; a call takes twice that at most. *fence_ttl*,
    *client_name*, *credential_provider*: see `RedisBackend`. Times are in seconds.
    """

    capabilities = Capabilities(
        several_processes=True, lease=True, fence=True, fair=False, inspect=True, breaks=True, notify=True
    )

    def __init__(
        self,
        url: str,
        *,
        io_timeout: float = 0.5,
        fence_ttl: float = 60.0,
        client_name: str = "distlock",
        credential_provider: object = None,
    ) -> None:
        self._io_timeout = check_seconds("io_timeout", io_timeout, most=LONG)
        self._servers = []
        for address in addresses_in(url):
            one = Member(
                address.url,
                io_timeout=io_timeout,
                max_connections=WORKERS,
                fence_ttl=fence_ttl,
                client_name=client_name,
                credential_provider=credential_provider,
            )
            self._servers.append(Server(one, address.shown))
        self._quorum = len(self._servers) // 2 + 1
        self._begin()
        # This ends the threads of a backend that is dropped without a close, which have no reference to it.
        weakref.finalize(self, _dismiss, self._servers).atexit = False

    def __repr__(self) -> str:
        return f"<RedlockBackend {', '.join(server.shown for server in self._servers)}>"

    def open(self, sink: Sink) -> None:
        self._sink = sink
        # The threads have references to the servers, and must not keep the client alive.
        self._attempts = AttemptSink(sink)
        for server in self._servers:
            server.backend.open(self._attempts)
        self._begin()

    # -- a hold ------------------------------------------------------------------------------------

    def request(self, request: LockRequest, deadline: float = math.inf) -> Acquired | Queued | Busy:
        if (number := number_of(request)) and self._is_ours(request, deadline):
            return Acquired(number, request.ttl)
        if request.wait:
            self._backoff.wait(request.key, deadline)
        begin_attempt(request)
        mine, sent = _copy(request), clock.now()
        answers = self._ask(request.key, lambda server: server.backend.request(mine), _is_held, deadline)
        if answers.verdict:
            number = self._agree(mine, _numbers(answers), deadline) or 0
            if number and clock.now() < sent + request.ttl:
                set_number(request, number)
                self._backoff.granted(request.key)
                return Acquired(number, request.ttl)
        # Without a quorum, release what was granted, so that it does not block others.
        for server in answers.asked:
            if not isinstance(answers.replies.get(server), Busy):
                server.release(mine, ignore)
        if not answers.has_quorum:
            raise answers.unavailable()
        return Queued(poll()) if request.wait else Busy()

    def cancel(self, request: LockRequest, deadline: float = math.inf) -> bool:
        if number_of(request) and self._is_ours(request, deadline):
            return True
        # There is no queue, but an attempt without an answer may have been granted.
        self._release(request, deadline)
        return False

    def renew(self, requests: Sequence[LockRequest]) -> list[bool | None]:
        copies = list(map(_copy, requests))
        self._attempts.requests = {
            copy.token: request.token for request, copy in zip(requests, copies, strict=True)
        }
        answers: Answers = AnswersToSeveral(self._servers, self._quorum, len(requests))
        renewing: ServerCall = lambda server: server.backend.renew(copies)  # noqa: E731
        ask_all(answers, lambda server, notify: server.ask("", renewing, notify), self._by(math.inf))
        renewed = [answers.of(number).verdict for number in range(len(requests))]
        if renewed and not any(one is not None for one in renewed):
            raise answers.unavailable()
        for request, copy, ours in zip(requests, copies, renewed, strict=True):
            if ours is False:
                set_number(request, 0)
                self._backoff.released(request.key)
                for server in self._servers:
                    server.release(copy, ignore)
        return renewed

    def release(self, request: LockRequest, deadline: float = math.inf) -> bool:
        self._backoff.released(request.key)
        # If that depends on servers that are away, it may have been ours.
        return self._release(request, deadline) is not False

    def _is_ours(self, request: LockRequest, deadline: float) -> bool:
        """Renew the hold of *request*, and return whether it is still there."""
        mine = _copy(request)
        answers = self._ask(request.key, lambda server: server.backend.renew([mine])[0], bool, deadline)
        if answers.verdict is None:
            raise answers.unavailable()
        return answers.verdict

    def _release(self, request: LockRequest, deadline: float) -> bool | None:
        """Release the latest attempt. Return whether a quorum had granted it; None: unknown."""
        mine = _copy(request)
        set_number(request, 0)
        answers = Answers(self._servers, self._quorum, bool)
        # All servers are asked, because one that seems to be away may still grant it.
        ask_all(answers, lambda server, notify: server.release(mine, notify), self._by(deadline), spare=False)
        if not answers.has_quorum:
            raise answers.unavailable()
        return answers.verdict

    # -- its number --------------------------------------------------------------------------------

    def _agree(self, mine: LockRequest, numbers: Mapping[Server, int], deadline: float) -> int | None:
        """Return the fence number of the hold of *mine*; None if there is no quorum any more.

        It is the largest of *numbers*, those of the servers that granted it. A quorum has to count from there
        on before any caller gets the number. So each later hold has a larger one, because its quorum and this
        one share a server.
        """
        top = max(numbers.values())
        behind = [server for server, number in numbers.items() if number < top]
        answers = Answers(behind, self._quorum - (len(numbers) - len(behind)), bool)
        agreeing: ServerCall = lambda server: server.backend.agree(mine, top)  # noqa: E731
        ask_all(answers, lambda server, notify: server.ask(mine.key, agreeing, notify), self._by(deadline))
        return top if answers.verdict else None

    def raise_fence(self, request: LockRequest, number: int) -> Acquired | None:
        known, mine = number_of(request), _copy(request)
        if known > number and self._is_ours(request, math.inf):
            return Acquired(known, request.ttl)
        # The new number must be above the old block, too, which may include the numbers of some servers.
        floor = max(number, known + request.span - 1)
        raising: ServerCall = lambda server: server.backend.raise_fence(mine, floor)  # noqa: E731
        answers = self._ask(request.key, raising, _is_held, math.inf)
        if answers.verdict is False:
            return None
        raised = self._agree(mine, _numbers(answers), math.inf) if answers.verdict else None
        if raised is None:
            raise answers.unavailable()
        set_number(request, raised)
        return Acquired(raised, request.ttl)

    # -- the rest ----------------------------------------------------------------------------------

    def locked(self, key: str) -> bool:
        answers = self._ask(key, lambda server: server.backend.locked(key), bool, math.inf)
        if not answers.has_quorum:
            raise answers.unavailable()
        # If that depends on servers that are away, somebody may hold it.
        return answers.verdict is not False

    def close(self) -> None:
        deadline = clock.now() + 2 * self._io_timeout
        for thread in _dismiss(self._servers):
            thread.join(max(0.0, deadline - clock.now()))
        for server in self._servers:
            server.backend.close()
        self._begin()

    def after_fork(self) -> None:
        for server in self._servers:
            server.after_fork()
        self._begin()

    def _begin(self) -> None:
        """Start as a new contender, which has the same name at all servers."""
        self.process = secrets.token_hex(PROCESS_LENGTH // 2)
        for server in self._servers:
            server.backend.process = self.process
        self._missed = set()
        self._backoff = Backoff()

    def _ask(self, key: str, call: ServerCall, agrees: Callable[[Any], bool], deadline: float) -> Answers:
        answers = Answers(self._servers, self._quorum, agrees)
        ask_all(answers, lambda server, notify: server.ask(key, call, notify), self._by(deadline))
        return answers

    def _by(self, deadline: float) -> float:
        """Return when a call ends that begins now and may last until *deadline*."""
        return min(deadline, clock.now() + self._io_timeout)


def _copy(request: LockRequest) -> LockRequest:
    """Return the attempt as a request to one server, where it lives longer than here by the drift."""
    return LockRequest(
        request.key, attempt_token(request), request.ttl + drift(request.ttl), request.span, wait=False
    )


def _numbers(answers: Answers) -> dict[Server, int]:
    return {server: answers.replies[server].number for server in answers.agreed}


def _is_held(answer: object) -> bool:
    return isinstance(answer, Acquired)


def _dismiss(servers: Sequence[Server]) -> list[threading.Thread]:
    """Have the threads of *servers* end after their pending jobs, and return them."""
    return [thread for server in servers for thread in server.dismiss()]
