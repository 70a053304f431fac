"""What other programs do to the data of a lock service: bytes are changed, cut, of another type."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pymysql
import redis
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from tests.stored import FOLDER

#: Where some data are: what names them, from the outside in.
Place = tuple[Any, ...]


class Storage(Protocol):
    """The data of one lock service, without distlock's code."""

    def places(self, name: str) -> list[Place]:
        """Return where data of the lock *name* are, or of no lock in particular, in a fixed order."""

    def change(self, place: Place, change: Callable[[bytes], bytes]) -> None:
        """Replace the data at *place*."""

    def replace(self, place: Place, kind: int, data: bytes) -> None:
        """Put something of another *kind* there, or take it away."""

    def clear(self, name: str) -> None:
        """Take away whatever is there, as the errors and the pages tell operators to."""


class RedisStorage:
    def __init__(self, client: redis.Redis) -> None:
        self._client: Any = client

    def places(self, name: str) -> list[Place]:
        found: list[Place] = []
        for key in sorted(self._keys(name)):
            kind = self._client.type(key).decode()
            if kind == "list":
                found += [(key, kind, index) for index in range(self._client.llen(key))]
            elif kind == "hash":
                found += [(key, kind, field) for field in sorted(self._client.hkeys(key))]
            elif kind == "zset":
                found += [(key, kind, member) for member in self._client.zrange(key, 0, -1)]
            elif kind == "set":
                found += [(key, kind, member) for member in sorted(self._client.smembers(key))]
            else:
                found.append((key, kind, None))
        return found

    def _keys(self, name: str) -> list[bytes]:
        return [
            key
            for key in self._client.scan_iter("dl:*", count=1000)
            if name.encode() in key or b"{" not in key
        ]

    def change(self, place: Place, change: Callable[[bytes], bytes]) -> None:
        key, kind, at = place
        client = self._client
        if kind == "string":
            client.set(key, change(client.get(key) or b""), keepttl=True)
        elif kind == "list":
            with suppress(redis.ResponseError):
                client.lset(key, at, change(client.lindex(key, at) or b""))
        elif kind == "hash":
            client.hset(key, at, change(client.hget(key, at) or b""))
        elif kind == "zset":
            client.zrem(key, at)
            client.zadd(key, {change(at): 1e300})
        elif kind == "set":
            client.srem(key, at)
            client.sadd(key, change(at))

    def replace(self, place: Place, kind: int, data: bytes) -> None:
        client, key = self._client, place[0]
        client.delete(key)
        writes: list[Callable[[], object]] = [
            lambda: None,
            lambda: client.set(key, data),
            lambda: client.rpush(key, data, b"", b"\xff"),
            lambda: client.hset(key, data, data),
            lambda: client.sadd(key, data),
            lambda: client.zadd(key, {data: -1}),
            lambda: client.xadd(key, {"their": data}),
        ]
        writes[kind % len(writes)]()

    def clear(self, name: str) -> None:
        if keys := self._keys(name):
            self._client.delete(*keys)


class ZooKeeperStorage:
    def __init__(self, admin: KazooClient, chroot: str) -> None:
        self._admin = admin
        self._root = f"{chroot}/{FOLDER}"

    def places(self, name: str) -> list[Place]:
        return [(path,) for path in self._below(self._root, name)]

    def _below(self, path: str, name: str) -> list[str]:
        found: list[str] = []
        with suppress(KazooException):
            for child in sorted(self._admin.get_children(path)):
                inner = f"{path}/{child}"
                if name in inner or child in ("%processes", "%latches") or "%processes" in path:
                    found += [inner, *self._below(inner, name)]
        return found

    def change(self, place: Place, change: Callable[[bytes], bytes]) -> None:
        with suppress(KazooException):
            data, _ = self._admin.get(place[0])
            self._admin.set(place[0], change(data)[:100_000])

    def replace(self, place: Place, kind: int, data: bytes) -> None:
        (path,) = place
        odd = data.hex()[:40] or "odd"
        writes: list[Callable[[], object]] = [
            lambda: self._admin.delete(path, recursive=True),
            lambda: self._admin.create(f"{path}/{odd}", data),
            lambda: self._admin.create(f"{path}/_c_{odd}-lock-", data, sequence=True),
            lambda: self._admin.create(f"{path}/_c_-9of0-plock-", data, sequence=True),
            lambda: self._admin.create(f"{path}/{odd}-lock-0000000000", data),
            lambda: self._admin.create(f"{path}/_c_{odd}-rlock-99999999999", data),
        ]
        with suppress(KazooException):
            writes[kind % len(writes)]()

    def clear(self, name: str) -> None:
        for path in self._below(self._root, name):
            if name in path or "%processes/" in path:
                with suppress(KazooException):
                    self._admin.delete(path, recursive=True)


