"""The answers of several servers to one call, and the decision of the majority."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from distlock import clock
from distlock.backends.redlock.server import Notify, Server
from distlock.errors import BackendUnavailable


class Answers:
    """The answers of *servers* to one call.

    *quorum*: how many servers have to agree. *agrees*: whether an answer means that its server does.
    """

    def __init__(self, servers: Sequence[Server], quorum: int, agrees: Callable[[Any], bool]) -> None:
        self.servers = servers
        self.quorum = quorum
        self._agrees = agrees
        self.asked: list[Server] = []
        self.replies: dict[Server, Any] = {}
        #: The servers that are away, and why.
        self.failed: dict[Server, str] = {}

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
        """Return the servers that agree."""
        return [server for server, answer in self.replies.items() if self._agrees(answer)]

    @property
    def verdict(self) -> bool | None:
        """Whether a quorum agrees. None: that depends on servers that have not answered."""
        agreed = len(self.agreed)
        if agreed >= self.quorum:
            return True
        return None if agreed + len(self.servers) - len(self.replies) >= self.quorum else False

    @property
    def has_quorum(self) -> bool:
        """Whether a quorum has answered, whatever it says."""
        return len(self.replies) >= self.quorum

    @property
    def is_decided(self) -> bool:
        """Whether pending answers can change neither `verdict` nor `has_quorum`."""
        replies, agreed = len(self.replies), len(self.agreed)
        pending = len(self.servers) - replies - len(self.failed)
        if agreed >= self.quorum or replies + pending < self.quorum:
            return True
        return self.has_quorum and agreed + pending < self.quorum

    def of(self, number: int) -> Answers:
        """Return the answers to question *number*, if each server was asked several."""
        one = Answers(self.servers, self.quorum, bool)
        one.replies = {server: replies[number] for server, replies in self.replies.items()}
        one.failed = self.failed
        return one

    def time_out(self) -> None:
        """Count the servers that have not answered as away."""
        for server in self.servers:
            if server not in self.replies:
                late = f"The Redis server at {server.shown} did not answer in time."
                self.failed.setdefault(server, late)

    def unavailable(self) -> BackendUnavailable:
        """Return the error that says which of the servers are away, and why."""
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
    """Answers to several *questions* at once: each server answers with a list."""

    def __init__(self, servers: Sequence[Server], quorum: int, questions: int) -> None:
        super().__init__(servers, quorum, all)
        self._questions = questions

    @property
    def is_decided(self) -> bool:
        return all(self.of(number).is_decided for number in range(self._questions))


def ask_all(
    answers: Answers, ask: Callable[[Server, Notify], None], deadline: float, spare: bool = True
) -> None:
    """Call *ask* for each server, side by side, until *answers* is decided or *deadline* is over.

    Later answers are ignored. *spare*: ask servers that count as away only if there is no quorum without
    them. Raises an error that is not an outage.
    """
    arrived: SimpleQueue[tuple[Server, Any]] = SimpleQueue()

    def call(server: Server) -> None:
        answers.asked.append(server)
        ask(server, lambda answer: arrived.put((server, answer)))

    away: list[Server] = []
    for server in answers.servers:
        if spare and (failure := server.away()) is not None:
            answers.add(server, failure)
            away.append(server)
        else:
            call(server)
    while True:
        if answers.is_decided:
            if answers.has_quorum or not away:
                return
            for server in away:
                del answers.failed[server]
                call(server)
            away = []
        try:
            answers.add(*arrived.get(timeout=max(0.0, deadline - clock.now())))
        except Empty:
            answers.time_out()
            return
