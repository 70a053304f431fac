"""The server is away, hangs, or refuses us: an error that says so, in time, without secrets."""

from __future__ import annotations

import contextlib
import logging
import socket
import time
import traceback
from collections.abc import Iterator

import pytest
from kazoo.security import make_digest_acl

import distlock
from distlock.errors import BackendUnavailable, ConfigurationError
from tests.backend_class import new_backend
from tests.backends.zookeeper.contender import MakeContender, ask, some_key
from tests.redis_server import eventually
from tests.stored import FOLDER, lock_path
from tests.zookeeper_server import CHROOT, ZooKeeperServer, running

SECRET = "s3cr3t-Pa55"
#: A busy machine needs no longer for what has io_timeout=1, seconds. Without that some of it would never end.
LATE = 8.0


@contextlib.contextmanager
def takes(least: float, most: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert least < time.monotonic() - began < most


def whole_story(error: BaseException) -> str:
    """All that a log or an error tracker would show of *error*."""
    return "".join(traceback.format_exception(error))


def test_no_server_is_told_at_the_first_request_and_not_before(contender: MakeContender) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        one = contender(f"zookeeper://127.0.0.1:{port}", io_timeout=1.0)
        told = rf"127\.0\.0\.1:{port} opened no session.*refused.*See whether it runs"
        with takes(0.9, LATE), pytest.raises(BackendUnavailable, match=told):
            one.request(ask())
        with takes(0.9, LATE), pytest.raises(BackendUnavailable):
            one.locked("product_1")
        with takes(0.9, LATE), pytest.raises(BackendUnavailable):
            one.renew([ask()])
        with takes(0.0, LATE):
            one.close()


def test_an_unknown_host_is_told(contender: MakeContender) -> None:
    one = contender(f"zookeeper://shop:{SECRET}@no-such-host.invalid", io_timeout=0.5)
    with pytest.raises(BackendUnavailable, match=r"no-such-host\.invalid.*Check the host") as caught:
        one.request(ask())
    assert SECRET not in whole_story(caught.value)


def test_a_host_that_accepts_and_says_nothing_is_told(contender: MakeContender) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        one = contender(f"zookeeper://127.0.0.1:{silent.getsockname()[1]}", io_timeout=1.0)
        with takes(0.9, LATE), pytest.raises(BackendUnavailable, match=r"opened no session within 1 s"):
            one.request(ask(ttl=2.0))
        with takes(0.0, LATE):
            one.close()


def test_one_server_of_several_is_enough(zookeeper_server: ZooKeeperServer, contender: MakeContender) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        hosts = f"127.0.0.1:{taken.getsockname()[1]},127.0.0.1:{zookeeper_server.port}"
        one = contender(f"zookeeper://{hosts}/tests")
        mine = ask()
        one.hold(mine)
        assert one.release(mine)


def test_a_server_that_hangs_is_told_within_io_timeout_and_serves_again_afterwards(
    own_zookeeper: ZooKeeperServer, contender: MakeContender
) -> None:
    key, one = some_key(), contender(own_zookeeper.url, io_timeout=1.0)
    first = ask(key)
    one.hold(first)
    own_zookeeper.pause()
    for call in (lambda: one.request(ask(key)), lambda: one.renew([first]), lambda: one.locked(key)):
        # The connection is given up meanwhile, and the next one is not answered either.
        with (
            takes(0.9, LATE),
            pytest.raises(BackendUnavailable, match=r"within 1 s|within [01]\.\d+ s|ConnectionLoss"),
        ):
            call()
    own_zookeeper.resume()
    eventually(lambda: one.renew([first]) == [True], "it is still held")
    assert one.release(first)


def test_a_client_can_be_closed_while_the_server_hangs(
    own_zookeeper: ZooKeeperServer, contender: MakeContender
) -> None:
    one = contender(own_zookeeper.url, io_timeout=1.0)
    one.hold(ask())
    own_zookeeper.pause()
    with takes(0.9, LATE):
        one.close()
    own_zookeeper.resume()


def test_a_chroot_is_made_where_it_is_missing(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    one, path = contender(f"{zookeeper_server.url}/new/shop%20two"), "/tests/new/shop two"
    assert zookeeper_server.admin.exists(path) is None
    mine = ask()
    one.hold(mine)
    assert one.release(mine)
    assert zookeeper_server.admin.exists(path) is not None


def test_a_chroot_without_rights_is_told(zookeeper_server: ZooKeeperServer, contender: MakeContender) -> None:
    theirs = [make_digest_acl("somebody", "else", all=True)]
    zookeeper_server.admin.create("/closed", acl=theirs)
    for login in ("", f"shop:{SECRET}@"):
        one = contender(f"zookeeper://{login}127.0.0.1:{zookeeper_server.port}/closed/shop")
        with pytest.raises(BackendUnavailable, match=r"/closed/shop can't be used.*setAcl") as caught:
            one.request(ask())
        assert SECRET not in whole_story(caught.value)


def test_a_folder_of_somebody_elses_is_told_at_once(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    hosts = f"127.0.0.1:{zookeeper_server.port}"
    contender(f"zookeeper://shop:{SECRET}@{hosts}/theirs").hold(ask())
    one = contender(f"zookeeper://{hosts}/theirs", io_timeout=30.0)
    one.connect()
    # Neither the lock nor its node is there: trying it again and again would not make it.
    with takes(0.0, LATE), pytest.raises(BackendUnavailable, match="user:password"):
        one.request(ask())


@pytest.mark.attack("A39")
def test_with_a_login_nobody_else_can_touch_the_locks(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    hosts, key = f"127.0.0.1:{zookeeper_server.port}", some_key()
    one, mine = contender(f"zookeeper://shop:{SECRET}@{hosts}/logins"), ask(key)
    one.hold(mine)
    for login in ("", "shop:wrong@"):
        other = contender(f"zookeeper://{login}{hosts}/logins")
        with pytest.raises(BackendUnavailable, match="user:password"):
            other.request(ask(key))
    two, second = contender(f"zookeeper://shop:{SECRET}@{hosts}/logins"), ask(key)
    two.queue(second)
    assert one.release(mine)
    assert two.sink.wait_for_notification(key)
    two.hold(second)


@pytest.mark.attack("A39", control=True)
def test_without_a_login_another_user_takes_the_node_away_and_two_hold_the_lock(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    key = some_key()
    one, two = contender(zookeeper_server.url), contender(zookeeper_server.url)
    one.hold(ask(key))
    [node] = zookeeper_server.children(key)
    zookeeper_server.admin.delete(f"{lock_path(f'{CHROOT}/{FOLDER}', key)}/{node}")
    two.hold(ask(key))


@pytest.mark.attack("A37")
def test_the_password_is_in_no_log(
    zookeeper_server: ZooKeeperServer, contender: MakeContender, caplog: pytest.LogCaptureFixture
) -> None:
    hosts = f"127.0.0.1:{zookeeper_server.port}"
    with caplog.at_level(1), caplog.at_level(1, "distlock"), caplog.at_level(1, "kazoo"):
        one, mine = contender(f"zookeeper://shop:{SECRET}@{hosts}/logins"), ask()
        one.hold(mine)
        one.release(mine)
    assert "Sending request" in caplog.text
    assert SECRET not in caplog.text
    assert one.line().session.client.client_id[1].hex() not in caplog.text


def test_sessions_that_are_longer_than_the_ttl_are_warned_of(
    contender: MakeContender, caplog: pytest.LogCaptureFixture
) -> None:
    for server in running(minSessionTimeout=20000):
        with caplog.at_level(logging.WARNING, "distlock"):
            contender(server.url).hold(ask(ttl=5.0))
        assert "sessions of 20 s at least" in caplog.text


@pytest.mark.parametrize("options", [{"io_timeout": 0}, {"ack_window": "1"}, {"ack_window": True}])
def test_options_that_cannot_work_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match="number of seconds"):
        distlock.connect("zookeeper://127.0.0.1", **options)


def test_nothing_is_connected_before_the_first_request() -> None:
    assert (
        repr(new_backend(f"zookeeper://shop:{SECRET}@zk1,zk2/shop"))
        == "<ZooKeeperBackend zk1:2181,zk2:2181/shop>"
    )
