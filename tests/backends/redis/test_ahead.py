"""Fences do not run ahead of the server's clock, so they grow although all data is lost.

Each history is random and made of its seed. What the server has is read after each command.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable

import pytest

from distlock.backends.base import EXCLUSIVE, READ, Acquired, LockRequest, Queued
from tests.backends.redis.contender import Contender, MakeContender, some_key
from tests.redis_server import RedisServer, eventually
from tests.stored import hold_key

#: The largest block of the histories.
SPAN = 64
#: Lifetimes, seconds: the least that the server counts, shorter than a block of the counter, hardly longer,
#: usual, and longer than what is left of a hold lives.
LEAST, SHORT, LONGER, USUAL, LONG = 0.001, 0.02, 0.15, 10.0, 60.0
#: A hold that lives no longer than this is waited out, milliseconds.
SOON = 200


class Player:
    """One process of a history: it waits for the key, holds it, or neither."""

    def __init__(self, contender: Contender) -> None:
        self.contender = contender
        self.lock_request: LockRequest | None = None
        self.holds = False

    def ask(self, request: LockRequest) -> None:
        answer = self.contender.request(request)
        self.holds = isinstance(answer, Acquired)
        self.lock_request = request if isinstance(answer, Acquired | Queued) else None

    def leave(self) -> None:
        self.lock_request, self.holds = None, False


class History:
    """Random commands for one key, and what the server has after each of them."""

    def __init__(self, server: RedisServer, players: list[Player], seed: int, ttls: list[float]) -> None:
        self.server = server
        self.players = players
        self.key = some_key()
        self.random = random.Random(seed)
        self.ttls = ttls
        #: The number of the latest hold, and the first one after its block.
        self.number = self.end = 0
        self.done: list[str] = []

    def step(self) -> None:
        player = self.random.choice(self.players)
        choices: list[Callable[[Player], None]]
        if player.lock_request is None:
            choices = [self.ask] * 8 + [self.break_hold]
        elif player.holds:
            choices = [self.release] * 8 + [self.renew, self.downgrade, self.downgrade, self.expire, self.die]
        else:
            choices = [self.poll] * 6 + [self.cancel, self.cancel, self.die]
        action = self.random.choice(choices)
        self.done.append(f"{self.players.index(player)} {action.__name__} {player.lock_request}")
        action(player)
        self.look()

    def look(self) -> None:
        """Compare the numbers with the server's clock."""
        place = hold_key(self.key)
        pipeline = self.server.client.pipeline(transaction=True)
        pipeline.get(place).get(f"{place}:fence").pttl(place).time()  # type: ignore[attr-defined]
        state, counter, rest, (seconds, micros) = pipeline.execute()
        if state is None:
            return
        now, counter = seconds * 1_000_000 + micros, int(counter)
        number, end = (int(word) for word in state.split()[:2])
        told = f"{state!r}, counter {counter}, {rest} ms, at {now}, after {self.done[-12:]}"
        assert number - now <= SPAN, told
        assert counter >= end, told
        # If nothing else ends it, the clock has passed the counter when it ends by itself.
        assert counter - end <= max(0, now + (rest + 1) * 1000 - end), told
        assert number >= self.number, told
        if end != self.end and state.split()[-1] != b"readers":
            assert number >= self.end, told
        self.number, self.end = number, end

    def ask(self, player: Player) -> None:
        mode = self.random.choice([EXCLUSIVE, READ])
        ttl, span = self.random.choice(self.ttls), self.random.choice([1, SPAN])
        wait = self.random.random() < 0.7
        player.ask(LockRequest(self.key, secrets.token_hex(16), ttl, span, wait, mode))

    def poll(self, player: Player) -> None:
        assert player.lock_request is not None
        player.ask(player.lock_request)

    def cancel(self, player: Player) -> None:
        assert player.lock_request is not None
        player.holds = player.contender.cancel(player.lock_request)
        if not player.holds:
            player.leave()

    def release(self, player: Player) -> None:
        assert player.lock_request is not None
        player.contender.release(player.lock_request)
        player.leave()

    def renew(self, player: Player) -> None:
        assert player.lock_request is not None
        if player.contender.renew([player.lock_request]) == [False]:
            player.leave()

    def downgrade(self, player: Player) -> None:
        assert player.lock_request is not None
        if player.contender.downgrade(player.lock_request):
            was = player.lock_request
            player.lock_request = LockRequest(was.key, was.token, was.ttl, 1, was.wait, READ)

    def expire(self, player: Player) -> None:
        """Wait for the end of a hold that lives no longer than a moment."""
        place = hold_key(self.key)
        state = self.server.client.get(place)
        if 0 <= self.server.client.pttl(place) <= SOON:
            eventually(lambda: self.server.client.get(place) != state, "the hold ends by itself")

    def die(self, player: Player) -> None:
        player.leave()

    def break_hold(self, player: Player) -> None:
        sight = player.contender.inspect(self.key)
        if sight.holder is not None:
            player.contender.break_hold(self.key, sight.number)


@pytest.fixture
def players(own_server: RedisServer, contender: MakeContender) -> list[Player]:
    """Four processes that hear, and two that no push reaches."""
    own_server.tell("ACL", "SETUSER", "deaf", "on", ">secret", "+@all", "~*", "&*", "-subscribe")
    deaf = f"redis://deaf:secret@127.0.0.1:{own_server.port}"
    return [Player(contender(url)) for url in (*[own_server.url] * 4, *[deaf] * 2)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "ttls",
    [[USUAL], [LONG], [LEAST, SHORT], [SHORT, USUAL], [LEAST, SHORT, LONGER, USUAL, LONG]],
    ids=["usual", "long", "short", "short and usual", "all"],
)
def test_no_history_drives_numbers_ahead_of_the_clock(
    own_server: RedisServer, players: list[Player], seed: int, ttls: list[float]
) -> None:
    history = History(own_server, players, seed, ttls)
    for _ in range(400):
        history.step()
