"""Looking at locks costs the server little, however many there are and whatever else it stores."""

from __future__ import annotations

import secrets
import threading
import tracemalloc
from contextlib import nullcontext

import pytest

import distlock
from distlock.backends.base import Acquired, LockRequest
from distlock.backends.inspectable import StatusRow
from distlock.errors import BackendUnavailable
from distlock.operate import break_lock
from distlock.testing.protocol_fixtures import Contender
from tests.backend_class import backend_class
from tests.redis_server import RedisServer, eventually

RedisBackend = backend_class("redis://localhost")

#: A command that takes longer keeps everybody else's locks waiting. Microseconds.
LONGEST = 5_000


def test_a_hundred_thousand_names_beside_a_million_keys_of_others(own_server: RedisServer) -> None:
    fill = "for i = 1, 10000 do redis.call('SET', 'cache:' .. ARGV[1] .. ':' .. i, i) end"
    for part in range(100):
        own_server.client.eval(fill, 0, part)
    busy, look = (Contender(RedisBackend(own_server.url)).backend for _ in range(2))
    assert isinstance(busy, RedisBackend)
    assert isinstance(look, RedisBackend)
    own_server.client.config_resetstat()
    busy.announce(
        "web1", 1, [StatusRow(f"shop:p{n}", "shop.views.reduce", 1e9) for n in range(100_000)], [], 60.0
    )
    tracemalloc.start()
    told = sum(1 for _ in look.announced("shop:"))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert told == 100_000
    assert most < 1_000_000
    assert list(look.announced("other:")) == []
    assert not {"cmdstat_keys", "cmdstat_scan"} & own_server.client.info("commandstats").keys()
    told_of = own_server.client.info("commandstats")
    # On average: on a busy machine any command may stand still for a while, and all of them are alike.
    slow = {name: one["usec_per_call"] for name, one in told_of.items() if one["usec_per_call"] > LONGEST / 2}
    assert not slow
    assert told_of["cmdstat_hscan"]["calls"] > 400
    for backend in (busy, look):
        backend.close()
    assert own_server.client.keys("dl:*") == []


def test_the_broken_process_is_told_at_once_if_it_listens(redis_server: RedisServer) -> None:
    lost: list[str] = []
    name = f"product_{secrets.token_hex(4)}"
    mine = distlock.connect(
        redis_server.url, ttl=600.0, max_hold=600, on_lost=lambda grant, why: lost.append(why)
    )
    other = distlock.connect(redis_server.url, ttl=600.0)
    try:
        with other.lock(name):
            assert mine.lock(name).acquire(timeout=0.2) is None, "it has waited, and listens since"
        grant = mine.lock(name).acquire()
        assert grant is not None
        assert break_lock(other.namespace, other.inspect(name), by="ann")
        eventually(lambda: grant.lost, "the process is told long before its next renewal")
        eventually(lambda: len(lost) == 1, "so is the site")
    finally:
        mine.close()
        other.close()


@pytest.mark.parametrize(("lacks", "done"), [("publish", False), ("del", False), ("lpop", True)])
def test_who_may_not_break_a_lock_breaks_none_of_it(own_server: RedisServer, lacks: str, done: bool) -> None:
    own_server.tell("ACL", "SETUSER", "ann", "on", ">pw", "~*", "&*", "+@all", f"-{lacks}")
    holder, waiter = (distlock.connect(own_server.url, timeout=30) for _ in range(2))
    ann = distlock.connect(own_server.url.replace("//", "//ann:pw@"))
    got = threading.Thread(target=lambda: waiter.lock("product_1").acquire())
    try:
        grant = holder.lock("product_1").acquire()
        assert grant is not None
        got.start()
        eventually(lambda: ann.inspect("product_1").waiting == 1, "it waits")
        seen = ann.inspect("product_1")
        with nullcontext() if done else pytest.raises(BackendUnavailable, match=lacks.upper()):
            assert break_lock(ann.namespace, seen, by="ann")
        if not done:
            grant.check()
            assert holder.inspect("product_1").fence == seen.fence
            grant.release()
        got.join(30)
        assert not got.is_alive(), "the next one asks by itself"
    finally:
        for one in (holder, waiter, ann):
            one.close()


def test_processes_that_died_without_a_word_do_not_pile_up(redis_server: RedisServer) -> None:
    redis_server.client.hset("dl:2:processes", mapping={f"{number:016x}": 1 for number in range(1000)})
    one, key = RedisBackend(redis_server.url), f"shop:{secrets.token_hex(4)}"
    one.announce("web1", 1, [StatusRow(key, "", 1e9)], [], 60.0)
    assert redis_server.client.hkeys("dl:2:processes") == [one.process.encode()]
    one.close()
    assert redis_server.client.hkeys("dl:2:processes") == []


@pytest.mark.parametrize("written", ["nonsense", "1", "[1]"])
def test_what_another_program_wrote_there_is_an_error_that_says_so(
    redis_server: RedisServer, written: str
) -> None:
    one, key = RedisBackend(redis_server.url), f"shop:{secrets.token_hex(4)}"
    request = LockRequest(key, one.process + secrets.token_hex(16), 10.0, 1)
    for field in ("", key):
        one.announce("web1", 1, [StatusRow(key, "", 1e9)], [], 60.0)
        assert isinstance(one.request(request), Acquired)
        assert one.inspect(key).holder is not None
        redis_server.client.hset(f"dl:2:process:{one.process}", field, written)
        with pytest.raises(BackendUnavailable, match=r"published can.t be read"):
            one.inspect(key)
        with pytest.raises(BackendUnavailable, match=r"published can.t be read"):
            list(one.announced(key))
    one.release(request)
    one.close()


def test_an_expired_entry_is_not_shown_and_has_to_be_said_again(
    redis_server: RedisServer,
) -> None:
    one, key = RedisBackend(redis_server.url), f"shop:{secrets.token_hex(4)}"
    one.announce("web1", 1, [StatusRow(key, "", 1e9)], [], 60.0)
    redis_server.client.delete(f"dl:2:process:{one.process}")
    assert list(one.announced(key)) == []
    assert not one.announce("web1", 1, [], [], 60.0)
    one.close()
