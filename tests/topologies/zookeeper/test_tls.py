"""TLS: on by the URL, verified without being asked to; and what is told where it can't be spoken."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from kazoo.protocol.serialization import Exists

import distlock
from distlock.errors import BackendUnavailable
from tests.backends.zookeeper.contender import MakeContender, ask
from tests.redis_server import eventually
from tests.topologies.zookeeper.tls import TlsZooKeeperServer, certificate
from tests.zookeeper_server import CHROOT

#: Long enough for a handshake on a busy machine, seconds.
PATIENT = 4.0


def test_a_lock_goes_from_hand_to_hand(tls_zookeeper: TlsZooKeeperServer, contender: MakeContender) -> None:
    one, two = contender(tls_zookeeper.url, io_timeout=10.0), contender(tls_zookeeper.url, io_timeout=10.0)
    first = ask()
    second = ask(first.key)
    one.hold(first)
    two.queue(second)
    assert one.release(first)
    two.until_held(second)


def test_threads_of_one_session_write_and_read_at_once(tls_zookeeper: TlsZooKeeperServer) -> None:
    locks = distlock.connect(tls_zookeeper.url, prefix="tls", timeout=60, io_timeout=20)
    inside, most = [0], [0]
    counting = threading.Lock()

    def sell(product: int) -> None:
        for _ in range(60):
            with locks.lock(f"product_{product % 4}"), counting:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1

    with ThreadPoolExecutor(12) as pool:
        for done in [pool.submit(sell, number) for number in range(12)]:
            done.result(120)
    assert not any(locks.lock(f"product_{number}").locked() for number in range(4))
    locks.close()


def test_more_than_a_record_is_read_and_written(tls_zookeeper: TlsZooKeeperServer) -> None:
    locks = distlock.connect(tls_zookeeper.url, prefix="many", timeout=60, io_timeout=20)
    names = [f"product_{number}_{'x' * 150}" for number in range(200)]
    with locks.lock(*names):
        # Each process says now and then what it holds.
        eventually(lambda: len(list(locks.list("product_"))) == len(names), "all are listed")
    locks.close()


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("", "self-signed certificate.*Name the authority that signed its certificate in the URL"),
        ("?ssl_ca_certs={nowhere}", r"No such file or directory: '{nowhere}'\. Correct the path in the URL"),
        ("?ssl_ca_certs={other}", "CERTIFICATE_VERIFY_FAILED.*Name the authority that signed"),
        ("?ssl_ca_certs={authority}", "ALERT.*name yours in the URL, .ssl_certfile="),
    ],
    ids=["nothing", "no file", "another authority", "no certificate of ours"],
)
def test_what_is_wrong_is_told_with_what_to_write(
    tls_zookeeper: TlsZooKeeperServer, tmp_path: Path, contender: MakeContender, query: str, told: str
) -> None:
    files = {
        "nowhere": tmp_path / "nowhere.pem",
        "other": certificate(tmp_path, "other").with_suffix(".crt"),
        "authority": tls_zookeeper.certificate.with_suffix(".crt"),
    }
    one = contender(tls_zookeeper.tls_url + query.format(**files), io_timeout=PATIENT)
    with pytest.raises(BackendUnavailable, match=told.format(**files)) as caught:
        one.request(ask())
    assert "secret" not in str(caught.value)


def test_an_expired_certificate_is_told(tmp_path: Path, contender: MakeContender) -> None:
    certificate(tmp_path, "once")
    made = "openssl x509 -in once.crt -signkey once.key -days -1 -out expired.crt"
    subprocess.run(made.split(), cwd=tmp_path, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "expired.crt", tmp_path / "once.key")

    def shake_hands() -> None:
        # Until the test closes it.
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, suppress(OSError), context.wrap_socket(connection, server_side=True):
                    pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=shake_hands, daemon=True)
        thread.start()
        url = f"zookeepers://127.0.0.1:{listener.getsockname()[1]}/?ssl_ca_certs={tmp_path / 'expired.crt'}"
        with pytest.raises(BackendUnavailable, match=r"certificate has expired.*Renew the certificate"):
            contender(url, io_timeout=PATIENT).request(ask())
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)


@pytest.mark.attack("A38")
def test_a_host_that_the_certificate_does_not_name_is_refused(
    tls_zookeeper: TlsZooKeeperServer, contender: MakeContender
) -> None:
    url = tls_zookeeper.url.replace("127.0.0.1", "localhost")
    one = contender(url, io_timeout=PATIENT)
    with pytest.raises(BackendUnavailable, match="Write a host that the certificate names"):
        one.request(ask())
    # Unless that is asked for.
    contender(f"{url}&ssl_check_hostname=false", io_timeout=20.0).hold(ask())


def test_a_port_without_tls_is_told(tls_zookeeper: TlsZooKeeperServer, contender: MakeContender) -> None:
    url = tls_zookeeper.url.replace(str(tls_zookeeper.tls_port), str(tls_zookeeper.port))
    with pytest.raises(BackendUnavailable, match=r"See whether that port speaks TLS \(secureClientPort\)"):
        contender(url, io_timeout=PATIENT).request(ask())


def test_a_port_with_tls_is_told_to_those_that_speak_none(
    tls_zookeeper: TlsZooKeeperServer, contender: MakeContender
) -> None:
    url = f"zookeeper://127.0.0.1:{tls_zookeeper.tls_port}{CHROOT}"
    with pytest.raises(BackendUnavailable, match="write zookeepers://"):
        contender(url, io_timeout=PATIENT).request(ask())


def test_more_than_the_network_takes_at_once_is_written(
    tls_zookeeper: TlsZooKeeperServer, contender: MakeContender
) -> None:
    one = contender(tls_zookeeper.url, io_timeout=PATIENT)
    one.connect()
    wire = one.line().session.client
    # It takes less than one record of TLS.
    with socket.socket(fileno=os.dup(wire._connection._socket.fileno())) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    # A megabyte, and a name that nobody has.
    answers = wire.submit([Exists(f"/{'x' * 8000}", None) for _ in range(130)])
    assert answers[-1].wait(60)
    assert answers[-1].get() is None
