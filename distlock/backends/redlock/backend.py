"""Locks at a majority of several Redis servers, none of which knows of the others.

https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/ describes the algorithm. This backend
adds fences and renewal, and does not wait for servers that are away.
"""

from __future__ import annotations

import hashlib
import math
import random
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from distlock import clock
from distlock.backends.base import Acquired, Busy, Capabilities, LockRequest, Queued, Sink, WeakSink
from distlock.backends.redis.address import redlock_addresses
from distlock.backends.redis.inspection import PROCESS_LENGTH
from distlock.backends.redlock.inspection import RedlockInspection
from distlock.backends.redlock.servers import WORKERS, Answers, AnswersToSeveral, Member, Server, ServerCall
from distlock.numbers import MOST_SECONDS, check_seconds

#: Above the number of attempts that any request makes.
_MOST_ATTEMPTS = 1 << 32

#: The bounds of the seconds between two attempts of a waiter. The time is random, so that two processes don't
#: block each other again and again.
_POLL = (0.01, 0.04)
#: After holding a key for this many seconds, local hand-offs included, this process pauses before it asks
#: again: see `Backoff`.
_TURN = 0.05
#: Expired entries are pruned above this count.
_MANY = 1000


# A waiting process sends the same `LockRequest` again and again, and releases an attempt that got no
# majority. Such a release may be carried out late, because a server stopped or the network is slow. It must
# not end the hold of a later attempt. So each attempt has a token of its own. `LockRequest.number` stores
# both the number of the latest attempt and the number of the hold.


class AttemptSink(WeakSink):
    """A sink that translates the tokens of attempts, which the servers know, to the requests' tokens."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        #: Attempt's token -> token of its request, for the requests of the latest renewal. Replaced, never
        #: changed, because other threads read it.
        self.requests: Mapping[str, str] = {}

    def release_requested(self, key: str, token: str) -> None:
        if (asked := self.requests.get(token)) is not None:
            super().release_requested(key, asked)


def begin_attempt(request: LockRequest) -> None:
    """Begin an attempt of *request*, with a token of its own. Grants to earlier attempts no longer count."""
    request.number = request.number % _MOST_ATTEMPTS + 1


def attempt_token(request: LockRequest) -> str:
    """Return the token of the latest attempt. It begins with the same process id as the request's token."""
    attempt = f"{request.token} {request.number % _MOST_ATTEMPTS}"
    return request.token[:PROCESS_LENGTH] + hashlib.blake2b(attempt.encode(), digest_size=16).hexdigest()


def hold_number(request: LockRequest) -> int:
    """Return the first fence number of the hold; 0 if it was not granted."""
    return request.number // _MOST_ATTEMPTS


def set_number(request: LockRequest, number: int) -> None:
    request.number = number * _MOST_ATTEMPTS + request.number % _MOST_ATTEMPTS


def poll() -> float:
    """Return a random number of seconds until the next attempt of a waiter."""
    return random.uniform(*_POLL)  # noqa: S311 - spreads clients, hides nothing


class Backoff:
    """The pauses of this process after its turns, in which other processes may get a key.

    The servers have no queue. Without a pause, a process with many callers would get a key again right after
    its release, before any other process polls. Threads share a `Backoff`, because each change is one step.
    """

    def __init__(self) -> None:
        #: Key -> since when this process holds it.
        self._since: dict[str, float] = {}
        #: Key -> until when other processes may ask first.
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
    """Return how many seconds the algorithm allows for the difference of clocks after *ttl* seconds."""
    return 0.01 * ttl + 0.002


