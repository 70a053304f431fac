"""A short soak of each lock service, and a planted bug that the soak finds."""

from __future__ import annotations

from pathlib import Path

import pytest

import distlock
from tests.soak.judge import Violation
from tests.soak.leftovers import find_leftovers
from tests.soak.run import Soak
from tests.soak.services.known import open_service
from tests.soak.services.service import Service

#: Seconds of the short soak.
SHORT = 15.0
#: How long a lock may be free while somebody waits for it, seconds, beside the other tests.
BUSY = 6.0


def soaked(service: str, directory: Path, plant: str = "", seconds: float = SHORT) -> list[Violation]:
    own, notes = directory / "service", directory / "notes"
    own.mkdir()
    notes.mkdir()
    with open_service(service, own) as running:
        refuse_what_is_held(running)
        # Each service draws its faults in another order.
        soak = Soak(running, notes, seed=len(service), pause=0.5, plant=plant, patience=BUSY)
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


def test_a_worker_that_ends_by_itself_is_an_error(tmp_path: Path) -> None:
    # It does not know the bug, and ends with the KeyError.
    _, violations = Soak(Service(tmp_path.as_uri()), tmp_path, seed=1, plant="unknown").run(0.5)
    assert {one.rule for one in violations} == {"error"}
