"""TLS: on by the URL, verified without being asked to."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

import distlock
from distlock.errors import BackendUnavailable
from loadtest.servers.processes import free_port
from tests.backends.redis.contender import MakeContender, ask
from tests.backends.redis.tasks import hops
from tests.redis_server import RedisServer, running

__all__ = ["hops"]

server = contextmanager(running)


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
    assert two.sink.wait_for_notification(first.key)
    two.hold(second)


@pytest.mark.usefixtures("tls_server")
def test_a_lock_goes_where_a_client_of_the_site_speaks_tls(certificate: Path, tls_port: int) -> None:
    words = {"host": "127.0.0.1", "port": tls_port, "ssl": True, "ssl_min_version": ssl.TLSVersion.TLSv1_3}
    site = redis.Redis(**words, ssl_ca_certs=str(certificate), ssl_check_hostname=True)
    for location in (site, {**words, "ssl_ca_certs": certificate, "ssl_ciphers": "HIGH"}):
        locks = distlock.connect(location)
        with locks.lock("product_1"):
            assert site.keys("dl:2:*product_1*")
        locks.close()
    site.close()
    unknown = distlock.connect(redis.Redis(**words, ssl_check_hostname=True))
    with pytest.raises(BackendUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
        unknown.lock("product_1").acquire()


def test_a_url_says_which_versions_and_ciphers_will_do(
    certificate: Path, tls_port: int, contender: MakeContender
) -> None:
    files = ["--tls-cert-file", str(certificate), "--tls-key-file", str(certificate.with_name("key.pem"))]
    its = ["--tls-protocols", "TLSv1.2", "--tls-ciphers", "ECDHE-RSA-AES256-GCM-SHA384"]
    url = f"rediss://127.0.0.1:{tls_port}/0?ssl_ca_certs={certificate}"
    with server("--tls-port", str(tls_port), "--tls-auth-clients", "no", *files, *its):
        contender(f"{url}&ssl_min_version=TLSv1_2&ssl_ciphers=ECDHE-RSA-AES256-GCM-SHA384").hold(ask())
        for other in ("ssl_min_version=TLSv1_3", "ssl_ciphers=ECDHE-RSA-AES128-GCM-SHA256"):
            with pytest.raises(BackendUnavailable, match=r"SSL|TLS"):
                contender(f"{url}&{other}").request(ask())


@pytest.mark.attack("A38")
@pytest.mark.usefixtures("tls_server")
def test_a_certificate_that_nobody_vouches_for_is_refused(tls_port: int, contender: MakeContender) -> None:
    with pytest.raises(BackendUnavailable, match=r"CERTIFICATE_VERIFY_FAILED.*\?ssl_ca_certs=/path"):
        contender(f"rediss://127.0.0.1:{tls_port}/0").request(ask())


@pytest.mark.attack("A38")
@pytest.mark.usefixtures("tls_server")
def test_a_certificate_for_another_host_is_refused(
    certificate: Path, tls_port: int, contender: MakeContender
) -> None:
    with pytest.raises(BackendUnavailable, match=r"CERTIFICATE_VERIFY_FAILED.*Write a host that the cert"):
        contender(f"rediss://localhost:{tls_port}/0?ssl_ca_certs={certificate}").request(ask())


@pytest.mark.attack("A38", control=True)
def test_where_certificates_are_not_verified_an_impostor_is_told_the_password(
    certificate: Path, contender: MakeContender
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as pool:
        port = listening.getsockname()[1]

        def listen() -> bytes:
            connection, _ = listening.accept()
            with connection, context.wrap_socket(connection, server_side=True) as impostor:
                return impostor.recv(1000)

        heard = pool.submit(listen)
        with pytest.raises(BackendUnavailable):
            contender(f"rediss://:secret-of-the-site@127.0.0.1:{port}/0?ssl_cert_reqs=none").request(ask())
        assert b"secret-of-the-site" in heard.result(60)


@pytest.fixture
def expired(certificate: Path) -> Path:
    """Its key is that of *certificate*."""
    path = certificate.with_name("expired.pem")
    command = "openssl x509 -in cert.pem -signkey key.pem -days -1 -out expired.pem"
    subprocess.run(command.split(), cwd=certificate.parent, check=True, capture_output=True)
    return path


@pytest.mark.fault("F19")
def test_an_expired_certificate_is_told_with_its_remedy(
    certificate: Path, expired: Path, tls_port: int, contender: MakeContender
) -> None:
    files = ["--tls-cert-file", str(expired), "--tls-key-file", str(certificate.with_name("key.pem"))]
    with (
        server("--tls-port", str(tls_port), "--tls-auth-clients", "no", *files),
        pytest.raises(BackendUnavailable, match=r"expired.*Renew the certificate"),
    ):
        contender(f"rediss://127.0.0.1:{tls_port}/0?ssl_ca_certs={expired}").request(ask())


@pytest.mark.attack("A38")
def test_a_server_that_wants_a_certificate_is_never_a_reason_to_do_without_tls(
    certificate: Path, tls_port: int, contender: MakeContender
) -> None:
    key = certificate.with_name("key.pem")
    files = ["--tls-cert-file", str(certificate), "--tls-key-file", str(key)]
    url = f"rediss://127.0.0.1:{tls_port}/0?ssl_ca_certs={certificate}"
    with server("--tls-port", str(tls_port), "--tls-ca-cert-file", str(certificate), *files):
        with pytest.raises(BackendUnavailable, match=r"\?ssl_certfile=/path") as told:
            contender(url).request(ask())
        assert "redis://" not in str(told.value)
        contender(f"{url}&ssl_certfile={certificate}&ssl_keyfile={key}").hold(ask())


@pytest.mark.usefixtures("tls_server")
@pytest.mark.parametrize("name", ["ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile"])
def test_a_file_that_is_missing_is_named(name: str, tls_port: int, contender: MakeContender) -> None:
    with pytest.raises(BackendUnavailable, match=r"'/nope\.pem'\. Correct the path"):
        contender(f"rediss://127.0.0.1:{tls_port}/0?{name}=/nope.pem").request(ask())


@pytest.mark.usefixtures("tls_server")
@pytest.mark.parametrize("name", ["ssl_ca_certs", "ssl_certfile"])
def test_a_file_without_a_certificate_is_named(
    name: str, tls_port: int, tmp_path: Path, contender: MakeContender
) -> None:
    (tmp_path / "empty.pem").touch()
    with pytest.raises(BackendUnavailable, match=rf"{name} can't be used.*empty\.pem'\. Correct the path"):
        contender(f"rediss://127.0.0.1:{tls_port}/0?{name}={tmp_path / 'empty.pem'}").request(ask())


@pytest.mark.usefixtures("tls_server")
def test_a_url_without_tls_for_a_port_with_it_is_told(tls_port: int, contender: MakeContender) -> None:
    with pytest.raises(BackendUnavailable, match="rediss for redis"):
        contender(f"redis://127.0.0.1:{tls_port}").request(ask())


@pytest.mark.usefixtures("tls_server")
def test_an_event_loop_asks_under_tls_without_a_thread(
    certificate: Path, tls_port: int, hops: list[str]
) -> None:
    locks = distlock.connect(f"rediss://127.0.0.1:{tls_port}/0?ssl_ca_certs={certificate}")
    with locks.lock("warm_up"):
        pass
    hops.clear()

    async def main() -> None:
        for _ in range(3):
            grants = await asyncio.gather(*[locks.lock(f"product_{one}").aacquire() for one in range(20)])
            for grant in grants:
                assert grant is not None
                await grant.arelease()

    asyncio.run(main())
    locks.close()
    # On a busy machine what has not been answered in time is repeated in a thread.
    assert len(hops) <= 6, "of 120"
