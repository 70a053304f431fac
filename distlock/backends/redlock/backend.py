"""Locks in a majority of several Redis servers, none of which knows of the others.

https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/ has the algorithm. What is added to
it: fences, renewal, and that nobody waits for servers that are away.
"""

from __future__ import annotations

import math
import secrets
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from distlock import clock
from distlock.backends.base import Acquired, Busy, Capabilities, LockRequest, Queued, Sink
from distlock.backends.redis.inspection import PROCESS_LENGTH
from distlock.backends.redlock.address import addresses_in
from distlock.backends.redlock.answers import Answers, AnswersToSeveral, ask_all
from distlock.backends.redlock.inspection import Inspection
from distlock.backends.redlock.member import Member
from distlock.backends.redlock.resting import Resting, poll
from distlock.backends.redlock.server import LANES, Call, Server, tell_nobody
from distlock.backends.redlock.tries import SinkOfTries, begin_try, number_of, set_number, token_of
from distlock.numbers import LONG, check_seconds


def drift(ttl: float) -> float:
    """By how much clocks may differ after *ttl* seconds: the allowance of Redlock."""
    return 0.01 * ttl + 0.002


class RedlockBackend(Inspection):
    """One process's locks in several Redis servers: ``redlock://host,host,host``, ``redlocks://`` for TLS.

    *io_timeout* bounds what one server may take for one answer; a call takes twice that at most. *fence_ttl*,
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
                max_connections=LANES,
                fence_ttl=fence_ttl,
                client_name=client_name,
                credential_provider=credential_provider,
            )
            self._servers.append(Server(one, address.shown))
        self._quorum = len(self._servers) // 2 + 1
        self._begin()
        # One that is dropped without a close has threads, too, which know nothing of it.
        weakref.finalize(self, _dismiss, self._servers).atexit = False

    def __repr__(self) -> str:
        return f"<RedlockBackend {', '.join(server.shown for server in self._servers)}>"

    def open(self, sink: Sink) -> None:
        self._sink = sink
        # The threads know the servers, and may not keep the client alive.
        self._tries = SinkOfTries(sink)
        for server in self._servers:
            server.backend.open(self._tries)
        self._begin()

    # -- a hold ------------------------------------------------------------------------------------

    def request(self, request: LockRequest, deadline: float = math.inf) -> Acquired | Queued | Busy:
        if (number := number_of(request)) and self._is_ours(request, deadline):
            return Acquired(number, request.ttl)
        if request.wait:
            self._resting.wait(request.key, deadline)
        begin_try(request)
        mine, sent = _copy(request), clock.now()
        answers = self._ask(request.key, lambda server: server.backend.request(mine), _is_held, deadline)
        if answers.verdict:
            number = self._agree(mine, _numbers(answers), deadline) or 0
            if number and clock.now() < sent + request.ttl:
                set_number(request, number)
                self._resting.granted(request.key)
                return Acquired(number, request.ttl)
        # Less than a quorum is only in the way of others.
        for server in answers.asked:
            if not isinstance(answers.said.get(server), Busy):
                server.release(mine, tell_nobody)
        if not answers.has_quorum:
            raise answers.unavailable()
        return Queued(poll()) if request.wait else Busy()

    def cancel(self, request: LockRequest, deadline: float = math.inf) -> bool:
        if number_of(request) and self._is_ours(request, deadline):
            return True
        # There is no queue, but a request without an answer may have left something.
        self._release(request, deadline)
        return False

    def renew(self, requests: Sequence[LockRequest]) -> list[bool | None]:
        copies = list(map(_copy, requests))
        self._tries.requests = {
            copy.token: request.token for request, copy in zip(requests, copies, strict=True)
        }
        answers: Answers = AnswersToSeveral(self._servers, self._quorum, len(requests))
        renewing: Call = lambda server: server.backend.renew(copies)  # noqa: E731
        ask_all(answers, lambda server, tell: server.ask("", renewing, tell), self._by(math.inf))
        renewed = [answers.of(number).verdict for number in range(len(requests))]
        if renewed and not any(one is not None for one in renewed):
            raise answers.unavailable()
        for request, copy, ours in zip(requests, copies, renewed, strict=True):
            if ours is False:
                set_number(request, 0)
                self._resting.released(request.key)
                for server in self._servers:
                    server.release(copy, tell_nobody)
        return renewed

    def release(self, request: LockRequest, deadline: float = math.inf) -> bool:
        self._resting.released(request.key)
        # Where it depends on servers that are away, it may have been ours.
        return self._release(request, deadline) is not False

    def _is_ours(self, request: LockRequest, deadline: float) -> bool:
        """Whether the hold of *request*, which was granted, still is. Its lifetime starts anew."""
        mine = _copy(request)
        answers = self._ask(request.key, lambda server: server.backend.renew([mine])[0], bool, deadline)
        if answers.verdict is None:
            raise answers.unavailable()
        return answers.verdict

    def _release(self, request: LockRequest, deadline: float) -> bool | None:
        """Whether a quorum had granted it; None: that is not known."""
        mine = _copy(request)
        set_number(request, 0)
        answers = Answers(self._servers, self._quorum, bool)
        # All servers are asked, because one that seems to be away may still grant it.
        ask_all(answers, lambda server, tell: server.release(mine, tell), self._by(deadline), spare=False)
        if not answers.has_quorum:
            raise answers.unavailable()
        return answers.verdict

    # -- its number --------------------------------------------------------------------------------

    def _agree(self, mine: LockRequest, numbers: Mapping[Server, int], deadline: float) -> int | None:
        """The number of the hold of *mine*; None: no quorum is left. *numbers*: those that a quorum gave it.

        It is the largest. All of a quorum count from there on before anybody hears of it: so every later hold
        has a larger one, because its quorum has a server of this one.
        """
        top = max(numbers.values())
        behind = [server for server, number in numbers.items() if number < top]
        answers = Answers(behind, self._quorum - (len(numbers) - len(behind)), bool)
        agreeing: Call = lambda server: server.backend.agree(mine, top)  # noqa: E731
        ask_all(answers, lambda server, tell: server.ask(mine.key, agreeing, tell), self._by(deadline))
        return top if answers.verdict else None

    def raise_fence(self, request: LockRequest, number: int) -> Acquired | None:
        known, mine = number_of(request), _copy(request)
        if known > number and self._is_ours(request, math.inf):
            return Acquired(known, request.ttl)
        # Above what it has given out as well, among which the servers' own numbers may lie.
        floor = max(number, known + request.span - 1)
        raising: Call = lambda server: server.backend.raise_fence(mine, floor)  # noqa: E731
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
        # Where it depends on servers that are away, somebody may hold it.
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
        """Start from nothing: as another process, which has one name at all servers."""
        self.process = secrets.token_hex(PROCESS_LENGTH // 2)
        for server in self._servers:
            server.backend.process = self.process
        self._missed = set()
        self._resting = Resting()

    def _ask(self, key: str, call: Call, yes: Callable[[Any], bool], deadline: float) -> Answers:
        answers = Answers(self._servers, self._quorum, yes)
        ask_all(answers, lambda server, tell: server.ask(key, call, tell), self._by(deadline))
        return answers

    def _by(self, deadline: float) -> float:
        """The end of a round that begins now and may last until *deadline*."""
        return min(deadline, clock.now() + self._io_timeout)


def _copy(request: LockRequest) -> LockRequest:
    """*request*, for one server. There it lives longer by the drift: here it is over before."""
    return LockRequest(
        request.key, token_of(request), request.ttl + drift(request.ttl), request.span, wait=False
    )


def _numbers(answers: Answers) -> dict[Server, int]:
    return {server: answers.said[server].number for server in answers.agreed}


def _is_held(answer: object) -> bool:
    return isinstance(answer, Acquired)


def _dismiss(servers: Sequence[Server]) -> list[threading.Thread]:
    """End their threads, when they have done what they were given."""
    return [thread for server in servers for thread in server.dismiss()]