class RedlockBackend(RedlockInspection):
    """One process's locks in several Redis servers: ``redlock://host,host,host``, ``redlocks://`` for TLS.

    *io_timeout* is the longest time for an answer of one server, in seconds. A call takes at most twice as
    long, except `announced` and `examine`, which ask one server after the other. *fence_ttl*, *client_name*,
    *credential_provider*: see `RedisBackend`.
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
        self._io_timeout = check_seconds("io_timeout", io_timeout, most=MOST_SECONDS)
        self._servers = []
        for address in redlock_addresses(url):
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
        self._start_anew()
        # The threads don't refer to the backend, so a backend that is dropped without close() is collected
        # while they run. This finalizer ends them then.
        weakref.finalize(self, _dismiss, self._servers).atexit = False

    def __repr__(self) -> str:
        return f"<RedlockBackend {', '.join(server.shown for server in self._servers)}>"

    def open(self, sink: Sink) -> None:
        self._sink = sink
        # The threads refer to the servers, and must not keep the client alive.
        self._attempts = AttemptSink(sink)
        for server in self._servers:
            server.backend.open(self._attempts)
        self._start_anew()

    # -- holds -------------------------------------------------------------------------------------

    def request(self, request: LockRequest, deadline: float = math.inf) -> Acquired | Queued | Busy:
        if number := hold_number(request):
            # Renewing a lost hold, requesting it anew and agreeing on its number are three waits.
            deadline = min(deadline, clock.now() + 2 * self._io_timeout)
            if self._is_ours(request, deadline):
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
        # Without a hold at a majority, release all grants, which would block others.
        for server in answers.asked:
            if not isinstance(answers.replies.get(server), Busy):
                server.release(mine)
        answers.require_quorum()
        return Queued(poll()) if request.wait else Busy()

    def cancel(self, request: LockRequest, deadline: float = math.inf) -> bool:
        if hold_number(request) and self._is_ours(request, deadline):
            return True
        # There is no queue to leave, but an attempt without an answer may have been granted.
        self._release(request, deadline)
        return False

    def renew(self, requests: Sequence[LockRequest]) -> list[bool | None]:
        copies = list(map(_copy, requests))
        self._attempts.requests = {
            copy.token: request.token for request, copy in zip(requests, copies, strict=True)
        }
        answers = AnswersToSeveral(self._servers, self._quorum, len(requests))
        answers.ask("", lambda server: server.backend.renew(copies), self._by(math.inf))
        renewed = [answers.of(number).verdict for number in range(len(requests))]
        if renewed and not any(one is not None for one in renewed):
            raise answers.unavailable()
        for request, copy, ours in zip(requests, copies, renewed, strict=True):
            if ours is False:
                set_number(request, 0)
                self._backoff.released(request.key)
                for server in self._servers:
                    server.release(copy)
        return renewed

    def release(self, request: LockRequest, deadline: float = math.inf) -> bool:
        self._backoff.released(request.key)
        # None: that depends on servers that are away, so the hold may have been ours.
        return self._release(request, deadline) is not False

    def _is_ours(self, request: LockRequest, deadline: float) -> bool:
        """Renew the hold of *request*. Return whether it still exists.

        Raises `BackendUnavailable` if that is unknown.
        """
        mine = _copy(request)
        answers = self._ask(request.key, lambda server: server.backend.renew([mine])[0], bool, deadline)
        if answers.verdict is None:
            raise answers.unavailable()
        return answers.verdict

    def _release(self, request: LockRequest, deadline: float) -> bool | None:
        """Release the latest attempt. Return whether a quorum had granted it; None if that is unknown.

        Raises `BackendUnavailable` unless a quorum answers.
        """
        mine = _copy(request)
        set_number(request, 0)
        answers = Answers(self._servers, self._quorum, bool)
        # Ask even servers that seem to be away, because they may still grant the attempt.
        answers.collect(lambda server, notify: server.release(mine, notify), self._by(deadline), spare=False)
        return answers.require_quorum().verdict

    # -- fences ------------------------------------------------------------------------------------

    def _agree(self, mine: LockRequest, numbers: Mapping[Server, int], deadline: float) -> int | None:
        """Return the fence number of the hold of *mine*; None if there is no quorum any more.

        *numbers*: by server, the numbers with which the servers granted the hold. The largest becomes the
        number, after a quorum has raised its counters to it. So each later hold has a larger number, because
        any two quorums share a server.
        """
        top = max(numbers.values())
        behind = [server for server, number in numbers.items() if number < top]
        answers = Answers(behind, self._quorum - (len(numbers) - len(behind)), bool)
        answers.ask(mine.key, lambda server: server.backend.agree(mine, top), self._by(deadline))
        return top if answers.verdict else None

    def raise_fence(self, request: LockRequest, number: int) -> Acquired | None:
        known, mine = hold_number(request), _copy(request)
        if known > number and self._is_ours(request, math.inf):
            return Acquired(known, request.ttl)
        # The new number has to be above the old block, too: some servers may count from within that block.
        floor = max(number, known + request.span - 1)
        answers = self._ask(
            request.key, lambda server: server.backend.raise_fence(mine, floor), _is_held, math.inf
        )
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
        # None: that depends on servers that are away, so a process may hold the key.
        return answers.require_quorum().verdict is not False

    def close(self) -> None:
        deadline = clock.now() + 2 * self._io_timeout
        for thread in _dismiss(self._servers):
            thread.join(max(0.0, deadline - clock.now()))
        for server in self._servers:
            server.backend.close()
        self._start_anew()

    def after_fork(self) -> None:
        for server in self._servers:
            server.after_fork()
        self._start_anew()

    def _start_anew(self) -> None:
        """Take a new process id, the same at all servers, and forget pauses and missed status."""
        self.process = secrets.token_hex(PROCESS_LENGTH // 2)
        for server in self._servers:
            server.backend.process = self.process
        self._missed = set()
        self._backoff = Backoff()

    def _ask(self, key: str, call: ServerCall, agrees: Callable[[Any], bool], deadline: float) -> Answers:
        return Answers(self._servers, self._quorum, agrees).ask(key, call, self._by(deadline))


def _copy(request: LockRequest) -> LockRequest:
    """Return the latest attempt as a request for the servers. Its ttl allows for the drift of clocks."""
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
