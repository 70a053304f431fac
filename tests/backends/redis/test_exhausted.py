"""Descriptors, threads, rights and names that are not to be had: told as such, and healed when they are."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from distlock.errors import BackendUnavailable
from tests.backends.redis.contender import MakeContender, ask
from tests.redis_server import RedisServer

HERE = Path(__file__).parent


@pytest.mark.fault("F40")
@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize(
    ("what", "told"),
    [("descriptors", "ulimit -n"), ("threads", "can't start new thread|start no more threads")],
)
def test_what_has_run_out_is_told_and_there_again_later(
    own_server: RedisServer, what: str, told: str, how: str
) -> None:
    ended = subprocess.run(
        [sys.executable, HERE / "starved.py", own_server.url, what, how],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=HERE.parents[2],
        env={"PYTHONPATH": str(HERE.parents[2]), "PATH": ""},
    )
    assert ended.returncode == 0, ended.stderr
    *starved, first, second = ended.stdout.splitlines()
    assert [first, second] == ["granted", "granted"]
    assert len(starved) == (2 if what == "descriptors" else 1)
    for line in starved:
        assert line.startswith("BackendUnavailable: "), line
        assert re.search(told, line), line


def test_a_socket_that_this_user_may_not_open_is_told(own_server: RedisServer) -> None:
    """Root may open any, so another user tries."""
    own_server.folder.chmod(0o700)
    code = (
        "import os, sys, distlock\n"
        "locks = distlock.connect(sys.argv[1])\n"
        "os.setuid(65534)\n"
        "try:\n"
        "    locks.lock('a').acquire()\n"
        "except distlock.BackendUnavailable as error:\n"
        "    print(error)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, f"unix://{own_server.socket}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        cwd=HERE.parents[2],
    )
    assert "Permission denied" in ended.stdout
    assert "see the rights of the socket" in ended.stdout


def test_a_socket_that_is_not_there_is_told(tmp_path: Path, contender: MakeContender) -> None:
    with pytest.raises(BackendUnavailable, match=r"No such file.*See whether it runs"):
        contender(f"unix://{tmp_path}/none.sock").request(ask())
    with pytest.raises(BackendUnavailable, match="too long"):
        contender(f"unix://{tmp_path}/{'x' * 200}.sock").request(ask())


@pytest.mark.fault("F40")
@pytest.mark.parametrize("host", ["no-such-host.invalid", "a b", "%F0%9F%98%80.invalid", "-", "1.2.3.4.5"])
def test_a_host_that_has_no_address_is_told(host: str, contender: MakeContender) -> None:
    with pytest.raises(BackendUnavailable, match="Check the name of the host"):
        contender(f"redis://{host}").request(ask())


@pytest.mark.parametrize(
    "query",
    ["ssl_ca_certs=/none.pem", "ssl_ca_data=nonsense", "ssl_certfile=/none.pem", f"ssl_certfile={__file__}"],
)
def test_tls_that_cannot_be_spoken_is_told(
    redis_server: RedisServer, query: str, contender: MakeContender
) -> None:
    with pytest.raises(BackendUnavailable):
        contender(f"rediss://127.0.0.1:{redis_server.port}?{query}").request(ask())


def test_a_port_that_speaks_no_tls_is_told(redis_server: RedisServer, contender: MakeContender) -> None:
    with pytest.raises(BackendUnavailable, match=r"whether that port speaks TLS.*redis for rediss"):
        contender(f"rediss://127.0.0.1:{redis_server.port}").request(ask())
