"""Servers that are killed, stopped, wiped and restarted under those that hold and those that ask."""

from __future__ import annotations

import threading

import pytest

import distlock
from distlock import clock
from distlock.backends.base import Acquired, LockRequest
from distlock.errors import BackendUnavailable
from distlock.testing.protocol_fixtures import Contender, ask
from tests.backend_class import backend_class
from tests.backends.redis.proxy import Proxy
from tests.redis_server import RedisServer, eventually
from tests.stored import hold_key, is_free
from tests.topologies.redlock.contender import MakeContender
from tests.topologies.redlock.five import Five, url_of

RedlockBackend = backend_class("redlock://a,b,c")

#: How many locks are taken where each might cost a time-out.
MANY = 20
#: A time-out that no test outlives, seconds: what waits for a server that stands still is late.
LONG = 30.0


def test_it_goes_on_without_two_of_five(own_five: Five, contender: MakeContender, key: str) -> None:
    one, two = contender(own_five.url), contender(own_five.url)
    before = ask(key)
    one.held(before)
    own_five[0].kill()
    own_five[3].kill()
    assert one.backend.renew([before]) == [True]
    two.queued(ask(key))
    assert one.backend.release(before)
    after = ask(key)
    two.held(after)
    assert two.backend.renew([after]) == [True]
    assert two.backend.release(after)
    assert not one.backend.locked(key)


@pytest.mark.fault("F25")
def test_without_three_of_five_it_says_which_and_why_and_comes_back_with_them(
    own_five: Five, contender: MakeContender, key: str
) -> None:
    one = contender(own_five.url)
    mine = ask(key)
    one.held(mine)
    away, up = own_five[:3], own_five[3:]
    for server in away:
        server.kill()
    calls = (
        lambda: one.backend.request(ask(key)),
        lambda: one.backend.renew([mine]),
        lambda: one.backend.release(mine),
        lambda: one.backend.locked(key),
        lambda: one.backend.cancel(ask(key)),
        lambda: one.backend.raise_fence(mine, 1),
    )
    for call in calls:
        with pytest.raises(BackendUnavailable, match="A majority of the 5 Redlock servers can't be") as told:
            call()
        for server in away:
            assert f"127.0.0.1:{server.port} can't be used: " in str(told.value)
        for server in up:
            assert str(server.port) not in str(told.value)
    for server in away:
        server.start()
    # They have lost all, and the two that were up have not.
    eventually(lambda: takes(one, f"{key}_other"), "a lock is granted again")


def takes(one: Contender, key: str) -> bool:
    try:
        return isinstance(one.backend.request(ask(key)), Acquired)
    except BackendUnavailable:
        return False


def renewed(one: Contender, mine: LockRequest) -> bool | None:
    try:
        return one.backend.renew([mine])[0]
    except BackendUnavailable:
        # Those that came back may not have been asked again.
        return None


@pytest.mark.fault("F25")
def test_a_server_that_stands_still_is_not_waited_for(
    own_five: Five, contender: MakeContender, key: str
) -> None:
    one, two = contender(own_five.url, io_timeout=LONG), contender(own_five.url, io_timeout=LONG)
    own_five[1].pause()
    try:
        began = clock.now()
        for _ in range(MANY):
            mine = ask(key)
            one.held(mine)
            two.queued(ask(key))
            assert one.backend.renew([mine]) == [True]
            assert one.backend.locked(key)
            assert one.backend.release(mine)
        assert clock.now() - began < LONG
    finally:
        own_five[1].resume()


class SlowServers(RedlockBackend):
    """The servers of *five* stand still for *pause* seconds whenever a call begins to wait for them."""

    five: Five
    pause = 0.0
    #: A server that goes on before it has stood still would be waited for without end.
    signalling = threading.Lock()

    def _by(self, deadline: float) -> float:
        if self.pause:
            with self.signalling:
                for server in self.five:
                    server.pause()
            threading.Timer(self.pause, self.resume).start()
        return super()._by(deadline)

    def resume(self) -> None:
        with self.signalling:
            for server in self.five:
                server.resume()


def test_a_request_of_a_lost_hold_takes_at_most_twice_the_time_of_an_answer(
    own_five: Five, contender: MakeContender, key: str
) -> None:
    one, mine = contender(own_five.url, SlowServers, io_timeout=1.0), ask(key)
    one.held(mine)
    for server in own_five:
        server.client.flushall()
    assert isinstance(one.backend, SlowServers)
    one.backend.five, one.backend.pause = own_five, 0.9
    began = clock.now()
    one.backend.request(mine)
    assert clock.now() - began < 2.4
    one.backend.pause = 0.0
    eventually(lambda: takes(one, f"{key}_other"), "a lock is granted again")


