"""Another program changes the data of a lock service: each call ends in time, with a clear error."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import NamedTuple
from urllib.parse import urlsplit

import psycopg
import pymysql
import pytest
from hypothesis import example, given, note
from hypothesis import strategies as st

import distlock
from distlock.testing.waits import PATIENCE
from loadtest.servers.databases import own_mariadb, own_postgresql
from tests.hostile.calls import CALLS, MORE_CALLS, made, no_traceback
from tests.hostile.fuzz import examples
from tests.hostile.storages import FileStorage, RedisStorage, Storage, TableStorage, ZooKeeperStorage
from tests.redis_server import redis_server
from tests.zookeeper_server import CHROOT, zookeeper_server

# Other threads of the process draw numbers while hypothesis does. It warns of that with a long text.
pytestmark = pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")

__all__ = ["redis_server", "zookeeper_server"]

IO_TIMEOUT = 5.0
numbers = itertools.count()


class Service(NamedTuple):
    storage: Storage
    one: distlock.Locks
    two: distlock.Locks
    #: Whether it knows readers, permits and latches.
    is_whole: bool


@pytest.fixture(scope="module", params=["redis", "zookeeper", "file", "postgresql", "mysql"])
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with ExitStack() as running:
        if request.param == "redis":
            server = request.getfixturevalue("redis_server")
            storage, url = RedisStorage(server.client), server.url
        elif request.param == "zookeeper":
            server = request.getfixturevalue("zookeeper_server")
            storage, url = ZooKeeperStorage(server.admin, CHROOT), server.url
        elif request.param == "file":
            folder = tmp_path_factory.mktemp("odd") / "locks"
            storage, url = FileStorage(folder), folder.as_uri()
        elif request.param == "postgresql":
            url = running.enter_context(own_postgresql()).url
            connection = running.enter_context(psycopg.connect(url, autocommit=True))
            storage = TableStorage(connection, ["name", "above"])
        else:
            url = running.enter_context(own_mariadb()).url
            parts = urlsplit(url)
            database = {"host": parts.hostname, "port": parts.port, "user": parts.username}
            there = pymysql.connect(**database, database=parts.path[1:], autocommit=True)
            running.callback(there.close)
            storage = TableStorage(there, ["lock_name", "name", "number"])
        clients = []
        for _ in range(2):
            more = {} if request.param == "file" else {"io_timeout": IO_TIMEOUT}
            client = distlock.connect(url, prefix="odd", ttl=30, timeout=PATIENCE, **more)
            running.callback(client.close)
            clients.append(client)
        if request.param in ("postgresql", "mysql"):
            clients[0].namespace.prepare()
        yield Service(storage, *clients, is_whole=request.param in ("redis", "zookeeper", "file"))


#: Bytes that look like numbers, signs and tokens of ours, and are none.
ODD = [b"", b" ", b"0", b"-1", b"nan", b"inf", b"1e400", b"9" * 19, b"9" * 400, b"\x00", b"\xff\xfe", b"\n"]
ODD += [
    b"1 2 + ",
    b"1 2 - x",
    b"1 01 + readers",
    b"9007199254740993 9007199254740994 + permits",
    b"{}",
    b"[[",
    b"null",
]
ODD += [b'{"count": -1}', b'{"at": "soon"}', b"~", b"-read", b"-9of0", "\u0661".encode()]
odd = st.sampled_from(ODD) | st.binary(max_size=12) | st.integers(0, 100_000).map(bytes)


class Flip(NamedTuple):
    """Put *data* into the bytes, at a part of them, over as many as *over* says."""

    at: float
    over: int
    data: bytes

    def __call__(self, was: bytes) -> bytes:
        at = int(self.at * len(was))
        return was[:at] + self.data + was[at + self.over :]


class Whole(NamedTuple):
    """Put *data* in the place of the bytes."""

    data: bytes

    def __call__(self, was: bytes) -> bytes:
        return self.data


class Other(NamedTuple):
    """Put something of another *kind* there."""

    kind: int
    data: bytes


changes = (
    st.builds(Flip, st.floats(0, 1), st.integers(0, 6), odd)
    | st.builds(Whole, odd)
    | st.builds(Other, st.integers(0, 7), odd)
)
damages = st.lists(st.tuples(st.integers(0, 9), changes), min_size=1, max_size=3)
SITUATIONS: dict[str, Callable[[distlock.Locks, str], distlock.Grant | None]] = {
    "used": lambda locks, name: None,
    "held": lambda locks, name: locks.lock(name).acquire(),
}
MORE_SITUATIONS = {
    "read": lambda locks, name: locks.read_lock(name).acquire(),
    "permits": lambda locks, name: locks.semaphore(name, limit=3).acquire(),
    "latch": lambda locks, name: locks.latch(name, 2).make() and None,
}


#: By situation: the calls that look at its data.
CALLS_OF = {"read": ["read", "aread", "write and read"], "permits": ["permits", "apermits", "inspect"]}
CALLS_OF |= {"latch": ["latch", "latch again", "alatch", "inspect"]}
scenes = st.sampled_from([*SITUATIONS, *MORE_SITUATIONS, *MORE_SITUATIONS]).flatmap(
    lambda situation: st.tuples(
        st.just(situation),
        st.lists(
            st.sampled_from([*CALLS, *MORE_CALLS] + 4 * CALLS_OF.get(situation, ["lock"])),
            min_size=1,
            max_size=3,
        ),
    )
)


@pytest.mark.attack("A42")
@examples(30, shrinks=False)
@given(scene=scenes, waits=st.booleans(), damages=damages)
# The number of a name is the largest that a database knows.
@example(scene=("used", ["lock"]), waits=True, damages=[(5, Other(5, b""))])
def test_odd_data_is_an_error_in_time_or_no_matter(
    service: Service, scene: tuple[str, list[str]], waits: bool, damages: list[tuple[int, object]]
) -> None:
    storage, one, two, is_whole = service
    situation, calls = scene
    name = f"name{next(numbers)}x"
    if not is_whole:
        situation = situation if situation in SITUATIONS else "held"
        calls = [call for call in calls if call in CALLS] or ["lock"]
    with ThreadPoolExecutor(1) as pool, no_traceback():
        with one.lock(name):
            pass
        grant = {**SITUATIONS, **MORE_SITUATIONS}[situation](one, name)
        waiting = pool.submit(made, two, name, ["lock"], IO_TIMEOUT) if waits else None
        for at, change in damages:
            # The data of the lock itself come first, those of processes and of other locks later.
            if places := sorted(storage.places(name), key=lambda place: name not in repr(place)):
                place = places[at % len(places)]
                note(f"{change} at {place}")
                if isinstance(change, Other):
                    storage.replace(place, change.kind, change.data)
                elif callable(change):
                    storage.change(place, change)
        ends = made(two, name, calls, IO_TIMEOUT)
        if waiting is not None:
            ends += waiting.result()
        if grant is not None:
            with suppress(distlock.LockError):
                grant.release()
        storage.clear(name)
        note(str(ends))
        print("ENDS", situation, damages, ends)
        # The next in line of what was taken away asks again within a second, and a session may have to end.
        for locks in (one, two):
            recovered(locks, name)


def recovered(locks: distlock.Locks, name: str) -> None:
    """After the remedy there are locks again. The first call may still tell of what it finds cleared."""
    with suppress(distlock.BackendUnavailable, distlock.LockLost), locks.lock(name, timeout=PATIENCE):
        return
    with locks.lock(name, timeout=PATIENCE):
        pass
