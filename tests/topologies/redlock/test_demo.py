"""The demo on five servers."""

from __future__ import annotations

import json

from tests.loadtest.command import loadtest


def test_the_story_on_redlock_oversells_without_the_lock_and_is_exact_with_it() -> None:
    done = loadtest("--backend", "redlock", "two-distributed", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    runs = json.loads(done.stdout)["scenarios"]
    assert [(run["scenario"], run["outcome"]) for run in runs] == [
        ("two-process", "oversold"),
        ("two-distributed", "exact"),
    ]
