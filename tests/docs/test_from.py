"""The pages for those who come from another lock: both sides of each table run, and answer alike."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from tests.databases import Databases
from tests.docs.both_sides import PAGES, rows
from tests.redis_server import RedisServer, redis_server

__all__ = ["redis_server"]

ROOT = Path(__file__).resolve().parents[2]
TABLES = sorted(page.name for page in PAGES.glob("*.md") if rows(page.read_text("utf-8")))


def python(*words: object) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *map(str, words)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("page", TABLES)
def test_both_lines_of_each_row_answer_alike(
    page: str, redis_server: RedisServer, databases: Databases
) -> None:
    postgresql = databases("postgresql", "other_locks")
    python("distlock", "prepare", "--url", postgresql)
    ran = [
        json.loads(line)
        for line in python("tests.docs.both_sides", page, redis_server.url, postgresql).splitlines()
    ]
    assert len(ran) >= 2
    for theirs, ours, their_value, our_value in ran:
        if None not in (their_value, our_value):
            assert their_value == our_value, (theirs, ours)
    assert any(value is not None for _, _, *values in ran for value in values) or page == "django-pglock.md"
    with redis.Redis.from_url(redis_server.url) as client:
        # What locks leave for a while are lists of a signal, and ours have a lifetime.
        held = [key for key in client.scan_iter() if client.type(key) == b"string" and client.ttl(key) == -1]
    assert held == []


def test_there_is_a_page_for_each_lock_of_the_index() -> None:
    index = (PAGES / "index.md").read_text("utf-8")
    assert [page for page in TABLES if f"({page})" not in index] == []
    assert len(TABLES) == 7
