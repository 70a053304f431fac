"""What operators see and do: holders, breaks, requested releases, published status, and the health check.

A hold counts if a majority of the servers has it. A process publishes its status to all servers, and a
majority has to receive it. A majority is read, so at least one of the servers that are read has received it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from distlock.backends.inspectable import Finding, KeyState, Quorum, SeenProcess, StatusRow
from distlock.backends.redis.calls import BoundedCalls
from distlock.backends.redis.health import info_in, over_several
from distlock.backends.redlock.servers import Answers, AnswersOfAll, MemberHold, Server, ServerCall
from distlock.errors import BackendUnavailable


class RedlockInspection(BoundedCalls):
    """The calls of `RedlockBackend` for operators. Acquiring and releasing use none of them."""

    process: str
    _servers: list[Server]
    _quorum: int
    #: The servers that missed a part of the status. The whole status is published to them again.
    _missed: set[Server]

    def inspect(self, key: str, deadline: float = math.inf) -> KeyState:
        answers = self._of_all(key, lambda server: server.backend.hold_of(key), deadline)
        holds = _main_hold(answers)
        quorum = Quorum(len(holds), len(answers.replies), len(self._servers))
        if not self._may_be_held(answers, len(holds)):
            return KeyState(quorum=quorum)
        # The hold ends when the number of servers that have it falls below a majority.
        last = sorted((hold.remaining for hold in holds.values()), reverse=True)[: self._quorum][-1]
        published = (hold.seen for hold in holds.values())
        return KeyState(
            max(published, key=lambda seen: (bool(seen.host), seen.row is not None)),
            _main_number(holds),
            last,
            quorum=quorum,
        )

    def break_hold(self, key: str, number: int, deadline: float = math.inf) -> bool:
        answers = self._of_all(key, lambda server: server.backend.hold_of(key), deadline)
        holds = _main_hold(answers)
        if not self._may_be_held(answers, len(holds)) or _main_number(holds) != number:
            return False
        done = AnswersOfAll(list(holds), 0, bool).ask(
            key, lambda server: server.backend.break_hold(key, holds[server].number), self._by(deadline)
        )
        free = len(answers.replies) - len(holds) + len(done.agreed)
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
        rows: Sequence[StatusRow],
        gone: Sequence[str],
        life: float,
        deadline: float = math.inf,
        lease: float = 0.0,
    ) -> bool:
        missed = self._missed

        def publish(server: Server) -> bool:
            if server in missed:
                server.backend.withdraw_status()
            return server.backend.announce(host, pid, rows, gone, life, lease=lease)

        answers = self._of_all(self.process, publish, deadline)
        self._missed = set(answers.failed)
        return len(answers.agreed) == len(answers.replies)

    def announced(self, before: str, deadline: float = math.inf) -> Iterator[SeenProcess]:
        yielded: set[tuple[str, str]] = set()
        answers = Answers(self._servers, self._quorum, bool)
        for server in sorted(self._servers, key=lambda one: one.away() is not None):
            try:
                for seen in server.backend.announced(before, deadline):
                    if seen.row is not None and (which := (seen.process, seen.row.key)) not in yielded:
                        yielded.add(which)
                        yield seen
                answers.add(server, True)
            except BackendUnavailable as error:
                answers.add(server, error)
            if answers.has_quorum:
                return
        raise answers.unavailable()

    def examine(self) -> Iterator[Finding]:
        return _findings(self._servers, self._quorum)

    def _of_all(self, key: str, call: ServerCall, deadline: float) -> Answers:
        """Return the answers of all servers. Raises `BackendUnavailable` unless a quorum answers.

        *call* gets the server's io_timeout, not *deadline*: with less time, a server that is only slow would
        count as away.
        """
        answers = AnswersOfAll(self._servers, self._quorum, bool)
        return answers.ask(key, call, self._by(deadline)).require_quorum()

    def _may_be_held(self, answers: Answers, have: int) -> bool:
        """Return whether a quorum may have the hold: *have* servers have it, and those away may have it."""
        return have > 0 and have + len(self._servers) - len(answers.replies) >= self._quorum


def _main_number(holds: dict[Server, MemberHold]) -> int:
    """Return the number that most servers have. A server that granted the hold late has its own."""
    counts = Counter(hold.number for hold in holds.values())
    return max(counts, key=lambda number: (counts[number], -number))


def _main_hold(answers: Answers) -> dict[Server, MemberHold]:
    """Return, by server, the parts of the hold that most servers have."""
    holds: dict[Server, MemberHold] = {
        server: hold for server, hold in answers.replies.items() if hold is not None
    }
    most = Counter(hold.token for hold in holds.values()).most_common(1)
    return {server: hold for server, hold in holds.items() if hold.token == most[0][0]}


def _findings(servers: Sequence[Server], quorum: int) -> Iterator[Finding]:
    found: dict[str, list[Finding]] = {}
    infos: dict[str, dict[str, str]] = {}
    away: list[str] = []
    for server in servers:
        try:
            infos[server.shown] = info_in(server.backend.send("INFO"))
            found[server.shown] = list(server.backend.examine())
        except BackendUnavailable as error:
            infos.pop(server.shown, None)
            away.append(str(error))
    yield _servers_finding(len(servers), quorum, away)
    yield from _independence_findings(infos)
    yield from over_several(found)


def _servers_finding(servers: int, quorum: int, away: Sequence[str]) -> Finding:
    answer = servers - len(away)
    if not away:
        said = f"All {servers} answer, and {servers - quorum} of them may fail."
        return Finding("ok", "servers", said)
    more = f"{answer - quorum} more may fail" if answer >= quorum else "no lock can be taken"
    said = f"{answer} of {servers} answer, and {more}. {' '.join(away)}"
    return Finding("warning" if answer >= quorum else "error", "servers", said, "Start those that are away.")


def _independence_findings(infos: Mapping[str, Mapping[str, str]]) -> Iterator[Finding]:
    """Yield findings about servers that are the same or replicate each other. *infos*: INFO by server."""
    known = {shown: info for shown, info in infos.items() if "run_id" in info}
    same = list(_alike({shown: info["run_id"] for shown, info in known.items()}))
    for names in same:
        said = f"{names} are one server: what it grants counts as often as it is named."
        yield Finding("error", "independence", said, "Name servers that don't fail together, each once.")
    if same:
        return
    copies = list(_alike({shown: info.get("master_replid", shown) for shown, info in known.items()}))
    for names in copies:
        said = f"{names} have one history: one replicates the other, or each of them a third."
        remedy = "Let each be a primary of its own: REPLICAOF NO ONE. Or name other servers."
        yield Finding("error", "independence", said, remedy)
    if not copies and len(known) == len(infos):
        yield Finding("ok", "independence", "They are different servers, and none replicates another.")


def _alike(by_server: Mapping[str, str]) -> Iterator[str]:
    """Yield the names of servers with equal values, group by group."""
    groups: dict[str, list[str]] = {}
    for shown, value in by_server.items():
        groups.setdefault(value, []).append(shown)
    return (" and ".join(names) for names in groups.values() if len(names) > 1)
