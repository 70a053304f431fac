"""The story of failovers, run as a person runs it, on each lock service that goes on."""

from __future__ import annotations

import json

import pytest

from loadtest import stories
from loadtest.servers.lock_services import STRUCK_BACKENDS
from tests.loadtest.command import loadtest

STORY = stories.STORIES[stories.FAILOVER]
#: The story's own size, not the small one.
SIZE = ["--users", str(STORY.crowd.users), "--purchases", str(STORY.crowd.purchases)]
SIZE += ["--stock", str(STORY.stock)]


@pytest.mark.fault("F22", "F23")
@pytest.mark.parametrize("backend", STRUCK_BACKENDS)
def test_each_failover_is_exact_with_the_fence_and_no_longer_than_it_may_be(
    backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    done = loadtest("--story", "failover", "--backend", backend, *SIZE, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    runs = {run["scenario"]: run for run in json.loads(done.stdout)["scenarios"]}
    told = stories.failover_scenarios(backend)
    assert [run["must_be"] for run in runs.values()] == [one.must_be for one in told]
    assert all(run["outcome"] == "exact" for slug, run in runs.items() if slug.endswith("-fenced"))
    for slug, run in runs.items():
        absence = run["figures"]["absence"]
        assert 0 < absence["seconds"] <= absence["expected"]
        with capsys.disabled():
            print(f"\n{slug}: {absence['seconds']:.2f} s without service.", end="")
