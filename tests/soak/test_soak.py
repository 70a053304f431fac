"""A short soak of each lock service, and a planted bug that the soak finds."""

from __future__ import annotations

import math
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import distlock
from tests.soak.faults import Schedule
from tests.soak.leftovers import find_leftovers
from tests.soak.promises import Violation
from tests.soak.run import Soak
from tests.soak.services.known import open_service
from tests.soak.services.proxy import owner_of
from tests.soak.services.service import Service

#: Seconds of the short soak, and of its calm at the end, in which workers close their clients and go on.
SHORT, CALM = 15.0, 6.0
#: How long a lock may be free while somebody waits for it, seconds, beside the other tests.
BUSY = 6.0


def soaked(service: str, directory: Path, plant: str = "", seconds: float = SHORT) -> list[Violation]:
    own, notes = directory / "service", directory / "notes"
    own.mkdir()
    notes.mkdir()
    with open_service(service, own) as running:
        refuse_what_is_held(running)
        # Each service draws its faults in another order.
        soak = Soak(
            running,
            notes,
            seed=len(service),
            pause=0.5,
            storm=SHORT - CALM,
            calm=CALM,
            plant=plant,
            patience=BUSY,
        )
        history, violations = soak.run(seconds)
    assert any(attempt.released for attempt in history.attempts)
    return [one for one in violations if not one.admitted]


def refuse_what_is_held(service: Service) -> None:
    """Look for leftovers while a lock is held, which is one. The soak looks again when it has ended."""
    url = service.direct or service.url
    locks = distlock.connect(url, prefix="soak")
    locks.lock("n0").acquire()
    assert find_leftovers(url, ttl=0.0, patience=0.0)
    locks.close()


@pytest.mark.parametrize(
    "service", ["cluster", "file", "mysql", "postgresql", "redis", "redlock", "sentinel", "zookeeper"]
)
def test_it_finds_nothing(service: str, tmp_path: Path) -> None:
    assert soaked(service, tmp_path) == []


@pytest.mark.parametrize("plant", ["a_reader_enters_beside_a_writer", "a_deleted_latch_counts_as_open"])
def test_it_finds_a_planted_bug(plant: str, tmp_path: Path) -> None:
    assert soaked("redis", tmp_path, plant)


def test_no_fault_is_drawn_in_a_calm() -> None:
    schedule = Schedule(began=100.0, storm=15.0, calm=12.0)
    assert [schedule.calm_left(at) for at in (100.0, 114.0, 115.0, 126.0, 127.0)] == [
        0.0,
        0.0,
        12.0,
        1.0,
        0.0,
    ]
    assert [schedule.until_closing(at) for at in (100.0, 122.0, 124.0)] == [18.0, 23.0, 21.0]
    assert replace(schedule, calm=0.0).until_closing(100.0) == math.inf


def test_it_is_known_whose_connection_is_cut() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    accepted, _ = server.accept()
    with server, client, accepted:
        assert owner_of(accepted) == os.getpid()
        # A child has the connection, too.
        child = subprocess.Popen(
            [sys.executable, "-c", "import sys; sys.stdin.read()"],
            stdin=subprocess.PIPE,
            pass_fds=[client.fileno()],
        )
        assert owner_of(accepted) is None
        child.communicate()
    assert owner_of(accepted) is None


def test_a_worker_that_ends_by_itself_is_an_error(tmp_path: Path) -> None:
    # It does not know the bug, and ends with the KeyError.
    _, violations = Soak(Service(tmp_path.as_uri()), tmp_path, seed=1, plant="unknown").run(0.5)
    assert {one.rule for one in violations} == {"error"}
