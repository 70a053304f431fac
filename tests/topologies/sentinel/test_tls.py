"""TLS with the sentinels and with the primary, both verified without being asked to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from distlock.errors import BackendUnavailable
from loadtest.servers.processes import ChildProcess, free_port
from loadtest.servers.redis_servers import redis_responds
from tests.backends.redis.contender import ask
from tests.backends.redis.test_tls import certificate
from tests.redis_server import running
from tests.topologies.sentinel.contender import MakeContender, says_in_the_end

__all__ = ["certificate"]

#: No test lasts so long, seconds.
NEVER = 1000.0


class Ports(NamedTuple):
    """Those of TLS, and one of a sentinel without."""

    server: int
    sentinel: int
    plain: int


@pytest.fixture
def ports(certificate: Path, tmp_path: Path) -> Iterator[Ports]:
    one = Ports(*(free_port() for _ in range(3)))
    files = ["--tls-cert-file", str(certificate), "--tls-key-file", str(certificate.with_name("key.pem"))]
    tls = [
        *files,
        "--tls-ca-cert-file",
        str(certificate),
        "--tls-auth-clients",
        "no",
        "--tls-replication",
        "yes",
    ]
    settings = tmp_path / "sentinel.conf"
    settings.write_text(f"sentinel monitor shop 127.0.0.1 {one.server} 1\n")
    command = ["redis-server", str(settings), "--sentinel", "--bind", "127.0.0.1", *tls]
    for _ in running("--tls-port", str(one.server), *tls):
        child = ChildProcess(
            "sentinel",
            [*command, "--port", str(one.plain), "--tls-port", str(one.sentinel), "--dir", str(tmp_path)],
            tmp_path / "sentinel.log",
        )
        child.wait_until(lambda: redis_responds(one.plain))
        yield one
        child.stop()


def test_a_lock_is_taken_under_tls(ports: Ports, certificate: Path, contender: MakeContender) -> None:
    url = f"rediss+sentinel://127.0.0.1:{ports.sentinel}/shop?ssl_ca_certs={certificate}"
    one, two = contender(url), contender(url)
    held = ask()
    waiting = ask(held.key)
    one.hold(held)
    two.queue(waiting)
    assert one.release(held)
    assert two.sink.wait_for_notification(held.key)
    two.poll(waiting)


def test_a_certificate_that_is_not_known_is_told_at_once(ports: Ports, contender: MakeContender) -> None:
    # Not at the end of the call, which would be too late for this test.
    one = contender(f"rediss+sentinel://127.0.0.1:{ports.sentinel}/shop", io_timeout=NEVER)
    with pytest.raises(BackendUnavailable, match=r"VERIFY_FAILED.*\?ssl_ca_certs="):
        one.request(ask())


def test_sentinels_without_tls_are_told(ports: Ports, certificate: Path, contender: MakeContender) -> None:
    url = f"rediss+sentinel://127.0.0.1:{ports.plain}/shop?ssl_ca_certs={certificate}"
    says_in_the_end(
        contender(url, io_timeout=1.0), rf"none of its sentinels names it: 127.0.0.1:{ports.plain}"
    )
