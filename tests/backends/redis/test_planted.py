"""The kit is tested on the scripts, too: a bug in one line of them is found by a named test."""

from __future__ import annotations

import pytest

# Each suite below would have it anew otherwise.
import distlock.testing.conformance  # noqa: F401
from tests.backends.redis.planted import BUGS
from tests.redis_server import RedisServer

pytest_plugins = ["pytester"]

SUITE = """
from __future__ import annotations

import pytest

from distlock.testing import conformance, protocol_fixtures
from tests.backends.redis.planted import plant

@pytest.fixture
def url():
    return {url!r}

@pytest.fixture(autouse=True)
def _plant(monkeypatch):
    # Broken locks make callers wait: not for long.
    monkeypatch.setattr(protocol_fixtures.Contender.until_held, "__defaults__", (2.0,))
    monkeypatch.setattr(protocol_fixtures.RecordingSink.wait_for_notification, "__defaults__", (2.0,))
    plant(monkeypatch, {bug!r})

class TestScripts(
    conformance.ReadConformance,
    conformance.ReadLeaseConformance,
    conformance.PermitConformance,
    conformance.PermitLeaseConformance,
    conformance.InspectionConformance,
):
    pass
"""

#: A suite that is over in a moment does not need them, and would have them loaded each time.
WITHOUT = ("-p", "no:django", "-p", "no:hypothesispytest", "-p", "no:cacheprovider")


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_in_a_script_is_found(pytester: pytest.Pytester, redis_server: RedisServer, bug: str) -> None:
    pytester.makepyfile(SUITE.format(url=redis_server.url, bug=bug))
    ran = pytester.runpytest_inprocess("-q", "-k", f"test_{BUGS[bug][-1]}", *WITHOUT)
    assert ran.parseoutcomes().get("failed") == 1
