"""Sixteen requests of one session spend its five vouchers: five are spent, wherever the session is kept."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.databases import Databases
from tests.django_distlock.fresh.session_site import REQUESTS, VOUCHERS
from tests.redis_server import RedisServer, redis_server

__all__ = ["redis_server"]

ROOT = Path(__file__).parents[3]
BACKENDS = ("db", "cached_db", "cache", "file")


def outcomes(database: str, redis: str, backend: str, *cells: str) -> dict[str, dict[str, object]]:
    command = [
        sys.executable,
        "-m",
        "tests.django_distlock.fresh.session_site",
        database,
        redis,
        backend,
        *cells,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    # The requests that failed: pytest shows it with a test that fails.
    sys.stderr.write(done.stderr)
    return dict(zip(cells, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.attack("A40")
@pytest.mark.parametrize("backend", BACKENDS)
def test_as_many_are_spent_as_there_are(
    databases: Databases, redis_server: RedisServer, backend: str
) -> None:
    cells = [f"spend:{guard}" for guard in ("plain", "atomic", "fence", "batch")]
    database = databases("postgresql", f"spent_{backend}")
    found = outcomes(database, redis_server.url, backend, *cells, "aspend:plain")
    right = {"answers": {"200": VOUCHERS, "409": REQUESTS - VOUCHERS}, "left": 0, "marks": 0}
    assert found == dict.fromkeys(found, right)


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_refusal_is_counted(databases: Databases, redis_server: RedisServer, backend: str) -> None:
    """A view that raises has its transaction rolled back, and what it wrote into the session stays."""
    cells = [f"count:{guard}" for guard in ("plain", "atomic", "fence", "batch")]
    database = databases("postgresql", f"counted_{backend}")
    found = outcomes(database, redis_server.url, backend, *cells, "acount:plain")
    right = {"answers": {"403": REQUESTS}, "left": 100 - REQUESTS, "marks": 0}
    assert found == dict.fromkeys(found, right)


@pytest.mark.parametrize("kind", ["sqlite", "mariadb"])
def test_other_databases_keep_sessions_as_well(
    databases: Databases, redis_server: RedisServer, kind: str
) -> None:
    cells = [f"{view}:{guard}" for view in ("spend", "count") for guard in ("plain", "fence", "batch")]
    found = outcomes(databases(kind, "sessions"), redis_server.url, "db", *cells)
    left = {cell: outcome["left"] for cell, outcome in found.items()}
    assert left == {cell: 0 if cell.startswith("spend") else 100 - REQUESTS for cell in cells}


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_as_locks_spend_as_many_as_there_are(
    databases: Databases, redis_server: RedisServer, backend: str
) -> None:
    database = databases("postgresql", f"rows_{backend}")
    found = outcomes(database, redis_server.url, backend, "spend:row")
    right = {"answers": {"200": VOUCHERS, "409": REQUESTS - VOUCHERS}, "left": 0, "marks": 0}
    assert found == {"spend:row": right}


@pytest.mark.parametrize("backend", ["db", "cached_db"])
def test_readers_keep_what_the_others_write(
    databases: Databases, redis_server: RedisServer, backend: str
) -> None:
    database = databases("postgresql", f"read_{backend}")
    found = outcomes(database, redis_server.url, backend, "report:shared")
    assert found["report:shared"] == {"answers": {"200": REQUESTS}, "left": VOUCHERS, "marks": REQUESTS}


@pytest.mark.attack("A40", control=True)
def test_the_control_spends_what_the_first_has_found(databases: Databases, redis_server: RedisServer) -> None:
    """The same run without it: the lock alone keeps nobody from the session that was loaded before."""
    database = databases("postgresql", "control")
    found = outcomes(database, redis_server.url, "db", "spend:off", "aspend:off")
    assert {cell: outcome["answers"] for cell, outcome in found.items()} == {
        "spend:off": {"200": REQUESTS},
        "aspend:off": {"200": REQUESTS},
    }
