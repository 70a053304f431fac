"""Each model answers as the real server does, whatever is called in whatever order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from distlock.backends.base import EXCLUSIVE, PERMIT, READ, Acquired, Busy, LockRequest, Mode, Queued
from distlock.testing.protocol_fixtures import LONG, RecordingSink, ask
from loadtest.servers.lock_services import open_lock_service
from tests.backend_class import new_backend
from tests.histories.process import LIMIT
from tests.histories.services import FAMILIES, Model, ModeledService, State

#: The real lock services of each family.
SERVICES = {
    "redis": "redis",
    "zookeeper": "zookeeper",
    "postgresql": "sql",
    "mysql": "sql",
    "file": "file",
    "redlock": "polled",
}
CLIENTS = 3
#: How many keys are played, and how many calls for each.
KEYS, CALLS = 40, 14


class Twins:
    """Clients of a real server, and the model, with which each call is made, too."""

    def __init__(self, service: str, url: str) -> None:
        self.family = FAMILIES[SERVICES[service]]
        options = {} if service == "redlock" else {"ack_window": LONG}
        self.backends = [new_backend(url, **options) for _ in range(CLIENTS)]
        for backend in self.backends:
            backend.open(RecordingSink())
        self.begin()

    def begin(self) -> None:
        """Begin with a key that nobody has asked for."""
        self.model = Model(self.family)
        self.state = State()
        self.tokens: list[str] = []
        #: The request of each client, and whether it holds the lock.
        self.requests: dict[int, tuple[LockRequest, bool]] = {}
        self.done: list[str] = []

    def call(self, client: int, call: str, request: LockRequest) -> Any:
        """Make a call at the server and with the model. Return the answer, on which they have to agree."""
        if request.token not in self.tokens:
            self.tokens.append(request.token)
        token = self.tokens.index(request.token)
        about = (token, request.mode, request.wait, request.limit, request.permits, -1)
        self.state, modeled, _ = self.model.call(self.state, call, (about,))
        backend = self.backends[client]
        answer = backend.renew([request])[0] if call == "renew" else getattr(backend, call)(request)
        real = written(answer)
        if isinstance(modeled, tuple) and modeled[0] == "acquired":
            modeled = modeled[0], modeled[3]
        elif isinstance(modeled, tuple):
            modeled = modeled[1] if call == "renew" else modeled[0]
        self.done.append(f"{client} {call} {request.mode} {request.permits} {token}: {real}")
        assert real == modeled, (*self.done, f"the model says {modeled}")
        return real

    def step(self, dice: random.Random, key: str, modes: list[Mode]) -> None:
        client = dice.randrange(CLIENTS)
        if client not in self.requests:
            mode = dice.choice(modes)
            permits = dice.randint(1, LIMIT) if mode == PERMIT else 1
            limit = LIMIT if mode == PERMIT else 1
            request = ask(key, wait=dice.random() < 0.8, mode=mode, limit=limit, permits=permits)
            self.poll(client, request)
            return
        request, held = self.requests[client]
        what = dice.random()
        if what < 0.4:
            self.poll(client, request)
        elif what < 0.75 and held:
            self.call(client, "release", request)
            del self.requests[client]
        elif what < 0.85 and held:
            self.call(client, "renew", request)
        elif what < 0.95 and held and request.mode == EXCLUSIVE and self.family.shared:
            self.call(client, "downgrade", request)
            self.requests[client] = replace(request, mode=READ), True
        elif what > 0.9:
            if self.call(client, "cancel", request):
                self.requests[client] = request, True
            else:
                del self.requests[client]

    def poll(self, client: int, request: LockRequest) -> None:
        answer = self.call(client, "request", request)
        if answer == "busy":
            self.requests.pop(client, None)
        else:
            self.requests[client] = request, answer != "queued"

    def end(self) -> None:
        for client, (request, _) in self.requests.items():
            self.backends[client].cancel(request)
            self.backends[client].release(request)

    def close(self) -> None:
        for backend in self.backends:
            backend.close()


def written(answer: Any) -> Any:
    if isinstance(answer, Acquired):
        return "acquired", answer.followed
    if isinstance(answer, Queued):
        return "queued"
    return "busy" if isinstance(answer, Busy) else answer


def play(service: str, url: str) -> int:
    """Play all keys, and return how many calls were made."""
    twins, dice, calls = Twins(service, url), random.Random(1), 0
    kinds: list[list[Mode]] = [[EXCLUSIVE]]
    if twins.family.shared:
        kinds += [[EXCLUSIVE, READ, READ], [PERMIT]]
    try:
        for number in range(KEYS):
            twins.begin()
            for _ in range(CALLS):
                twins.step(dice, f"shop:product_{number}", kinds[number % len(kinds)])
            calls += len(twins.done)
            twins.end()
    finally:
        twins.close()
    return calls


@pytest.fixture(params=SERVICES)
def service(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(service: str, tmp_path: Path) -> Iterator[str]:
    with open_lock_service(service, tmp_path) as url:
        yield url


def test_a_model_answers_as_its_server(service: str, url: str) -> None:
    assert play(service, url) > KEYS * CALLS / 2


@pytest.mark.parametrize("service", ["file"])
def test_a_model_that_forgets_its_queue_is_found(
    service: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ModeledService, "_first", lambda self, record, now: None)
    with pytest.raises(AssertionError):
        play(service, url)
