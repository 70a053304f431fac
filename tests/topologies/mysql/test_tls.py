"""TLS: where the URL asks for it, the server's certificate is looked at."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import distlock
from loadtest.servers.databases import MARIADB_OPTIONS, WITHOUT_TLS, own_mariadb
from tests.topologies.mysql.asking import Connect, asked, prepare

CERTIFICATE = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -keyout key.pem -out cert.pem"


@pytest.fixture(scope="module")
def certificate() -> Iterator[Path]:
    # The server may run as another user, who can't look into a directory of pytest.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        names = ["-addext", "subjectAltName=IP:127.0.0.1"]
        subprocess.run([*CERTIFICATE.split(), *names], cwd=folder, check=True, capture_output=True)
        for path in (folder, *folder.iterdir()):
            path.chmod(0o755)
        yield folder / "cert.pem"


@pytest.fixture(scope="module")
def tls(certificate: Path) -> Iterator[str]:
    files = (f"--ssl-cert={certificate}", f"--ssl-key={certificate.with_name('key.pem')}")
    with own_mariadb((*MARIADB_OPTIONS, *files)) as running:
        prepare(running.url)
        # Nobody of these comes in without.
        asked(running.url, "CREATE USER secret@'%' REQUIRE SSL")
        asked(running.url, "GRANT SELECT, INSERT, UPDATE ON distlock_name TO secret@'%'")
        yield running.url.replace("shop@", "secret@").replace(WITHOUT_TLS, "")


@pytest.mark.parametrize("more", ["", "&ssl_verify_identity=true"])
def test_a_lock_is_taken_under_tls(tls: str, certificate: Path, connect: Connect, more: str) -> None:
    locks = connect(f"{tls}ssl_ca={certificate}{more}")
    with locks.lock("product_1"):
        # In a session of its own, which waits.
        assert connect(f"{tls}ssl_ca={certificate}").lock("product_1").acquire(timeout=0.1) is None


@pytest.mark.attack("A38")
def test_a_certificate_that_nobody_vouches_for_is_refused(tls: str, connect: Connect) -> None:
    with pytest.raises(distlock.BackendUnavailable, match="Check ssl_ca"):
        connect(f"{tls}ssl_verify_cert=true").lock("product_1").acquire()


def test_a_certificate_for_another_host_is_refused_where_that_is_asked_for(
    tls: str, certificate: Path, connect: Connect
) -> None:
    url = f"{tls.replace('127.0.0.1', 'localhost')}ssl_ca={certificate}"
    with connect(url).lock("product_1"):
        pass
    with pytest.raises(distlock.BackendUnavailable, match="the name of the host"):
        connect(f"{url}&ssl_verify_identity=true").lock("product_1").acquire()


def test_a_file_that_is_not_there_is_told_when_it_is_configured() -> None:
    with pytest.raises(distlock.ConfigurationError, match="Check ssl_ca"):
        distlock.connect("mysql://shop@localhost/shop?ssl_ca=/nowhere/ca.pem")
