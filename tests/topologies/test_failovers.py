"""The story of failovers, run as a person runs it, on each lock service that goes on."""

from __future__ import annotations

import json

import pytest

from loadtest import failover
from loadtest.outages import BACKENDS
from tests.loadtest.command import loadtest

#: The story's own size, not the small one.
SIZE = ["--users", str(failover.CROWD.users), "--purchases", str(failover.CROWD.purchases)]
SIZE += ["--stock", str(failover.STOCK)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_failover_is_exact_with_the_fence_and_no_longer_than_it_may_be(
    backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    done = loadtest("--story", "failover", "--backend", backend, *SIZE, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    runs = {run["scenario"]: run for run in json.loads(done.stdout)["scenarios"]}
    told = failover.scenarios(backend)
    assert [run["must_be"] for run in runs.values()] == [one.must_be for one in told]
    assert all(run["outcome"] == "exact" for slug, run in runs.items() if slug.endswith("-fenced"))
    for slug, run in runs.items():
        absence = run["figures"]["absence"]
        assert 0 < absence["seconds"] <= absence["expected"]
        with capsys.disabled():
            print(f"\n{slug}: {absence['seconds']:.2f} s without service.", end="")
