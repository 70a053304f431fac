"""The kit for killed processes is tested: every planted bug is found by the test that is named beside it."""

from __future__ import annotations

import pytest

# The suite below would have it anew otherwise.
import distlock.testing.conformance  # noqa: F401
from tests.testing.test_planted_bugs import WITHOUT

pytest_plugins = ["pytester"]

SUITE = """
from __future__ import annotations

import pytest

from distlock.backends.file.latches import LatchFiles
from distlock.backends.file.record_locks import RecordLocks
from distlock.testing import conformance, fixtures, waits
from distlock.testing.conformance import processes

def the_dead_live_on(patch):
    patch.setattr(RecordLocks, "alive", lambda self, contender: True)

def the_first_is_told(patch):
    honest = LatchFiles._tell
    patch.setattr(LatchFiles, "_tell", lambda self, key, told: honest(self, key, told[:1]))

@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/locks"

@pytest.fixture(autouse=True)
def plant(monkeypatch):
    for bug in {bugs}:
        # It makes callers wait: not for long.
        monkeypatch.setattr(processes, "PATIENCE", 3.0)
        monkeypatch.setattr(fixtures, "PATIENCE", 3.0)
        monkeypatch.setattr(waits, "PATIENCE", 3.0)
        globals()[bug](monkeypatch)

class TestKilled(conformance.KilledConformance):
    ttl = 0.5
"""

BUGS = [
    ("the_dead_live_on", "a_killed_reader_keeps_writers_out_no_longer_than_its_lease"),
    ("the_dead_live_on", "the_permits_of_a_killed_process_come_back_once"),
    ("the_first_is_told", "a_killed_waiter_of_a_latch_disturbs_nobody_and_its_count_stands"),
]


def run(pytester: pytest.Pytester, tests: str, *bugs: str) -> dict[str, int]:
    pytester.makepyfile(SUITE.replace("{bugs}", repr(bugs)))
    return pytester.runpytest_inprocess("-q", "-k", tests, *WITHOUT).parseoutcomes()


@pytest.mark.parametrize(("bug", "test"), BUGS)
def test_a_planted_bug_is_found(pytester: pytest.Pytester, bug: str, test: str) -> None:
    assert run(pytester, f"test_{test}", bug).get("failed") == 1
