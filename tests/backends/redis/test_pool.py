"""Connections: bounded, clean, replaced when they break, and nobody else's."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from distlock import clock
from distlock.errors import BackendUnavailable
from tests.backends.redis.contender import Contender, MakeContender, ask, some_key
from tests.redis_server import PATIENCE, RedisServer, eventually
from tests.stored import command


class Interrupt(BaseException):
    pass


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    def interrupt(number: int, frame: object) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def connections(server: RedisServer, name: str) -> int:
    return sum(client["name"] == name for client in server.client.client_list())


def test_nothing_is_connected_before_the_first_request(
    own_server: RedisServer, contender: MakeContender
) -> None:
    one = contender(own_server.url, client_name="one")
    assert connections(own_server, "one") == 0
    one.hold(ask())
    assert connections(own_server, "one") == 1


def test_one_connection_serves_all_requests_of_a_thread(
    own_server: RedisServer, contender: MakeContender
) -> None:
    one = contender(own_server.url, client_name="one")
    for _ in range(20):
        mine = ask()
        one.hold(mine)
        one.release(mine)
    assert connections(own_server, "one") == 1


def test_a_request_that_was_interrupted_poisons_no_other(
    own_server: RedisServer, contender: MakeContender
) -> None:
    one = contender(own_server.url, client_name="one")
    first, second = ask(), ask()
    one.hold(ask())
    own_server.pause()
    with pytest.raises(Interrupt), interrupted_after(0.1):
        one.request(first)
    own_server.resume()
    # Had the reply to the first been left in the pool, its echo would be found here.
    assert one.hold(second).number
    assert one.hold(first).number
    eventually(lambda: connections(own_server, "one") == 1, "the interrupted connection is gone")


def interrupted_at(number: int, one: Contender) -> bool:
    """Whether there was such a moment: a call of C that returns, in the pool and in what its locks are of."""
    moments = 0

    def look(frame: FrameType, event: str, _: Any) -> None:
        nonlocal moments
        if event == "c_return" and frame.f_code.co_filename.endswith(("/pool.py", "/threading.py")):
            moments += 1
            if moments == number:
                sys.setprofile(None)
                raise Interrupt

    one._pool.clear()
    sys.setprofile(look)
    try:
        one.locked("test:product_1")
    except Interrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


def test_a_request_that_was_interrupted_anywhere_in_the_pool_stops_no_other_thread(
    own_server: RedisServer, contender: MakeContender
) -> None:
    one = contender(own_server.url)
    for number in itertools.count(1):
        interrupted = interrupted_at(number, one)
        # A connection of its own, so that the other thread comes to the pool's mutex.
        one._pool.clear()
        other = threading.Thread(target=one.locked, args=("test:product_1",), daemon=True)
        other.start()
        other.join(PATIENCE)
        assert not other.is_alive(), f"it waits since the interrupt at moment {number}"
        if not interrupted:
            break
    assert number > 3, "is anything traced?"


def test_a_reply_that_answers_another_is_not_believed(
    own_server: RedisServer, contender: MakeContender
) -> None:
    one = contender(own_server.url)
    first, second = ask(), ask()
    one.hold(first)
    stray = one._pool._idle[-1]
    stray.send(command("EVAL", "return {'a token of somebody else', 1, '5'}", 0), clock.now() + PATIENCE)
    with pytest.raises(BackendUnavailable, match="nothing had asked for"):
        one.request(second)
    one.hold(second)


def test_dead_connections_are_replaced_without_an_error(
    own_server: RedisServer, contender: MakeContender
) -> None:
    one = contender(own_server.url)
    first = ask()
    for call in (one.hold, one.hold, one.cancel, one.release):
        own_server.client.client_kill_filter(_type="normal", skipme=True)
        assert call(first)
    own_server.client.client_kill_filter(_type="normal", skipme=True)
    assert not one.locked(first.key)


def test_no_more_connections_than_allowed_and_the_rest_waits_its_turn(
    own_server: RedisServer, contender: MakeContender
) -> None:
    one = contender(own_server.url, max_connections=2, client_name="one")
    barrier = threading.Barrier(16)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            barrier.wait()
            for _ in range(50):
                mine = ask()
                one.hold(mine)
                assert one.release(mine)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert connections(own_server, "one") == 2


def test_who_gets_no_connection_in_time_is_told_the_option(
    own_server: RedisServer, contender: MakeContender
) -> None:
    one = contender(own_server.url, max_connections=1, io_timeout=1.0)
    one.hold(ask())
    borrowed, _ = one._pool._borrow(clock.now() + PATIENCE)
    with pytest.raises(BackendUnavailable, match="max_connections"):
        one.request(ask())
    one._pool._discard(borrowed)
    one.hold(ask())


def test_a_closed_client_leaves_the_queue_and_the_server(
    own_server: RedisServer, contender: MakeContender
) -> None:
    key = some_key()
    one = contender(own_server.url)
    two = contender(own_server.url, client_name="two")
    first = ask(key)
    one.hold(first)
    before = set(threading.enumerate())
    two.queue(ask(key))
    assert connections(own_server, "two") == 2
    (listener,) = [thread for thread in threading.enumerate() if thread not in before]
    two.close()
    assert not listener.is_alive()
    eventually(lambda: connections(own_server, "two") == 0, "it is disconnected")
    one.release(first)
    assert not one.locked(key)
    # It may be used again.
    two.hold(ask(key))


def test_a_backend_closes_while_the_server_hangs(own_server: RedisServer, contender: MakeContender) -> None:
    key = some_key()
    one, two = contender(own_server.url), contender(own_server.url, io_timeout=0.5)
    one.hold(ask(key))
    before = set(threading.enumerate())
    two.queue(ask(key))
    assert set(threading.enumerate()) - before
    own_server.pause()
    try:
        began = clock.now()
        two.close()
        # Each cancel by itself would take io_timeout, and without a bound it would be for ever.
        assert clock.now() - began < PATIENCE
        assert not set(threading.enumerate()) - before
    finally:
        own_server.resume()


@pytest.mark.fault("F07")
def test_a_forked_child_is_another_contender_with_connections_of_its_own(
    own_server: RedisServer, contender: MakeContender
) -> None:
    key = some_key()
    one, two = contender(own_server.url), contender(own_server.url)
    first, second = ask(key), ask(key)
    one.hold(first)
    two.queue(second)
    pid = os.fork()
    if pid == 0:
        os._exit(child(two, key))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    # The parent's connections, subscription and place are as they were.
    assert one.release(first)
    assert two.sink.wait_for_notification(key)
    two.hold(second)
    assert two.release(second)


def child(inherited: Contender, key: str) -> int:
    """What the child does. Returns 0 if all is well; pytest is not there to catch anything."""
    try:
        process = inherited.process
        inherited.after_fork()
        assert inherited.process != process
        other, mine = ask(), ask(key)
        inherited.hold(other)
        inherited.queue(mine)
        assert inherited.cancel(mine) is False
        assert inherited.release(other)
        inherited.close()
    except BaseException:
        return 1
    return 0


def next_probe(server: RedisServer, name: str) -> float:
    """Return the seconds until the kernel probes the connection of the client *name*, as that has set it."""
    (client,) = (client for client in server.client.client_list() if client["name"] == name)
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ends = [f":{int(client['addr'].rpartition(':')[2]):04X}", f":{server.port:04X}"]
    (timer,) = (row[5] for row in rows if [end[-5:] for end in row[1:3]] == ends)
    assert timer.startswith("02:")  # The timer that runs is that of keepalive.
    return int(timer[3:], 16) / 100


@pytest.mark.parametrize(("query", "most"), [("", 30.0), ("?keepalives_idle=9", 9.0)])
def test_the_kernel_probes_an_idle_connection(
    query: str, most: float, own_server: RedisServer, contender: MakeContender
) -> None:
    contender(own_server.url + query, client_name="one").hold(ask())
    assert next_probe(own_server, "one") <= most


@pytest.mark.fault("F07", control=True)
def test_a_forked_child_that_has_the_token_of_its_parent_releases_the_parents_lock(
    own_server: RedisServer,
) -> None:
    """As a client does whose locks know nothing of forks."""
    lock = own_server.client.lock("product_1", timeout=60)
    assert lock.acquire()
    if (pid := os.fork()) == 0:
        try:
            lock.release()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    # The parent believes that it is inside, and another comes in.
    assert lock.local.token
    assert own_server.client.lock("product_1", timeout=60).acquire(blocking=False)
