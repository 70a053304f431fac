"""What the backends lean on although it is private, of kazoo and PyMySQL, is there, and in few files."""

from __future__ import annotations

import ast
import inspect
import re
from importlib.metadata import version
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.handlers import threading as handlers
from kazoo.protocol.connection import ConnectionHandler
from pymysql.connections import Connection

import distlock

#: The methods that we override, with the parameters that kazoo gives them.
OVERRIDDEN = [
    (KazooClient, "_call", ["self", "request", "async_object"]),
    (KazooClient, "_session_callback", ["self", "state"]),
    (ConnectionHandler, "_connect", ["self", "host", "hostip", "port"]),
    (ConnectionHandler, "_connect_loop", ["self", "retry"]),
    (ConnectionHandler, "_invoke", ["self", "timeout", "request", "xid"]),
    (ConnectionHandler, "_read", ["self", "length", "timeout"]),
    (ConnectionHandler, "_read_response", ["self", "header", "buffer", "offset"]),
    (ConnectionHandler, "_read_socket", ["self", "read_timeout"]),
    (ConnectionHandler, "_send_request", ["self", "read_timeout", "connect_timeout"]),
    (ConnectionHandler, "_write", ["self", "msg", "timeout"]),
    (handlers.SequentialThreadingHandler, "start", ["self"]),
    (handlers.SequentialThreadingHandler, "stop", ["self"]),
    (handlers.SequentialThreadingHandler, "spawn", ["self", "func", "args", "kwargs"]),
    (handlers.SequentialThreadingHandler, "dispatch_callback", ["self", "callback"]),
    (handlers.SequentialThreadingHandler, "create_connection", ["self", "args", "kwargs"]),
    (handlers.SequentialThreadingHandler, "select", ["self", "args", "kwargs"]),
]
#: What we read, of a client and of its connection.
OF_THE_CLIENT = ["_conn_retry", "_connection", "_live", "_pending", "_queue", "_session_id", "_stopped"]
OF_THE_CONNECTION = ["_socket", "_read_sock", "_write_sock"]
#: What we use of a connection of PyMySQL.
OF_PYMYSQL = {"_execute_command", "_force_close", "_read_timeout", "_result", "_rfile", "_sock"}
BACKENDS = Path(distlock.__file__).parent / "backends"
#: The files that use what is private of kazoo, and the one of PyMySQL.
BENT = {BACKENDS / "zookeeper/client.py", BACKENDS / "zookeeper/connection.py"}
OF_MYSQL = BACKENDS / "sql/mysql_connection.py"


def gone(owner: str, name: str) -> str:
    return (
        f"kazoo {version('kazoo')} has no {owner}.{name} as {BACKENDS / 'zookeeper'} knows it. "
        "Find what does now what that is for, or forbid this version in pyproject.toml."
    )


def source(owner: object) -> str:
    module = inspect.getmodule(owner)
    assert module is not None
    return inspect.getsource(module)


def private(path: Path) -> set[str]:
    """The private names in a file, but those that its own classes and functions bring along."""
    used, own = names(path)
    return used - own


def names(path: Path) -> tuple[set[str], set[str]]:
    """The private names that a file uses, and all that it makes."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    used, own = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            used.add(node.attr)
            if isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
                own.add(node.attr)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            own.add(node.name)
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
            own.update(target.id for target in targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("kazoo"):
            used.update(alias.name for alias in node.names)
    return {name for name in used if name.startswith("_") and not name.startswith("__")}, own


@pytest.mark.parametrize(("owner", "name", "parameters"), OVERRIDDEN)
def test_kazoo_has_the_method(owner: type, name: str, parameters: list[str]) -> None:
    method = getattr(owner, name, None)
    assert method is not None, gone(owner.__name__, name)
    assert list(inspect.signature(method).parameters) == parameters, gone(owner.__name__, name)


@pytest.mark.parametrize(("owner", "name"), [(owner, name) for owner, name, _ in OVERRIDDEN])
def test_kazoo_calls_the_method_that_we_override(owner: type, name: str) -> None:
    callers = source(ConnectionHandler) + source(KazooClient)
    assert re.search(rf"\.{name}\b", callers), gone(owner.__name__, name)


def test_kazoo_has_what_we_read() -> None:
    client = KazooClient()
    for name in OF_THE_CLIENT:
        assert hasattr(client, name), gone("KazooClient", name)
    for name in OF_THE_CONNECTION:
        assert hasattr(client._connection, name), gone("ConnectionHandler", name)


def test_what_is_pending_is_numbered() -> None:
    # We compare the third part with the number of an answer.
    assert "_pending.append((request, async_object, xid))" in source(ConnectionHandler), gone(
        "KazooClient", "_pending"
    )


def test_pymysql_has_what_we_use() -> None:
    connection = Connection(defer_connect=True)
    for name in OF_PYMYSQL:
        # Older versions have some of them only once they have connected.
        assert hasattr(connection, name) or f"self.{name} = " in source(Connection), (
            f"PyMySQL {version('PyMySQL')} has no Connection.{name} as {OF_MYSQL} knows it. "
            "Find what does now what that is for, or forbid this version in pyproject.toml."
        )
    assert list(inspect.signature(connection._execute_command).parameters) == ["command", "sql"]
    # It is looked at before each answer.
    assert "settimeout(self._read_timeout)" in source(Connection)


def test_what_is_private_of_pymysql_stands_in_one_file() -> None:
    for path in (BACKENDS / "sql").glob("*.py"):
        allowed = OF_PYMYSQL if path == OF_MYSQL else set()
        assert private(path) <= allowed, path


def test_what_is_private_of_kazoo_stands_in_two_files() -> None:
    listed = {name for _, name, _ in OVERRIDDEN} | {*OF_THE_CLIENT, *OF_THE_CONNECTION}
    for path in (BACKENDS / "zookeeper").glob("*.py"):
        assert private(path) <= (listed if path in BENT else set()), path


def test_what_is_private_of_redis_py_stands_nowhere() -> None:
    found = [names(path) for path in (BACKENDS / "redis").glob("*.py")]
    made = set[str]().union(*(own for _, own in found))
    assert set[str]().union(*(used for used, _ in found)) <= made
