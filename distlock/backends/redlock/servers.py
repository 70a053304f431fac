"""The servers, the threads that call them concurrently, and the majority of their answers."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Self

from distlock import clock, signal_safety
from distlock.backends.base import LockRequest
from distlock.backends.inspectable import SeenProcess
from distlock.backends.redis import RedisBackend, scripts
from distlock.backends.redis.inspection import PROCESS_LENGTH
from distlock.backends.redis.scripts import bulk, command, hold_key, holder
from distlock.errors import BackendUnavailable

#: The number of worker threads, and of connections, of a server. One worker makes all calls for a key, in
#: order.
WORKERS = 4
#: Seconds for which a server counts as away after a failure. Meanwhile calls leave it out if the others are a
#: majority, and have a worker check it.
_FRESH = 1.0
#: How many releases are kept to be repeated at a server that is away. Other holds there end with their
#: leases.
_MANY = 1000

#: The type of a call of a server, and of the function that gets its answer or error.
ServerCall = Callable[["Server"], Any]
Notify = Callable[[Any], None]


class MemberHold(NamedTuple):
    """One server's part of a hold, with the published status of its process."""

    token: str
    number: int
    #: The remaining lease on that server, seconds.
    remaining: float
    seen: SeenProcess


class Member(RedisBackend):
    """The Redis backend of one of the servers."""

    _listens = False

    def agree(self, request: LockRequest, number: int) -> bool:
        """Have the block of the hold of *request* begin with *number*, unless it begins with a larger number.

        No number of the block may have been used as a fence. Return whether this server has the hold.
        """
        (reply,) = self._caller.call(scripts.AGREE, [request], self._by(math.inf), more=bulk(number))
        return bool(reply[1])

    def hold_of(self, key: str) -> MemberHold | None:
        """Return this server's part of the hold of *key*."""
        deadline, place = self._by(math.inf), hold_key(key)
        held, left = self._ask([command("GET", place), command("PTTL", place)], deadline)
        hold = holder(held)
        if hold is None:
            return None
        number, token = hold
        (seen,) = self._seen_processes([token[:PROCESS_LENGTH]], key, deadline)
        return MemberHold(token, number, left / 1000 if left >= 0 else math.inf, seen)


class _Job(NamedTuple):
    """A call in the queue of a worker. *put*: the time when it was put there."""

    call: ServerCall
    notify: Notify
    put: float


class Server:
    """One of the servers, with the threads that call it. *shown*: its address, as shown to people."""

    def __init__(self, backend: Member, shown: str) -> None:
        self.backend = backend
        self.shown = shown
        self._begin()

    def _begin(self) -> None:
        #: Re-entrant, because a finaliser may take it in the thread that owns it.
        self._mutex = threading.RLock()
        self._workers: dict[int, _Worker] = {}
        #: The last failure; None: the last call succeeded.
        self._failure: BackendUnavailable | None = None
        self._failed_at = 0.0
        #: Locked while a worker checks whether the server is back.
        self._checking = threading.Lock()
        #: Released requests that the server may have granted, or may still grant, by token.
        self._pending_releases: dict[str, LockRequest] = {}

    def ask(self, key: str, call: ServerCall, notify: Notify) -> None:
        """Have a worker make *call*, after earlier calls for *key*, and pass its answer to *notify*."""
        try:
            worker = self._worker(hash(key) % WORKERS)
        except RuntimeError as error:
            notify(BackendUnavailable(f"No thread could be started for the server at {self.shown}: {error}."))
            return
        worker.jobs.put(_Job(call, notify, clock.now()))

    def away(self) -> BackendUnavailable | None:
        """Return the failure if the server counts as away, and have a worker check the server."""
        failure = self._failure
        if failure is None or clock.now() >= self._failed_at + _FRESH:
            return None
        if self._checking.acquire(blocking=False):
            self.ask("", _check, self._checked)
        return failure

    def release(self, request: LockRequest, notify: Notify = lambda _: None) -> None:
        """Have a worker release *request*. If the server is away, repeat the release when it is back."""

        def receive(answer: object) -> None:
            if isinstance(answer, BackendUnavailable):
                with self._mutex:
                    if len(self._pending_releases) >= _MANY:
                        del self._pending_releases[next(iter(self._pending_releases))]
                    self._pending_releases[request.token] = request
            notify(answer)

        self.ask(request.key, lambda server: server.backend.release(request), receive)

    def _repeat_releases(self) -> None:
        with self._mutex:
            if not self._workers:
                # The workers were dismissed. A release would start new ones, which nobody would dismiss.
                return
            pending, self._pending_releases = self._pending_releases, {}
            for request in pending.values():
                self.release(request)

    def _checked(self, answer: object) -> None:
        self._checking.release()

    def _worker(self, number: int) -> _Worker:
        with self._mutex:
            worker = self._workers.get(number)
            if worker is None:
                worker = _Worker(self)
                try:
                    worker.start()
                    self._workers[number] = worker
                finally:
                    if self._workers.get(number) is not worker:
                        # An interrupt came after the start: nobody would dismiss it.
                        worker.jobs.put(None)
        return worker

    def answer(self, job: _Job) -> Any:
        """Make the call of *job* in a worker. Return the answer, or the error."""
        failure = self._failure
        if failure is not None and job.put <= self._failed_at:
            # The job waited behind a call that failed, and would time out as well.
            return failure
        try:
            answer = signal_safety.call(job.call, self)
        except BackendUnavailable as error:
            self._failed_at = clock.now()
            self._failure = error
            return error
        except Exception as error:
            return error
        self._failure = None
        if self._pending_releases:
            self._repeat_releases()
        return answer

    def dismiss(self) -> list[threading.Thread]:
        """Have the workers end after their pending jobs. Return their threads. Later calls start others."""
        with self._mutex:
            workers, self._workers = self._workers, {}
        for worker in workers.values():
            worker.jobs.put(None)
        return list(workers.values())

    def after_fork(self) -> None:
        self._begin()
        self.backend.after_fork()


