"""Two servers of one deploy count together: none is lost, unless the middle step is left out."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from tests.databases import Databases
from tests.docs.changing_over import THREADS
from tests.redis_server import RedisServer, redis_server

__all__ = ["redis_server"]

ROOT = Path(__file__).resolve().parents[2]
COUNTS = 150


def counted(server: RedisServer, folder: Path, steps: tuple[str, str]) -> int:
    """Return what two servers have counted, which run these steps side by side."""
    command = [sys.executable, "-m", "tests.docs.changing_over"]
    with ExitStack() as stack, redis.Redis.from_url(server.url) as client:
        client.flushall()
        servers = [
            stack.enter_context(
                subprocess.Popen(
                    [*command, step, server.url, str(folder), str(COUNTS)],
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for step in steps
        ]
        for word in ("ready", "done"):
            for one in servers:
                assert one.stdout is not None
                assert one.stdin is not None
                assert one.stdout.readline() == f"{word}\n"
            for one in servers:
                if word == "ready":
                    one.stdin.write("go\n")  # type: ignore[union-attr]
                    one.stdin.flush()  # type: ignore[union-attr]
        return int(client.get("counter") or 0)  # type: ignore[arg-type]


@pytest.mark.fault("F42")
@pytest.mark.parametrize(
    "steps",
    [
        ("old", "both"),
        ("both", "new"),
        ("on_redis", "on_two"),
        ("on_two", "on_files"),
        ("first", "stacked"),
        ("stacked", "second"),
    ],
    ids="-".join,
)
def test_each_of_the_two_deploys_loses_nothing(
    redis_server: RedisServer, tmp_path: Path, steps: tuple[str, str]
) -> None:
    assert counted(redis_server, tmp_path, steps) == 2 * THREADS * COUNTS


@pytest.mark.fault("F42", control=True)
@pytest.mark.parametrize(
    "steps", [("old", "new"), ("on_redis", "on_files"), ("first", "second")], ids="-".join
)
def test_without_the_step_between_counts_are_lost(
    redis_server: RedisServer, tmp_path: Path, steps: tuple[str, str]
) -> None:
    assert counted(redis_server, tmp_path, steps) < 2 * THREADS * COUNTS


@pytest.mark.parametrize(("how", "shown"), [("plain", 2), ("fence", 1), ("row", 1)])
def test_the_first_deploy_must_open_no_transaction(
    redis_server: RedisServer, databases: Databases, how: str, shown: int
) -> None:
    """A fence and a row lock open one. Its COMMIT comes after the release of the old lock: a sale is lost."""
    url = databases("postgresql", f"change_over_{how}")
    done = subprocess.run(
        [sys.executable, "-m", "tests.docs.changing_over_in_django", how, redis_server.url, url],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, f"{shown}\n"), done.stderr
