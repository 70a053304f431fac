"""Answers that are cut, doubled, reordered, or made up, between a client and each real server."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

import distlock
from distlock.testing.waits import PATIENCE, engine_of
from loadtest.servers.databases import own_mariadb, own_postgresql
from tests.hostile.calls import ALL_CALLS, CALLS, MORE_CALLS, made, no_traceback
from tests.hostile.fuzz import examples
from tests.hostile.memory import LITTLE, peak, reset_peak
from tests.hostile.wire import KINDS, UNEXPECTED, AnswerChange, ChangingProxy
from tests.redis_server import redis_server
from tests.zookeeper_server import zookeeper_server

# Other threads of the process draw numbers while hypothesis does. It warns of that with a long text.
pytestmark = pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")

__all__ = ["redis_server", "zookeeper_server"]

IO_TIMEOUT = 0.5
#: How long a lock lives without renewal, seconds. MariaDB counts whole ones.
TTL = 2.0
numbers = itertools.count()


class Wire(NamedTuple):
    proxy: ChangingProxy
    #: Through the proxy, and beside it.
    locks: distlock.Locks
    direct: distlock.Locks
    is_whole: bool


@pytest.fixture(scope="module", params=UNEXPECTED)
def wire(request: pytest.FixtureRequest) -> Iterator[Wire]:
    with ExitStack() as running:
        if request.param in ("redis", "zookeeper"):
            url = request.getfixturevalue(f"{request.param}_server").url
        else:
            own = own_postgresql if request.param == "postgresql" else own_mariadb
            url = running.enter_context(own()).url
        proxy = running.enter_context(ChangingProxy(url, UNEXPECTED[request.param]))
        words = {"prefix": "wire", "ttl": TTL, "timeout": PATIENCE, "io_timeout": IO_TIMEOUT}
        direct = distlock.connect(url, **{**words, "io_timeout": 5.0})
        running.callback(direct.close)
        if request.param in ("postgresql", "mysql"):
            direct.namespace.prepare()
        locks = distlock.connect(proxy.url, **words)
        running.callback(locks.close)
        yield Wire(proxy, locks, direct, is_whole=request.param in ("redis", "zookeeper"))


def renewed(locks: distlock.Locks, name: str) -> None:
    """Hold the lock until it is renewed or lost."""
    pause = threading.Event()
    with locks.lock(name, timeout=1) as grant:
        left, until = grant.remaining(), time.monotonic() + TTL + IO_TIMEOUT
        while not grant.lost and grant.remaining() <= left and time.monotonic() < until:
            left = min(left, grant.remaining())
            pause.wait(0.05)


def handed_over(locks: distlock.Locks, direct: distlock.Locks, name: str) -> None:
    """Wait for the lock, which another client gives back meanwhile."""
    grant = direct.lock(name).acquire()
    assert grant is not None
    giving = threading.Timer(0.2, grant.release)
    giving.start()
    try:
        with locks.lock(name, timeout=1) as ours:
            ours.check()
    finally:
        giving.join()


def no_false_grant(wire: Wire, name: str, as_task: bool) -> None:
    """A caller that is granted the lock has it on the server, as another client sees it."""
    lock = wire.locks.lock(name, timeout=1)
    grant = asyncio.run(lock.aacquire()) if as_task else lock.acquire()
    if grant is None:
        return
    is_known = wire.direct.lock(name).locked()
    assert is_known or grant.lost or not grant.remaining(), f"{grant}: the server does not know it"
    grant.release()


changes = st.builds(
    AnswerChange,
    st.sampled_from([*KINDS, "other type", "giant"]),
    after=st.integers(0, 6),
    at=st.floats(0, 1),
    seed=st.integers(0, 1000),
    lasts=st.booleans(),
)


@pytest.mark.attack("A43")
@examples(15, shrinks=False)
@given(
    change=changes,
    call=st.sampled_from([*CALLS, *MORE_CALLS, "renewed", "handed over", "granted", "granted task"]),
    is_fresh=st.booleans(),
)
def test_changed_answers_are_an_error_in_time(
    wire: Wire, change: AnswerChange, call: str, is_fresh: bool
) -> None:
    proxy, locks, direct, is_whole = wire
    name = f"name{next(numbers)}"
    if call in MORE_CALLS and not is_whole:
        call = "lock"
    more: dict[str, Callable[[distlock.Locks, str], None]] = {
        "renewed": renewed,
        "handed over": lambda locks, name: handed_over(locks, direct, name),
        "granted": lambda locks, name: no_false_grant(wire, name, as_task=False),
        "granted task": lambda locks, name: no_false_grant(wire, name, as_task=True),
    }
    ALL_CALLS.update(more)
    if is_fresh:
        # The connections are new, so the change may meet their greetings and logins.
        proxy.stop()
    else:
        recovered(locks, f"{name} before")
    reset_peak()
    before = peak()
    with no_traceback():
        proxy.apply(change)
        try:
            ends = made(locks, name, [call], IO_TIMEOUT)
        finally:
            proxy.stop()
        note(f"{ends}, an answer was changed: {proxy.has_changed}")
    assert peak() - before < LITTLE
    # Nothing stays held: whatever the client believes, it is over with the ttl.
    with direct.lock(name, timeout=TTL + PATIENCE):
        pass
    recovered(locks, name)


def recovered(locks: distlock.Locks, name: str) -> None:
    """The client works again as soon as its answers do. The first calls may meet a broken connection."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with suppress(distlock.BackendUnavailable, distlock.LockLost), locks.lock(name, timeout=PATIENCE):
            return
    with locks.lock(name, timeout=PATIENCE):
        pass


