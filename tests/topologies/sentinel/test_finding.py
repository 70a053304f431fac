"""The primary is found, or the error says why not and what to do."""

from __future__ import annotations

import gc
import socket
import threading
from functools import partial

import pytest

import distlock
from distlock.errors import BackendUnavailable
from loadtest.servers.processes import free_port
from loadtest.servers.redis_servers import PRIMARY_NAME, tell
from tests.backends.redis.contender import ask, some_key
from tests.backends.sentinel.liar import Liar
from tests.redis_server import RedisServer, eventually, own_server
from tests.topologies.sentinel.contender import MakeContender, SentinelContender, says_in_the_end
from tests.topologies.sentinel.watched import Calm, client

__all__ = ["own_server"]

SECRET = "s3cr3t-Pa55"
#: No test lasts so long, seconds.
NEVER = 1000.0


def at(*ports: int, name: str = PRIMARY_NAME, login: str = "", query: str = "") -> str:
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return f"redis+sentinel://{login}{hosts}/{name}{query}"


def test_a_lock_is_held_by_the_primary(shared: Calm, contender: MakeContender) -> None:
    one, key = contender(shared.url), some_key()
    one.hold(ask(key))
    assert client(shared.primary()).exists(f"dl:2:{{{key.replace(':', '%3A')}}}")


def test_a_sentinel_that_is_gone_and_one_that_hangs_are_passed_over(
    shared: Calm, contender: MakeContender
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = at(free_port(), mute.getsockname()[1], *shared.sentinels)
        contender(url, io_timeout=6.0).hold(ask())


def test_a_name_that_the_sentinels_do_not_know_is_told_at_once(
    shared: Calm, contender: MakeContender
) -> None:
    # They will not learn it: nobody waits until the end of the call, which would be too late for this test.
    one = contender(at(*shared.sentinels, name="other"), io_timeout=NEVER)
    says = r"says: ERR No such master.*Write the name that 'sentinel monitor' gives it into the URL"
    with pytest.raises(BackendUnavailable, match=says):
        one.request(ask())


def test_that_no_sentinel_can_be_reached_is_told_with_each_of_them(contender: MakeContender) -> None:
    ports = [free_port(), free_port()]
    one = contender(at(*ports), io_timeout=0.3)
    each = "; ".join(rf"127.0.0.1:{port} says: \[Errno 111\] Connection refused" for port in ports)
    says_in_the_end(one, rf"none of its sentinels names it: {each}. See whether the sentinels run")


def test_a_server_that_is_no_sentinel_is_told(own_server: RedisServer, contender: MakeContender) -> None:
    one = contender(at(own_server.port))
    with pytest.raises(BackendUnavailable, match=r"unknown command.*have to be those of sentinels"):
        one.request(ask())


def test_sentinels_that_want_a_password_are_given_theirs_and_no_error_shows_it(
    watched: Calm, contender: MakeContender
) -> None:
    for port in watched.sentinels:
        assert tell(port, "ACL", "SETUSER", "default", "resetpass", f">{SECRET}").startswith("+OK")
    for port in watched.servers:
        assert tell(port, "ACL", "SETUSER", "default", "resetpass", ">server").startswith("+OK")
    ports, login = tuple(watched.sentinels), ":server@"
    contender(at(*ports, login=login, query=f"?sentinel_password={SECRET}")).hold(ask())
    with pytest.raises(BackendUnavailable, match=r"Authentication required.*\?sentinel_password"):
        contender(at(*ports, login=login)).request(ask())
    with pytest.raises(BackendUnavailable, match=r"WRONGPASS.*Check sentinel_password") as told:
        contender(at(*ports, login=login, query=f"?sentinel_password={SECRET}2")).request(ask())
    assert SECRET not in f"{told.value}{told.value.__cause__}"
    with pytest.raises(BackendUnavailable, match=r"Put the password before the host of the URL"):
        contender(at(*ports, query=f"?sentinel_password={SECRET}")).request(ask())


def test_what_the_sentinels_call_the_primary_and_is_none_gets_no_lock(
    own_server: RedisServer, shared: Calm, contender: MakeContender
) -> None:
    """As where a sentinel has not heard of a failover: the server itself says what it is."""
    (replica, *_) = (port for port in shared.servers if port != shared.primary())
    liar = Liar(replica)
    one = contender(at(liar.port), io_timeout=0.3)
    says_in_the_end(one, rf"{replica} is not the primary")
    liar.close()


def test_a_client_that_is_closed_leaves_no_thread_and_no_connection(shared: Calm) -> None:
    before = set(threading.enumerate())
    locks = distlock.connect(shared.url, prefix="closed")
    with locks.lock("product_1"):
        ours = {thread.name for thread in set(threading.enumerate()) - before}
        assert ours >= {"distlock-maintenance", "distlock-redis-sentinel"}
    locks.close()
    # The one that has asked the sentinels may be about to end.
    eventually(lambda: set(threading.enumerate()) <= before, "its threads have ended")
    for port in (*shared.servers, *shared.sentinels):
        eventually(partial(knows_none, port), "the server has seen it")


def test_a_client_that_is_dropped_leaves_no_thread(shared: Calm) -> None:
    before = set(threading.enumerate())
    # Without the keeper, whose thread waits for more to do.
    dropped = SentinelContender(shared.url)
    held = ask()
    dropped.hold(held)
    assert dropped.release(held)
    assert "distlock-redis-sentinel" in {thread.name for thread in set(threading.enumerate()) - before}
    del dropped
    eventually(lambda: gc.collect() >= 0 and set(threading.enumerate()) <= before, "its thread has ended")


def knows_none(port: int) -> bool:
    return "name=distlock" not in tell(port, "CLIENT", "LIST")
