"""The whole kit over TLS, with a certificate of the client, a login that owns what it makes, and a path."""

from __future__ import annotations

import pytest

from tests.backends.zookeeper.test_conformance import *  # noqa: F403
from tests.topologies.zookeeper.tls import TlsZooKeeperServer


@pytest.fixture
def url(tls_zookeeper: TlsZooKeeperServer) -> str:
    return tls_zookeeper.url


@pytest.fixture
def zookeeper_server(tls_zookeeper: TlsZooKeeperServer) -> TlsZooKeeperServer:
    return tls_zookeeper