@pytest.mark.parametrize("wire", ["postgresql"], indirect=True)
@pytest.mark.parametrize("kind", [b"G", b"H", b"W"])
def test_a_copy_that_nobody_asked_for_ends_the_session(wire: Wire, kind: bytes) -> None:
    """The answer begins one, and libpq goes on to say so as long as it is asked for results."""
    name = f"name{next(numbers)}"
    recovered(wire.locks, name)
    copies = [one for one in UNEXPECTED["postgresql"].others if one[:1] == kind]
    wire.proxy.apply(
        AnswerChange("other type", 0, at=0, seed=UNEXPECTED["postgresql"].others.index(copies[0]), lasts=True)
    )
    try:
        with no_traceback():
            assert made(wire.locks, name, ["lock"], IO_TIMEOUT) == ["lock: BackendUnavailable"]
    finally:
        wire.proxy.stop()
    recovered(wire.locks, name)


@pytest.mark.parametrize("wire", ["mysql"], indirect=True)
def test_a_local_file_that_the_server_asks_for_ends_the_session(wire: Wire) -> None:
    name = f"name{next(numbers)}"
    recovered(wire.locks, name)
    [file] = [at for at, one in enumerate(UNEXPECTED["mysql"].others) if b"/etc/passwd" in one]
    wire.proxy.apply(AnswerChange("other type", 0, at=0, seed=file))
    with no_traceback():
        assert made(wire.locks, name, ["lock"], IO_TIMEOUT) == ["lock: BackendUnavailable"]
    recovered(wire.locks, name)


@pytest.mark.parametrize("wire", ["postgresql"], indirect=True)
def test_a_row_that_never_comes_is_an_error_of_distlock(wire: Wire) -> None:
    """The answers to the insertion and to the query after it have no rows."""
    recovered(wire.locks, f"name{next(numbers)}")
    [no_rows] = [at for at, one in enumerate(UNEXPECTED["postgresql"].others) if b"SELECT 0" in one]
    wire.proxy.apply(AnswerChange("other type", 0, at=0, seed=no_rows, lasts=True))
    try:
        with no_traceback():
            ends = made(wire.locks, f"name{next(numbers)}", ["lock"], IO_TIMEOUT)
    finally:
        wire.proxy.stop()
    assert ends == ["lock: BackendUnavailable"]


SQL = ["postgresql", "mysql"]


@pytest.mark.parametrize("wire", SQL, indirect=True)
@pytest.mark.parametrize("after", range(4))
def test_an_answer_that_the_library_or_we_can_not_read_is_an_error_of_distlock(
    wire: Wire, after: int
) -> None:
    """It is text that is none, or a number that is none: libraries raise errors of Python for those."""
    name = f"name{next(numbers)}"
    recovered(wire.locks, name)
    kind = "mysql" if wire.proxy.url.startswith("mysql") else "postgresql"
    [unreadable] = [
        at for at, one in enumerate(UNEXPECTED[kind].others) if b"no 1" in one or b"\x00\x02\xff\xfe" in one
    ]
    wire.proxy.apply(AnswerChange("other type", after, at=0, seed=unreadable, lasts=True))
    try:
        with no_traceback():
            ends = made(wire.locks, name, ["lock"] * 3, IO_TIMEOUT)
    finally:
        wire.proxy.stop()
    assert ends[-1] == "lock: BackendUnavailable"
    recovered(wire.locks, name)


@pytest.mark.parametrize("wire", SQL, indirect=True)
def test_a_session_whose_answer_can_not_be_read_is_used_no_more(wire: Wire) -> None:
    """Its next answers may be those of other statements."""
    name = f"name{next(numbers)}"
    recovered(wire.locks, name)
    backend: Any = engine_of(wire.locks).backend
    sessions = backend._pool
    [main] = [one.number for one in sessions._all if one.main]
    kind = "mysql" if wire.proxy.url.startswith("mysql") else "postgresql"
    # MySQL answers one statement, where there are two; PostgreSQL has one column, where there are more.
    sign = {"mysql": b"\x07\0\0\1\0\0\0\2", "postgresql": b"\0\1\xff\xff\xff\xff"}[kind]
    [wrong] = [at for at, one in enumerate(UNEXPECTED[kind].others) if sign in one]
    wire.proxy.apply(AnswerChange("other type", 0, at=0, seed=wrong))
    with pytest.raises(distlock.BackendUnavailable, match="an answer can't be read"):
        wire.locks.inspect(name)
    assert not sessions.has(main)
    wire.locks.inspect(name)


