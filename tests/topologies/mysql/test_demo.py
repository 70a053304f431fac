"""The demo, with locks in MariaDB."""

from __future__ import annotations

import json

from tests.loadtest.command import loadtest


def test_the_story_oversells_without_the_lock_and_is_exact_with_it() -> None:
    done = loadtest("--backend", "mysql", "mixed-distributed", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    scenarios = json.loads(done.stdout)["scenarios"]
    assert [(one["scenario"], one["outcome"]) for one in scenarios] == [
        ("mixed-process", "oversold"),
        ("mixed-distributed", "exact"),
    ]
