"""A login by SASL, in the place of ZooKeeper's own digest."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from puresasl.client import SASLClient

import distlock
from distlock.errors import BackendUnavailable, ConfigurationError
from tests.backends.zookeeper.contender import MakeContender, ask
from tests.redis_server import eventually
from tests.topologies.zookeeper.tls import documented
from tests.zookeeper_server import ZooKeeperServer, running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    jaas: Path = tmp_path_factory.mktemp("sasl") / "jaas.conf"
    jaas.write_text(documented("DigestLoginModule"))
    name, _, value = documented("authProvider.1").strip().partition("=")
    yield from running(f"-Djava.security.auth.login.config={jaas}", **{name: value})


def url_of(server: ZooKeeperServer, login: str) -> str:
    return f"{server.url.replace('://', f'://{login}@')}?sasl=DIGEST-MD5"


def test_a_lock_goes_from_hand_to_hand_and_nobody_else_can_touch_it(
    server: ZooKeeperServer, contender: MakeContender
) -> None:
    url = url_of(server, "shop:secret")
    one, two = contender(url, io_timeout=10.0), contender(url, io_timeout=10.0)
    first = ask()
    second = ask(first.key)
    one.hold(first)
    two.queue(second)
    assert one.release(first)
    two.until_held(second)
    for stranger in (server.url, server.url.replace("://", "://shop:secret@")):
        with pytest.raises(BackendUnavailable, match=r"Put the user:password@ that may use these nodes"):
            contender(stranger, io_timeout=10.0).request(ask(first.key))


def test_it_logs_in_again_when_the_connection_comes_back(
    server: ZooKeeperServer, contender: MakeContender
) -> None:
    one, mine = contender(url_of(server, "shop:secret"), io_timeout=20.0), ask()
    one.hold(mine)
    one.line().session.client.cut()
    assert one.renew([mine]) == [True]
    assert one.release(mine)


def test_a_wrong_password_is_told_and_not_shown(server: ZooKeeperServer, contender: MakeContender) -> None:
    one = contender(url_of(server, "shop:s3cr3t"), io_timeout=4.0)
    with pytest.raises(BackendUnavailable, match="Check the user and the password") as caught:
        one.request(ask())
    assert "s3cr3t" not in str(caught.value)


def test_a_server_without_sasl_is_told(zookeeper_server: ZooKeeperServer, contender: MakeContender) -> None:
    one = contender(url_of(zookeeper_server, "shop:secret"), io_timeout=10.0)
    with pytest.raises(BackendUnavailable, match="with sasl=, that the server has SASL"):
        one.request(ask())


def test_a_server_that_dies_while_we_log_in_again_does_not_end_the_session(
    server: ZooKeeperServer, contender: MakeContender, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, mine = contender(url_of(server, "shop:secret"), io_timeout=20.0), ask()
    one.hold(mine)
    wire = one.line().session.client
    steps: list[bytes | None] = []
    process = SASLClient.process

    def deaf_at_first(client: SASLClient, challenge: bytes | None = None) -> bytes:
        steps.append(challenge)
        if len(steps) == 1:
            wire._connection._socket.shutdown(socket.SHUT_RD)
        answer: bytes = process(client, challenge)
        return answer

    monkeypatch.setattr(SASLClient, "process", deaf_at_first)
    wire.cut()
    # The second attempt takes all steps of its own.
    eventually(lambda: len(steps) > 2 and wire.connected, "it is back")
    assert one.renew([mine]) == [True]


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("zookeeper://shop:s3cr3t@zk1?sasl=GSSAPI", "sasl has to be DIGEST-MD5"),
        ("zookeeper://zk1?sasl=DIGEST-MD5", "sasl needs user:password@"),
    ],
)
def test_what_is_not_offered_is_refused(url: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told) as caught:
        distlock.connect(url)
    assert "s3cr3t" not in str(caught.value)


def test_a_package_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distlock.backends.zookeeper.address.find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match="pip install pure-sasl"):
        distlock.connect("zookeeper://shop:secret@zk1?sasl=DIGEST-MD5")