def test_three_servers_that_stand_still_are_an_error_and_none_when_they_go_on(
    own_five: Five, contender: MakeContender, key: str
) -> None:
    one = contender(own_five.url, io_timeout=0.5)
    for server in own_five[:3]:
        server.pause()
    try:
        for _ in range(3):
            with pytest.raises(BackendUnavailable, match="did not answer in time"):
                one.backend.request(ask(key))
    finally:
        for server in own_five[:3]:
            server.resume()
    eventually(lambda: takes(one, f"{key}_other"), "a lock is granted again")


@pytest.mark.fault("F18")
def test_a_server_that_comes_back_gives_back_what_nobody_wants_any_more(
    own_five: Five, contender: MakeContender, key: str
) -> None:
    first, way = own_five[0], Proxy(own_five[0].port)
    one = contender(url_of([way.port, *(server.port for server in own_five[1:])]))
    mine = ask(key, ttl=1000.0)
    assert isinstance(one.backend, RedlockBackend)
    try:
        one.held(mine)
        eventually(lambda: is_held_on(first, key), "the first one has granted it, too")
        way.hold(replies=False, new=True)
        assert one.backend.release(mine)
        pending = one.backend._servers[0]._pending_releases
        eventually(lambda: bool(pending), "the release was not answered")
        # It never arrives.
        way.fail_over(first.port)
        assert is_held_on(first, key)

        def is_given_back() -> bool:
            one.backend.locked(key)
            return not is_held_on(first, key)

        eventually(is_given_back, "it is given back")
    finally:
        way.close()


def test_a_server_that_comes_back_during_close_leaves_no_thread(
    own_five: Five, contender: MakeContender, key: str
) -> None:
    first, before = own_five[0], workers()
    one = contender(own_five.url, io_timeout=LONG)
    mine, other = ask(key), ask(f"{key}_other")
    one.held(mine)
    one.held(other)
    eventually(lambda: is_held_on(first, key), "the first one has granted it, too")
    first.kill()
    assert one.backend.release(mine)
    # This waits for all servers, and the first one is asked after the release that it did not get.
    assert one.backend.inspect(key).holder is None
    first.start()
    first.pause()
    closing = threading.Thread(target=one.backend.close)
    try:
        # It asks the first one, too, and does not wait for it.
        assert one.backend.release(other)
        busy = workers()
        closing.start()
        eventually(lambda: busy - workers(), "workers without a call have ended")
    finally:
        first.resume()
    closing.join()
    eventually(lambda: workers() <= before, "all workers have ended")


def test_a_worker_whose_start_is_interrupted_ends(
    five: Five, contender: MakeContender, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, before, start = contender(five.url), workers(), threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        if thread.name == "distlock-redlock":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            one.backend.request(ask(key))
    eventually(lambda: workers() <= before, "the worker has ended")
    mine = ask(key)
    one.held(mine)
    assert one.backend.release(mine)


def workers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "distlock-redlock"}


def is_held_on(server: RedisServer, key: str) -> bool:
    return not is_free(server.client.get(hold_key(key)))


def test_a_lock_outlives_the_data_of_two_servers_and_not_that_of_three(
    own_five: Five, contender: MakeContender, key: str
) -> None:
    one, two = contender(own_five.url), contender(own_five.url)
    mine, other = ask(key), ask(key)
    number = one.held(mine).number
    eventually(lambda: all(is_held_on(server, key) for server in own_five), "all have granted it")
    for server in own_five[:2]:
        server.client.flushall()
    two.queued(other)
    assert one.backend.renew([mine]) == [True]
    own_five[2].client.flushall()
    assert one.backend.renew([mine]) == [False]
    assert two.until_held(other).number > number
    assert one.backend.release(mine) is False


def test_a_holder_without_a_majority_is_told_before_its_lease_ends(own_five: Five, key: str) -> None:
    told: list[str] = []
    locks = distlock.connect(own_five.url, ttl=1.0, on_lost=lambda grant, why: told.append(why))
    try:
        grant = locks.lock(key).acquire()
        assert grant is not None
        for server in own_five[:3]:
            server.kill()
        eventually(lambda: bool(told), "the loss is told")
        assert grant.lost
        assert "lease ended" in told[0]
    finally:
        locks.close()


def test_a_restart_that_forgets_lets_two_in_and_the_later_one_has_the_larger_fence(
    own_five: Five, contender: MakeContender, key: str
) -> None:
    """What Redlock does not promise, and what is promised all the same."""
    one, two = contender(own_five.url), contender(own_five.url)
    for server in own_five[3:]:
        server.kill()
    mine, other = ask(key), ask(key)
    first = one.held(mine).number
    for server in own_five[3:]:
        server.start()
    own_five[2].restart()
    assert two.until_held(other).number > first
    eventually(lambda: renewed(one, mine) is False, "the first one knows that it is not the holder any more")
    assert two.backend.renew([other]) == [True]
