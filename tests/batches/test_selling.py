"""Two processes sell one product in batches: everything once, in fewer transactions than sales."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import MetaData, create_engine, text

from demo_shop.ledger import database_url
from flask_distlock.fence import fence_table
from tests.batches.site import THREADS
from tests.databases import Databases
from tests.redis_server import PATIENCE, RedisServer, redis_server

__all__ = ["redis_server"]

ROOT = Path(__file__).parents[2]
POSTS = 15
STOCK = 200


def sell(framework: str, url: str, redis: str, batch: int) -> tuple[dict[str, int], set[str]]:
    """Let two processes sell. Gives their answers, and the orders that were answered as sold."""
    command = [sys.executable, "-m", "tests.batches.site", framework, url, redis, str(batch), str(POSTS)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, cwd=ROOT, **pipes) for _ in range(2)]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        said = [json.loads(process.communicate(timeout=PATIENCE)[0]) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    answers = {
        status: sum(one["answers"].get(status, 0) for one in said)
        for status in sorted({status for one in said for status in one["answers"]})
    }
    return answers, {order for one in said for order in one["sold"]}


@pytest.mark.parametrize("framework", ["django", "flask"])
def test_two_processes_sell_everything_once_in_fewer_transactions_than_sales(
    framework: str, databases: Databases, redis_server: RedisServer
) -> None:
    url = databases("postgresql", f"batches_{framework}")
    engine = create_engine(database_url(url), isolation_level="AUTOCOMMIT")
    metadata = MetaData()
    fence_table(metadata)
    metadata.create_all(engine)
    with engine.connect() as connection:

        def execute(statement: str) -> Any:
            return connection.execute(text(statement))

        execute("CREATE TABLE product (id int PRIMARY KEY, stock int NOT NULL)")
        execute("CREATE TABLE sale (id text PRIMARY KEY)")
        execute(f"INSERT INTO product VALUES (1, {STOCK})")
        commits = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        before = execute(commits).scalar_one()
        answers, sold = sell(framework, url, redis_server.url, 32)
        took = execute(commits).scalar_one() - before
        assert answers == {"200": STOCK, "409": 2 * THREADS * POSTS - STOCK}
        assert {order for (order,) in execute("SELECT id FROM sale")} == sold
        assert execute("SELECT stock FROM product").scalar_one() == 0
    assert took < STOCK / 2
    engine.dispose()
