"""What the servers show of a lock together, and how it is broken: a hold counts where a majority has it.

What processes say of themselves each server is told. A majority has to hear it, and a majority is read, which
has one of those that heard.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence

from distlock.backends.findings import Finding
from distlock.backends.inspectable import Quorum, Row, Seen, Sight
from distlock.backends.redlock.answers import Answers, AnswersOfAll, ask_all
from distlock.backends.redlock.examining import examine
from distlock.backends.redlock.member import OneHold
from distlock.backends.redlock.server import Call, Server
from distlock.errors import BackendUnavailable


class Inspection(ABC):
    """The part of `RedlockBackend` that is not on the way of any lock."""

    process: str
    _servers: list[Server]
    _quorum: int
    #: Servers that missed a part of the published status, which is published there again.
    _missed: set[Server]

    @abstractmethod
    def _by(self, deadline: float) -> float:
        """The end of a round that begins now and may last until *deadline*."""

    def inspect(self, key: str, deadline: float = math.inf) -> Sight:
        answers = self._of_all(key, lambda server: server.backend.hold_of(key), deadline)
        holds = _most_had(answers)
        quorum = Quorum(len(holds), len(answers.said), len(self._servers))
        if not self._may_be_held(answers, len(holds)):
            return Sight(quorum=quorum)
        # It is over when fewer than a majority have it.
        last = sorted((hold.remaining for hold in holds.values()), reverse=True)[: self._quorum][-1]
        told = (hold.seen for hold in holds.values())
        return Sight(
            max(told, key=lambda seen: (bool(seen.host), seen.row is not None)),
            number_of(holds),
            last,
            quorum=quorum,
        )

    def break_hold(self, key: str, number: int, deadline: float = math.inf) -> bool:
        answers = self._of_all(key, lambda server: server.backend.hold_of(key), deadline)
        holds = _most_had(answers)
        if not self._may_be_held(answers, len(holds)) or number_of(holds) != number:
            return False
        done = AnswersOfAll(list(holds), 0, bool)
        breaking: Call = lambda server: server.backend.break_hold(key, holds[server].number)  # noqa: E731
        ask_all(done, lambda server, tell: server.ask(key, breaking, tell), self._by(deadline))
        free = len(answers.said) - len(holds) + len(done.agreed)
        if free < self._quorum and done.failed:
            answers.failed |= done.failed
            raise answers.unavailable()
        return free >= self._quorum

    def request_release(self, key: str, deadline: float = math.inf) -> bool:
        answers = self._of_all(key, lambda server: server.backend.request_release(key), deadline)
        return self._may_be_held(answers, len(answers.agreed))

    def announce(
        self,
        host: str,
        pid: int,
        rows: Sequence[Row],
        gone: Sequence[str],
        life: float,
        deadline: float = math.inf,
        lease: float = 0.0,
    ) -> bool:
        missed = self._missed

        def say(server: Server) -> bool:
            if server in missed:
                server.backend.start_over()
            return server.backend.announce(host, pid, rows, gone, life, lease=lease)

        answers = self._of_all(self.process, say, deadline)
        self._missed = set(answers.failed)
        return len(answers.agreed) == len(answers.said)

    def announced(self, before: str, deadline: float = math.inf) -> Iterator[Seen]:
        told: set[tuple[str, str]] = set()
        answers = Answers(self._servers, self._quorum, bool)
        for server in sorted(self._servers, key=lambda one: one.away() is not None):
            try:
                for seen in server.backend.announced(before, deadline):
                    if seen.row is not None and (which := (seen.process, seen.row.key)) not in told:
                        told.add(which)
                        yield seen
                answers.take(server, True)
            except BackendUnavailable as error:
                answers.take(server, error)
            if answers.has_quorum:
                return
        raise answers.unavailable()

    def examine(self) -> Iterator[Finding]:
        return examine(self._servers, self._quorum)

    def _of_all(self, key: str, call: Call, deadline: float) -> Answers:
        """Raises `BackendUnavailable` unless a quorum answers.

        *call* has the time of any other: one that is cut short makes its server look as if it was away.
        """
        answers = AnswersOfAll(self._servers, self._quorum, bool)
        ask_all(answers, lambda server, tell: server.ask(key, call, tell), self._by(deadline))
        if not answers.has_quorum:
            raise answers.unavailable()
        return answers

    def _may_be_held(self, answers: Answers, have: int) -> bool:
        """Whether a quorum has what *have* servers have, or it depends on those that are away."""
        return have > 0 and have + len(self._servers) - len(answers.said) >= self._quorum


def number_of(holds: dict[Server, OneHold]) -> int:
    """That which a quorum agreed on: most have it. A server that granted the hold late has one of its own."""
    counts = Counter(hold.number for hold in holds.values())
    return max(counts, key=lambda number: (counts[number], -number))


def _most_had(answers: Answers) -> dict[Server, OneHold]:
    """The hold that most of them have, as each has it."""
    holds: dict[Server, OneHold] = {server: hold for server, hold in answers.said.items() if hold is not None}
    most = Counter(hold.token for hold in holds.values()).most_common(1)
    return {server: hold for server, hold in holds.items() if hold.token == most[0][0]}
