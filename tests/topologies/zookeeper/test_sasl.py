"""A login by SASL, in the place of ZooKeeper's own digest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from distlock.backends.zookeeper.address import Address
from distlock.errors import BackendUnavailable, ConfigurationError
from tests.backends.zookeeper.contender import MakeContender, ask
from tests.zookeeper_server import ZooKeeperServer, running

JAAS = """\
Server {
    org.apache.zookeeper.server.auth.DigestLoginModule required user_shop="secret";
};
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    jaas: Path = tmp_path_factory.mktemp("sasl") / "jaas.conf"
    jaas.write_text(JAAS)
    provider = {"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
    yield from running(f"-Djava.security.auth.login.config={jaas}", **provider)


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
        with pytest.raises(BackendUnavailable, match=r"Put user:password@ in the URL"):
            contender(stranger, io_timeout=10.0).request(ask(first.key))


def test_it_logs_in_again_when_the_connection_comes_back(
    server: ZooKeeperServer, contender: MakeContender
) -> None:
    one, mine = contender(url_of(server, "shop:secret"), io_timeout=20.0), ask()
    one.hold(mine)
    one.line().session.wire.cut()
    assert one.renew([mine]) == [True]
    assert one.release(mine)


def test_a_wrong_password_is_told_and_not_shown(server: ZooKeeperServer, contender: MakeContender) -> None:
    one = contender(url_of(server, "shop:s3cr3t"), io_timeout=4.0)
    with pytest.raises(BackendUnavailable, match="Check the user and the password") as caught:
        one.request(ask())
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("zookeeper://shop:s3cr3t@zk1?sasl=GSSAPI", "sasl has to be DIGEST-MD5"),
        ("zookeeper://zk1?sasl=DIGEST-MD5", "sasl needs user:password@"),
    ],
)
def test_what_is_not_offered_is_refused(url: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told) as caught:
        Address(url)
    assert "s3cr3t" not in str(caught.value)
