"""What several servers say to one call, and what the majority of them does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from distlock import clock
from distlock.backends.redlock.server import Server, Tell
from distlock.errors import BackendUnavailable


class Answers:
    """The answers of *servers*.

    *quorum* is how many have to say yes, and *yes* tells whether an answer does.
    """

    def __init__(self, servers: Sequence[Server], quorum: int, yes: Callable[[Any], bool]) -> None:
        self.servers = servers
        self.quorum = quorum
        self._yes = yes
        self.asked: list[Server] = []
        self.said: dict[Server, Any] = {}
        #: The servers that are away, and why.
        self.failed: dict[Server, str] = {}

    def take(self, server: Server, answer: Any) -> None:
        """*server* said *answer*, or that is the error in its place. Raises what is no outage."""
        if isinstance(answer, BackendUnavailable):
            self.failed[server] = str(answer)
        elif isinstance(answer, Exception):
            raise answer
        else:
            self.said[server] = answer

    @property
    def agreed(self) -> list[Server]:
        """Return the servers that said yes."""
        return [server for server, answer in self.said.items() if self._yes(answer)]

    @property
    def verdict(self) -> bool | None:
        """Whether a quorum says yes. None: that depends on those that have not answered."""
        agreed = len(self.agreed)
        if agreed >= self.quorum:
            return True
        return None if agreed + len(self.servers) - len(self.said) >= self.quorum else False

    @property
    def has_quorum(self) -> bool:
        """Whether a quorum has answered, whatever it says."""
        return len(self.said) >= self.quorum

    @property
    def is_decided(self) -> bool:
        """Whether those that may answer yet can change neither that, nor whether a quorum answers at all."""
        said, agreed = len(self.said), len(self.agreed)
        pending = len(self.servers) - said - len(self.failed)
        if agreed >= self.quorum or said + pending < self.quorum:
            return True
        return self.has_quorum and agreed + pending < self.quorum

    def of(self, number: int) -> Answers:
        """Return the answers to question *number*, if each server was asked several."""
        one = Answers(self.servers, self.quorum, bool)
        one.said = {server: said[number] for server, said in self.said.items()}
        one.failed = self.failed
        return one

    def give_up(self) -> None:
        """Their time is over: those that have not answered are away."""
        for server in self.servers:
            if server not in self.said:
                late = f"The Redis server at {server.shown} did not answer in time."
                self.failed.setdefault(server, late)

    def unavailable(self) -> BackendUnavailable:
        """Which of the servers are away, and why."""
        return BackendUnavailable(
            f"A majority of the {len(self.servers)} Redlock servers can't be had while {len(self.failed)} of "
            f"them are away. {' '.join(self.failed.values())}"
        )


class AnswersOfAll(Answers):
    """The answers of all servers that are not away."""

    @property
    def is_decided(self) -> bool:
        return len(self.said) + len(self.failed) == len(self.servers)


class AnswersToSeveral(Answers):
    """Each server is asked *questions* at once, and answers with a list."""

    def __init__(self, servers: Sequence[Server], quorum: int, questions: int) -> None:
        super().__init__(servers, quorum, all)
        self._questions = questions

    @property
    def has_quorum(self) -> bool:
        """Whether a quorum has answered, whatever it says."""
        return len(self.said) >= self.quorum

    @property
    def is_decided(self) -> bool:
        return all(self.of(number).is_decided for number in range(self._questions))


def ask_all(
    answers: Answers, ask: Callable[[Server, Tell], None], deadline: float, spare: bool = True
) -> None:
    """*ask* each server, side by side, until it is decided or *deadline* is over.

    What the others say later nobody hears. *spare*: those that are known to be away are asked only where
    there is no quorum without them. Raises what is no outage.
    """
    told: SimpleQueue[tuple[Server, Any]] = SimpleQueue()

    def begin(server: Server) -> None:
        answers.asked.append(server)
        ask(server, lambda answer: told.put((server, answer)))

    away: list[Server] = []
    for server in answers.servers:
        if spare and (failure := server.away()) is not None:
            answers.take(server, failure)
            away.append(server)
        else:
            begin(server)
    while True:
        if answers.is_decided:
            if answers.has_quorum or not away:
                return
            for server in away:
                del answers.failed[server]
                begin(server)
            away = []
        try:
            answers.take(*told.get(timeout=max(0.0, deadline - clock.now())))
        except Empty:
            answers.give_up()
            return
