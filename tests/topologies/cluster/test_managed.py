"""A cluster as a hosting company has it: TLS only, a user with the least rights, commands taken away."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from distlock.errors import BackendUnavailable
from loadtest.servers.processes import free_port
from loadtest.servers.redis_cluster import SLOTS
from tests.backends.redis.test_permissions import LEAST_RULES
from tests.docs.blocks import ROOT
from tests.redis_server import eventually
from tests.topologies.cluster.contender import MakeContender, ask, some_key
from tests.topologies.managed.conftest import ManagedServer, certificate

__all__ = ["certificate"]

PAGE = (ROOT / "docs/reference/backends/cluster.md").read_text("utf-8")
(BESIDE,) = re.findall(r"and `(\+\S+)`, on every node", PAGE)


@pytest.fixture(scope="module")
def server(certificate: Path) -> Iterator[ManagedServer]:
    """One node, which has all slots."""
    cluster = ["--cluster-enabled", "yes", "--tls-cluster", "yes", "--cluster-port", str(free_port())]
    cluster += ["--tls-ca-cert-file", str(certificate)]
    server = ManagedServer(certificate, *cluster)
    try:
        server.start()
        server.tell("CLUSTER", "ADDSLOTSRANGE", "0", str(SLOTS - 1))
        state = "cluster_state:ok"
        eventually(lambda: state in str(server.client.execute_command("CLUSTER", "INFO")), state)  # type: ignore[no-untyped-call]
        yield server
    finally:
        server.close()


@pytest.fixture
def url(server: ManagedServer) -> str:
    return server.url.replace("rediss://", "rediss+cluster://")


def test_the_documented_rights_are_enough(server: ManagedServer, url: str, contender: MakeContender) -> None:
    server.tell("ACL", "SETUSER", "shop", "on", ">secret", "-@all", *LEAST_RULES, BESIDE)
    key, one, two = some_key(), contender(url), contender(url)
    first, second = ask(key), ask(key)
    number = one.hold(first).number
    two.queue(second)
    assert one.renew([first]) == [True]
    assert one.release(first)
    assert two.sink.wait_for_notification(key)
    assert two.until_held(second).number > number
    assert server.client.execute_command("ACL", "LOG") == []  # type: ignore[no-untyped-call]


def test_without_the_one_beside_them_it_is_told(
    server: ManagedServer, url: str, contender: MakeContender
) -> None:
    server.tell("ACL", "SETUSER", "shop", "on", ">secret", "-@all", *LEAST_RULES)
    with pytest.raises(BackendUnavailable, match="page 'The redis backend'"):
        contender(url).request(ask())
