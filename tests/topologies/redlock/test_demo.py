"""The demo on five servers."""

from __future__ import annotations

import json

from loadtest.options import make_parser, object_to_readers
from tests.loadtest.command import loadtest


def test_the_story_oversells_without_the_lock_and_is_exact_with_it() -> None:
    done = loadtest("--backend", "redlock", "mixed-distributed", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    scenarios = json.loads(done.stdout)["scenarios"]
    assert [(one["scenario"], one["outcome"]) for one in scenarios] == [
        ("mixed-process", "oversold"),
        ("mixed-distributed", "exact"),
    ]


def test_the_story_of_readers_is_not_told_where_there_are_none() -> None:
    objections = []
    for backend in ("redlock", "redis"):
        options = make_parser().parse_args(["--story", "readers", "--backend", backend])
        options.up = False
        objections.append(object_to_readers(options))
    assert "take another --backend" in objections[0]
    assert objections[1] == ""
