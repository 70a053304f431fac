"""TLS: on by the URL, verified without being asked to."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from distlock.errors import BackendUnavailable
from tests.backends.redis.contender import MakeContender, ask
from tests.redis_server import RedisServer, free_port, running


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -keyout key.pem -out cert.pem"
    subprocess.run(
        [*command.split(), "-addext", "subjectAltName=IP:127.0.0.1"],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    return folder / "cert.pem"


@pytest.fixture
def tls_port() -> int:
    return free_port()


@pytest.fixture
def tls_server(certificate: Path, tls_port: int) -> Iterator[RedisServer]:
    files = ["--tls-cert-file", str(certificate), "--tls-key-file", str(certificate.with_name("key.pem"))]
    yield from running("--tls-port", str(tls_port), "--tls-auth-clients", "no", *files)


@pytest.mark.usefixtures("tls_server")
def test_a_lock_goes_from_hand_to_hand_under_tls(
    certificate: Path, tls_port: int, contender: MakeContender
) -> None:
    url = f"rediss://127.0.0.1:{tls_port}/0?ssl_ca_certs={certificate}"
    one, two = contender(url), contender(url)
    first = ask()
    second = ask(first.key)
    one.hold(first)
    two.queue(second)
    assert one.release(first)
    assert two.sink.wait_for_hint(first.key)
    two.hold(second)


@pytest.mark.usefixtures("tls_server")
def test_a_certificate_that_nobody_vouches_for_is_refused(tls_port: int, contender: MakeContender) -> None:
    with pytest.raises(BackendUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
        contender(f"rediss://127.0.0.1:{tls_port}/0").request(ask())


@pytest.mark.usefixtures("tls_server")
def test_a_certificate_for_another_host_is_refused(
    certificate: Path, tls_port: int, contender: MakeContender
) -> None:
    with pytest.raises(BackendUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
        contender(f"rediss://localhost:{tls_port}/0?ssl_ca_certs={certificate}").request(ask())
