"""The whole kit, as one Redis server passes it."""

from __future__ import annotations

import pytest

from tests.backend_class import backend_class
from tests.backends.redis.test_conformance import *  # noqa: F403
from tests.topologies.valkey.conftest import ValkeyServer

RedisBackend = backend_class("redis://localhost")


@pytest.fixture
def url(valkey: ValkeyServer) -> str:
    return valkey.url


@pytest.fixture
def redis_server(valkey: ValkeyServer) -> ValkeyServer:
    return valkey


def test_it_is_no_redis(valkey: ValkeyServer) -> None:
    assert valkey.client.info("server")["server_name"] == "valkey"


def test_the_doctor_names_it(valkey: ValkeyServer) -> None:
    backend = RedisBackend(valkey.url)
    said = [finding.said for finding in backend.examine()]
    assert any(text.startswith("Valkey 9.") for text in said), said
    backend.close()