def _check(server: Server) -> bool:
    return server.backend.locked("")


class _Worker(threading.Thread):
    """A thread that does the jobs of *server* in order."""

    def __init__(self, server: Server) -> None:
        super().__init__(name="distlock-redlock", daemon=True)
        self.jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._server = server

    def run(self) -> None:
        while (job := self.jobs.get()) is not None:
            job.notify(self._server.answer(job))


@dataclass(eq=False)
class Answers:
    """The answers of *servers* to one call.

    *quorum*: how many servers have to agree. *agrees*: tells whether an answer means that its server agrees.
    """

    servers: Sequence[Server]
    quorum: int
    _agrees: Callable[[Any], bool]
    asked: list[Server] = field(default_factory=list)
    replies: dict[Server, Any] = field(default_factory=dict)
    #: The servers that are away, and why.
    failed: dict[Server, str] = field(default_factory=dict)

    def ask(self, key: str, call: ServerCall, deadline: float) -> Self:
        """Have a worker of each server make *call*, which is about *key*: see `collect`."""
        return self.collect(lambda server, notify: server.ask(key, call, notify), deadline)

    def collect(self, ask: Callable[[Server, Notify], None], deadline: float, spare: bool = True) -> Self:
        """Call *ask* for each server. Return these answers when they are decided, or after *deadline*.

        Later answers are ignored. *spare*: ask servers that count as away only if there is no quorum without
        them. Raises an error that is not an outage.
        """
        arrived: SimpleQueue[tuple[Server, Any]] = SimpleQueue()

        def call(server: Server) -> None:
            self.asked.append(server)
            ask(server, lambda answer: arrived.put((server, answer)))

        away: list[Server] = []
        for server in self.servers:
            if spare and (failure := server.away()) is not None:
                self.add(server, failure)
                away.append(server)
            else:
                call(server)
        while True:
            if self.is_decided:
                if self.has_quorum or not away:
                    return self
                for server in away:
                    del self.failed[server]
                    call(server)
                away = []
            try:
                self.add(*arrived.get(timeout=max(0.0, deadline - clock.now())))
            except Empty:
                for server in self.servers:
                    if server not in self.replies:
                        late = f"The Redis server at {server.shown} did not answer in time."
                        self.failed.setdefault(server, late)
                return self

    def add(self, server: Server, answer: Any) -> None:
        """Add *answer* of *server*, which may be an error. Raise an error that is not an outage."""
        if isinstance(answer, BackendUnavailable):
            self.failed[server] = str(answer)
        elif isinstance(answer, Exception):
            raise answer
        else:
            self.replies[server] = answer

    @property
    def agreed(self) -> list[Server]:
        """The servers that agree."""
        return [server for server, answer in self.replies.items() if self._agrees(answer)]

    @property
    def verdict(self) -> bool | None:
        """Whether a quorum agrees; None if that depends on servers that have not answered."""
        agreed = len(self.agreed)
        if agreed >= self.quorum:
            return True
        return None if agreed + len(self.servers) - len(self.replies) >= self.quorum else False

    @property
    def has_quorum(self) -> bool:
        """Whether a quorum has answered, in any way."""
        return len(self.replies) >= self.quorum

    @property
    def is_decided(self) -> bool:
        """Whether pending answers can change neither `has_quorum` nor whether `verdict` is True.

        They may still turn a `verdict` of None into False.
        """
        replies, agreed = len(self.replies), len(self.agreed)
        pending = len(self.servers) - replies - len(self.failed)
        if agreed >= self.quorum or replies + pending < self.quorum:
            return True
        return self.has_quorum and agreed + pending < self.quorum

    def of(self, number: int) -> Answers:
        """Return the answers to question *number*, if each server was asked several questions."""
        one = Answers(self.servers, self.quorum, bool)
        one.replies = {server: replies[number] for server, replies in self.replies.items()}
        one.failed = self.failed
        return one

    def require_quorum(self) -> Self:
        """Raise `BackendUnavailable` unless a quorum has answered."""
        if not self.has_quorum:
            raise self.unavailable()
        return self

    def unavailable(self) -> BackendUnavailable:
        """Return an error that says which servers are away, and why."""
        return BackendUnavailable(
            f"A majority of the {len(self.servers)} Redlock servers can't be had while {len(self.failed)} of "
            f"them are away. {' '.join(self.failed.values())}"
        )


class AnswersOfAll(Answers):
    """Answers that are decided when all servers have answered or failed."""

    @property
    def is_decided(self) -> bool:
        return len(self.replies) + len(self.failed) == len(self.servers)


class AnswersToSeveral(Answers):
    """Answers to a call with several *questions*: each server answers with a list, one item for each."""

    def __init__(self, servers: Sequence[Server], quorum: int, questions: int) -> None:
        super().__init__(servers, quorum, all)
        self._questions = questions

    @property
    def is_decided(self) -> bool:
        return all(self.of(number).is_decided for number in range(self._questions))
