"""Asking a holder for its lock costs those nothing that are not asked, and leaves nothing behind."""

from __future__ import annotations

import secrets

import distlock
from tests.backends.redis.contender import MakeContender, ask
from tests.backends.redis.test_permissions import LEAST_RULES
from tests.redis_server import RedisServer, eventually
from tests.stored import hold_key

#: Its renewals come too late for any test.
TTL = 600.0


def test_a_process_that_listens_is_told_at_once(redis_server: RedisServer) -> None:
    name = f"product_{secrets.token_hex(4)}"
    mine = distlock.connect(redis_server.url, ttl=TTL, max_hold=TTL)
    other = distlock.connect(redis_server.url, ttl=TTL)
    try:
        with other.lock(name):
            assert mine.lock(name).acquire(timeout=0.2) is None, "it has waited, and listens since"
        with mine.lock(name) as grant:
            assert other.request_release(name)
            eventually(lambda: grant.release_requested, "it is told long before its next renewal")
    finally:
        mine.close()
        other.close()


def test_what_is_written_names_the_hold_and_has_an_end(
    own_server: RedisServer, contender: MakeContender
) -> None:
    one, two = contender(own_server.url), contender(own_server.url)
    mine = ask()
    one.hold(mine)
    before = own_server.client.get(hold_key(mine.key))
    assert two.request_release(mine.key)
    assert own_server.client.get(hold_key(mine.key)) == before
    wanted = f"{hold_key(mine.key)}:wanted"
    assert own_server.client.get(wanted) == f" {mine.token} ".encode()
    assert mine.ttl < own_server.client.pttl(wanted) / 1000 <= mine.ttl + 60
    one.release(mine)
    assert not two.request_release(mine.key)


def test_a_key_of_somebody_else_in_its_place_costs_no_renewal(
    own_server: RedisServer, contender: MakeContender
) -> None:
    one = contender(own_server.url)
    mine = ask()
    one.hold(mine)
    own_server.client.rpush(f"{hold_key(mine.key)}:wanted", "something")
    assert one.renew([mine]) == [True]
    assert one.sink.requests == []


def test_the_documented_permissions_are_enough(own_server: RedisServer, contender: MakeContender) -> None:
    own_server.tell("ACL", "SETUSER", "shop", "on", ">secret", "-@all", *LEAST_RULES)
    url = f"redis://shop:secret@127.0.0.1:{own_server.port}"
    one, two = contender(url), contender(url)
    mine = ask()
    one.hold(mine)
    assert two.request_release(mine.key)
    assert one.renew([mine]) == [True]
    assert one.sink.requests == [(mine.key, mine.token)]
