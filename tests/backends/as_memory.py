"""Whatever callers do in whatever order: a backend answers as the memory backend does, which is the model."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from distlock.backends.base import EXCLUSIVE, PERMIT, READ, LockRequest
from distlock.backends.inspectable import Inspectable
from distlock.backends.protocols import Reads
from distlock.testing.protocol_fixtures import RecordingSink, ask
from tests.backend_class import backend_class

MemoryBackend = backend_class("memory://")


class Both:
    """Clients of both backends. What is done by one is done by its twin, and the answers are compared."""

    def __init__(self, make: Callable[[], Inspectable], clients: int, one_waits: bool = False) -> None:
        """*one_waits*: a client asks for nothing more while it waits."""
        # Nothing ends by itself: time stands still here, and there nobody is sent away.
        service = type(MemoryBackend("memory://").service)(now=lambda: 0.0)
        self.twins = [(MemoryBackend("memory://", service), make()) for _ in range(clients)]
        for _, backend in self.twins:
            backend.open(RecordingSink())
        #: The client of each ask, and those that wait.
        self.requests: list[tuple[int, LockRequest]] = []
        self.waiting: set[str] = set()
        self.done: list[str] = []
        self.one_waits = one_waits

    def close(self) -> None:
        for _, backend in self.twins:
            backend.close()

    def agree(self, what: str, *answers: object) -> None:
        self.done.append(f"{what}: {answers[0]}")
        assert answers[0] == answers[1], (*self.done, answers)

    def request(self, client: int, mine: LockRequest) -> None:
        answers = [backend.request(mine) for backend in self.twins[client]]
        told = [(type(answer).__name__, getattr(answer, "followed", None)) for answer in answers]
        self.agree(f"{client} asks for {mine.mode} {mine.permits}, {mine.wait}, {mine.token[:4]}", *told)
        self.waiting.discard(mine.token)
        if told[0][0] == "Queued":
            self.waiting.add(mine.token)
        if told[0][0] == "Busy":
            self.requests.remove((client, mine))

    def begin(self, client: int, mine: LockRequest) -> None:
        self.requests.append((client, mine))
        self.request(client, mine)

    def end(self, client: int, mine: LockRequest, how: str) -> None:
        answers = [getattr(backend, how)(mine) for backend in self.twins[client]]
        self.agree(f"{client} does {how} {mine.token[:4]}", *answers)
        self.waiting.discard(mine.token)
        # What came to it as it wanted to leave is its own.
        if how == "release" or not answers[0]:
            self.requests.remove((client, mine))

    def downgrade(self, client: int, mine: LockRequest) -> None:
        answers = []
        for backend in self.twins[client]:
            assert isinstance(backend, Reads)
            answers.append(backend.downgrade(mine))
        self.agree(f"{client} downgrades {mine.token[:4]}", *answers)
        if answers[0]:
            self.requests[self.requests.index((client, mine))] = (client, replace(mine, mode=READ))

    def look(self, key: str) -> None:
        sights = [backend.inspect(key) for backend in self.twins[0]]
        seen = [(state.holder is None, state.mode, state.others, state.waiting) for state in sights]
        self.agree("a look", *(each if not each[0] else (True, each[3]) for each in seen))

    def is_held(self, client: int, mine: LockRequest) -> bool:
        answers = [backend.renew([mine])[0] for backend in self.twins[client]]
        # Elsewhere what has just come to its waiter may be renewed only when it was taken.
        return answers == [True, True]

    def may_ask(self, client: int) -> bool:
        waits = any(one == client and mine.token in self.waiting for one, mine in self.requests)
        return not (self.one_waits and waits)

    def play(self, seed: int, permits: bool) -> None:
        dice = random.Random(seed)
        for number in range(20):
            key = f"shop:product_{seed}_{permits}_{number}"
            self.done.clear()
            for _ in range(30):
                self.step(dice, key, permits)
                self.look(key)
            for client, mine in list(self.requests):
                for backend in self.twins[client]:
                    backend.cancel(mine)
                    backend.release(mine)
            self.requests.clear()
            self.waiting.clear()
            self.look(key)

    def step(self, dice: random.Random, key: str, permits: bool) -> None:
        client, what = dice.randrange(len(self.twins)), dice.random()
        if what < 0.35 and len(self.requests) < 8 and self.may_ask(client):
            mode = PERMIT if permits else dice.choice([EXCLUSIVE, READ, READ])
            more = {"mode": mode, "limit": 4, "permits": dice.randint(1, 3) if permits else 1}
            self.begin(client, ask(key, wait=dice.random() < 0.8, **more))
        elif self.requests:
            client, mine = dice.choice(self.requests)
            if what < 0.6:
                self.request(client, mine)
            elif what < 0.85 and self.is_held(client, mine):
                self.end(client, mine, "release")
            elif what < 0.92 and mine.mode == EXCLUSIVE and self.is_held(client, mine):
                self.downgrade(client, mine)
            elif what > 0.92:
                self.end(client, mine, "cancel")