@pytest.mark.parametrize("wire", SQL, indirect=True)
@pytest.mark.parametrize(
    ("method", "error"),
    [("lock_of", TypeError), ("take", IndexError), ("take", ValueError), ("release", KeyError)],
)
def test_an_error_in_our_own_code_is_not_taken_for_a_bad_answer(
    wire: Wire, method: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that looks like an outage is looked for at the server."""
    name = f"name{next(numbers)}"
    recovered(wire.locks, name)

    def planted(*_: object, **__: object) -> None:
        raise error("a mistake of ours")

    with monkeypatch.context() as patch:
        patch.setattr(engine_of(wire.locks).backend._dialect, method, planted, raising=True)
        with pytest.raises(error, match="a mistake of ours"), wire.locks.lock(name, timeout=0):
            pass
    recovered(wire.locks, name)


@pytest.mark.attack("A43")
@pytest.mark.parametrize("kind", ["double", "reorder", "repeat"])
def test_an_answer_that_belongs_to_another_call_grants_nothing(wire: Wire, kind: str) -> None:
    assert [
        false
        for after in range(6)
        for false in falsely_granted(wire, AnswerChange(kind, after, at=0, seed=0))
    ] == []


#: These functions compare an answer with its question. Each stands beside one that does not.
CREDULOUS = {
    "redis": (
        "distlock.backends.redis.scripts.Script.accepts",
        lambda script, reply, token: isinstance(reply, list),
    ),
    "mysql": (
        "distlock.backends.sql.mysql_connection.MySQLConnection._refuse_leftovers",
        lambda connection: None,
    ),
}


@pytest.mark.attack("A43", control=True)
@pytest.mark.parametrize("wire", CREDULOUS, indirect=True)
def test_where_any_answer_is_believed_one_lock_is_held_by_two(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    seam, credulous = CREDULOUS[wire.proxy.url.partition(":")[0]]
    monkeypatch.setattr(seam, credulous)
    changes = [AnswerChange(kind, after, at=0, seed=0) for kind in ("double", "repeat") for after in range(6)]
    # A copy does harm only if it arrives between two statements, so one round may do none.
    rounds = changes * 20
    assert any("'held" in false for change in rounds for false in falsely_granted(wire, change))


def falsely_granted(wire: Wire, change: AnswerChange) -> list[str]:
    """Lock names while the proxy applies *change*: some are free, and others held by the other client.

    Return those that the server has not granted.
    """
    free, held = ([f"{kind}{next(numbers)}" for _ in range(3)] for kind in ("free", "held"))
    for name in (*free, *held):
        recovered(wire.locks, name)
    taken = [wire.direct.lock(name).acquire() for name in held]
    wire.proxy.apply(change)
    wire.proxy.is_late = change.kind == "repeat"
    ours: list[distlock.Grant] = []
    false = []
    try:
        # A copied answer for a free name must not pass for an answer about the held one.
        for name in (free[0], free[1], held[0], free[2], held[1], held[2]):
            wire.proxy.send_late()
            with suppress(distlock.BackendUnavailable, distlock.LockLost):
                grant = wire.locks.lock(name, timeout=0).acquire()
                if grant is None:
                    continue
                ours.append(grant)
                if name in held or not wire.direct.lock(name).locked():
                    false.append(f"{change.kind} after {change.after}: {grant}")
    finally:
        wire.proxy.stop()
        for one in [*taken, *ours]:
            assert one is not None
            with suppress(distlock.LockError):
                one.release()
    return false


@pytest.mark.attack("A43")
@pytest.mark.parametrize("seed", range(4))
def test_an_answer_without_end_is_not_kept(wire: Wire, seed: int) -> None:
    """A giant answer is announced, and comes as quickly as the client reads."""
    proxy, locks, direct, _ = wire
    name = f"name{next(numbers)}"
    recovered(locks, name)
    reset_peak()
    before = peak()
    proxy.apply(AnswerChange("giant", after=0, at=0, seed=seed, lasts=True))
    proxy.floods = True
    try:
        with no_traceback():
            ends = made(locks, name, ["lock"], IO_TIMEOUT)
    finally:
        proxy.stop()
    assert ends != ["lock: well"]
    assert peak() - before < LITTLE
    with direct.lock(name, timeout=TTL + PATIENCE):
        pass
    recovered(locks, name)
