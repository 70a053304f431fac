"""Two real processes of a shop that has nothing but its database."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from demo_shop.ledger import database_url
from tests.databases import Databases
from tests.forked import Forked

STOCK = 100


class Instance(Forked):
    def __init__(self, framework: str, *arguments: object) -> None:
        super().__init__(framework, "tests.backends.database.instance", framework, *map(str, arguments))
        assert self.answer() == "ready"

    def answer(self) -> Any:
        return json.loads(self.stdout.readline())

    def do(self, word: str) -> Any:
        self.tell(word)
        return self.answer()


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def database(request: pytest.FixtureRequest, databases: Databases) -> str:
    return databases(request.param, "row_locks")


@pytest.fixture
def query(database: str) -> Iterator[Callable[[str], Any]]:
    engine = create_engine(database_url(database))
    serial = {"postgresql": "SERIAL PRIMARY KEY", "mysql": "INTEGER PRIMARY KEY AUTO_INCREMENT"}

    def ask(statement: str) -> Any:
        with engine.begin() as connection:
            result = connection.execute(text(statement))
            return result.scalar() if result.returns_rows else None

    for table in ("product", "sale", "distlock_fence", "django_migrations"):
        ask(f"DROP TABLE IF EXISTS {table}")
    ask("CREATE TABLE product (id INTEGER PRIMARY KEY, stock INTEGER NOT NULL)")
    key = serial.get(engine.dialect.name, "INTEGER PRIMARY KEY")
    ask(f"CREATE TABLE sale (id {key}, product INTEGER NOT NULL)")
    ask(f"INSERT INTO product VALUES (1, {STOCK})")
    yield ask
    engine.dispose()


@pytest.fixture(params=["django", "flask"])
def start(
    request: pytest.FixtureRequest, database: str, query: Callable[[str], Any]
) -> Iterator[Callable[..., Instance]]:
    instances: list[Instance] = []

    def begin(guard: str = "row", timeout: float = 60, options: str = "") -> Instance:
        instances.append(Instance(request.param, database + options, guard, timeout))
        if len(instances) == 1:
            instances[0].do("tables")
        return instances[-1]

    yield begin
    for instance in instances:
        instance.close()


def sell_out(*instances: Instance) -> list[dict[str, int]]:
    for instance in instances:
        instance.tell("sell")
    return [instance.answer() for instance in instances]
