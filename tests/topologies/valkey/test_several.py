"""Several Valkey servers lose their primary in the middle of a sale."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.loadtest.command import loadtest
from tests.topologies.test_failovers import SIZE
from tests.topologies.valkey.conftest import VALKEY


@pytest.mark.parametrize("backend", ["sentinel", "cluster"])
def test_a_failover_oversells_without_the_fence_and_is_exact_with_it(backend: str, tmp_path: Path) -> None:
    # What the demo starts is Valkey, under the name by which it looks for Redis.
    (tmp_path / "redis-server").symlink_to(VALKEY)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    scenario = f"{backend}-killed-fenced"
    done = loadtest("--story", "failover", "--backend", backend, scenario, *SIZE, "--json", PATH=path)
    assert done.returncode == 0, done.stdout + done.stderr
    runs = json.loads(done.stdout)["scenarios"]
    assert [(one["scenario"], one["outcome"]) for one in runs] == [
        (f"{backend}-killed-unfenced", "oversold"),
        (f"{backend}-killed-fenced", "exact"),
    ]