class FileStorage:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def places(self, name: str) -> list[Place]:
        """The `state` is left out: its record locks are lost with it, and every error says what to do."""
        return [
            (path,)
            for path in sorted(self._directory.rglob("*"))
            if path.is_file() and path.name != "state" and (name in path.name or "~" not in path.name)
        ]

    def change(self, place: Place, change: Callable[[bytes], bytes]) -> None:
        with suppress(OSError):
            place[0].write_bytes(change(place[0].read_bytes()))

    def replace(self, place: Place, kind: int, data: bytes) -> None:
        path: Path = place[0]
        odd = data.hex()[:40]
        beside = path.with_name(f"{path.name}{odd}")
        writes: list[Callable[[], object]] = [
            lambda: path.unlink(),
            lambda: path.rename(beside),
            lambda: path.with_name(path.name.replace("~", f"~{odd}", 2)).write_bytes(data),
            lambda: path.with_name(path.name.rpartition("~")[0] + "~holds-" + "9" * 40).write_bytes(b""),
            lambda: (path.unlink(), path.mkdir()),
            lambda: (path.unlink(), path.symlink_to("/dev/null")),
            lambda: path.with_name(path.name.rpartition("~")[0] + "-9of0~waits").write_bytes(b""),
        ]
        with suppress(OSError):
            writes[kind % len(writes)]()

    def clear(self, name: str) -> None:
        for path in self._directory.rglob("*"):
            if name in path.name or path.parent.name in ("processes", "wanted"):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(
                    missing_ok=True
                )


class TableStorage:
    """The table of names in PostgreSQL or MariaDB. Its types leave little to be odd."""

    def __init__(
        self, connection: psycopg.Connection[Any] | pymysql.Connection[Any], columns: list[str]
    ) -> None:
        self._connection: Any = connection
        self._columns = columns

    def places(self, name: str) -> list[Place]:
        return [(name, column) for column in self._columns]

    def change(self, place: Place, change: Callable[[bytes], bytes]) -> None:
        name, column = place
        [(was,)] = self._run(
            f"SELECT {column} FROM distlock_name WHERE name LIKE %s LIMIT 1", f"%{name}"
        ) or [(b"",)]
        text = change(str(was).encode()).decode("latin-1").replace("\x00", "")
        self._run(f"UPDATE distlock_name SET {column} = %s WHERE name LIKE %s", text, f"%{name}")

    def replace(self, place: Place, kind: int, data: bytes) -> None:
        name, column = place
        value = [None, 0, -1, 2**31 - 1, 2**53, 2**63 - 1, ""][kind % 7]
        if kind % 8 == 7:
            self._run("DELETE FROM distlock_name WHERE name LIKE %s", f"%{name}")
        else:
            self._run(f"UPDATE distlock_name SET {column} = %s WHERE name LIKE %s", value, f"%{name}")

    def clear(self, name: str) -> None:
        self._run("DELETE FROM distlock_name WHERE name LIKE %s OR name NOT LIKE %s", f"%{name}", "%:%")

    def _run(self, statement: str, *values: object) -> list[Any]:
        """The database refuses what its types don't take, as it does for anybody."""
        with self._connection.cursor() as cursor, suppress(psycopg.Error, pymysql.Error):
            cursor.execute(statement, values)
            return list(cursor.fetchall()) if cursor.description else []
        return []
