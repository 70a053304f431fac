"""A ``with`` inside another one on the same name waits for itself: an error at once that names the remedy."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

import distlock
from distlock.testing.waits import wait_until
from tests.flask_guard import guarded

Connect = Callable[..., distlock.Locks]

#: Far longer than anything here takes: an error that comes "at once" does not wait for it.
LONG = 600.0
#: The mode of a guard that takes the same lock.
GUARDS = {"lock": "exclusive", "read_lock": "shared"}


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    return f"memory://{request.node.name}"


@pytest.fixture
def connect(url: str) -> Iterator[Connect]:
    made: list[distlock.Locks] = []

    def connect(**settings: Any) -> distlock.Locks:
        made.append(distlock.connect(url, **{"timeout": LONG, **settings}))
        return made[-1]

    yield connect
    for one in made:
        one.close()


@pytest.fixture
def locks(connect: Connect) -> distlock.Locks:
    return connect()


def made(locks: distlock.Locks, written: str, **more: Any) -> distlock.Lock:
    kind, *names = written.split()
    lock: distlock.Lock = getattr(locks, kind)(*names, **more)
    return lock


@pytest.mark.parametrize("timeout", [None, 0, -1])
@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ("lock a", "lock a"),
        ("lock a", "lock a b"),
        ("lock a b", "lock b c"),
        ("lock a", "rlock a"),
        ("rlock a", "lock a"),
        ("rlock a b", "lock b"),
        ("lock b", "rlock a b"),
    ],
)
def test_it_is_an_error_at_once(locks: distlock.Locks, outer: str, inner: str, timeout: float | None) -> None:
    async def main() -> None:
        async with made(locks, outer):
            with pytest.raises(distlock.ConfigurationError, match="this very code"):
                await made(locks, inner, timeout=timeout).__aenter__()
            with pytest.raises(distlock.ConfigurationError, match="this very code"):
                made(locks, inner, timeout=timeout).__enter__()

    began = time.monotonic()
    with (
        made(locks, outer),
        pytest.raises(distlock.ConfigurationError, match=r"this very code.*rlock\('[ab]'\)"),
    ):
        made(locks, inner, timeout=timeout).__enter__()
    asyncio.run(main())
    assert time.monotonic() - began < LONG / 2
    # And nothing of it stays.
    with locks.lock("a", "b", "c"):
        pass


def test_one_lock_object_is_no_exception(locks: distlock.Locks) -> None:
    lock = locks.lock("a")
    with lock, pytest.raises(distlock.ConfigurationError, match="rlock"):
        lock.__enter__()
    with lock:
        pass


def test_another_client_of_the_same_place_gives_the_same_lock(connect: Connect) -> None:
    with connect(prefix="shop").lock("a"):
        with pytest.raises(distlock.ConfigurationError, match="this very code"):
            connect(prefix="shop").lock("a").__enter__()
        with connect(prefix="other").lock("a"):
            pass


def test_a_read_inside_another_clients_re_enters_past_a_writer_that_waits(connect: Connect) -> None:
    outer, inner, others = (connect(prefix="shop") for _ in range(3))

    def nested() -> None:
        with inner.read_lock("a") as again:
            assert again.mode == "read"

    async def anested() -> None:
        async with outer.read_lock("a"), inner.read_lock("a"):
            pass

    with ThreadPoolExecutor(1) as thread:
        with outer.read_lock("a"):
            writer = thread.submit(others.lock("a").acquire)
            wait_until(lambda: bool(others.inspect("a").queue), "the writer waits")
            nested()
            assert not writer.done()
            with pytest.raises(distlock.ConfigurationError, match="downgrade"):
                inner.lock("a").__enter__()
        granted = writer.result()
        assert granted is not None
        granted.release()
    asyncio.run(anested())
    assert not others.lock("a").locked()


def test_so_it_does_inside_another_clients_write(connect: Connect) -> None:
    outer, inner = connect(prefix="shop"), connect(prefix="shop")
    with outer.lock("a", "b"):
        with inner.read_lock("a"), inner.read_lock("b", "a"):
            pass
        with pytest.raises(distlock.ConfigurationError, match="leave the inner"):
            inner.read_lock("a", "c").__enter__()
    assert not outer.lock("a").locked()


@pytest.mark.parametrize("kind", ["lock", "read_lock"])
def test_so_it_does_inside_another_clients_guard(url: str, connect: Connect, kind: str) -> None:
    outer, inner = connect(prefix="shop"), connect(prefix="shop")

    def work() -> None:
        with inner.read_lock("a") as again:
            assert again.mode == "read"
        for refused in (inner.read_lock("a", "b"), inner.lock("a")):
            with pytest.raises(distlock.ConfigurationError, match="held by the guard around"):
                refused.__enter__()
        with ThreadPoolExecutor(1) as thread:
            # A thread that inherits the guard's context does not inherit its lock.
            other = thread.submit(contextvars.copy_context().run, inner.lock("a").acquire, timeout=0)
            assert other.result() is None

    guarded(work, "a", {"LOCATION": url, "PREFIX": "shop"}, mode=GUARDS[kind])
    assert not outer.lock("a").locked()


def test_a_read_of_more_than_the_other_client_reads_is_granted_as_any(connect: Connect) -> None:
    outer, inner = connect(prefix="shop"), connect(prefix="shop")
    with outer.read_lock("a"), inner.read_lock("a", "b") as grant:
        assert set(grant.names) == {"a", "b"}
    assert not outer.lock("a").locked()
    assert not outer.lock("b").locked()


def test_a_task_does_not_re_enter_what_its_parent_reads(connect: Connect) -> None:
    outer, inner = connect(prefix="shop"), connect(prefix="shop")

    async def hold_of_inner() -> object:
        async with inner.read_lock("a") as grant:
            return grant._hold  # type: ignore[attr-defined]

    async def main() -> None:
        async with outer.read_lock("a") as grant:
            mine = grant._hold  # type: ignore[attr-defined]
            assert await hold_of_inner() is mine
            assert await asyncio.create_task(hold_of_inner()) is not mine

    asyncio.run(main())


def test_a_guard_around_is_named(url: str, locks: distlock.Locks) -> None:
    with pytest.raises(distlock.ConfigurationError, match="the guard around this very"):
        guarded(lambda: locks.lock("a").__enter__(), "a", {"LOCATION": url})


def test_a_guard_inside_a_block_waits_and_says_for_whom(url: str, locks: distlock.Locks) -> None:
    """A site's test holds the lock, and looks how its view answers."""
    with locks.lock("a"), pytest.raises(distlock.LockTimeout, match="'with' block around this very code"):
        guarded(lambda: None, "a", {"LOCATION": url}, timeout=0.05)


def test_a_block_that_a_helper_entered_counts(locks: distlock.Locks) -> None:
    @contextmanager
    def locked() -> Iterator[None]:
        with locks.lock("a"):
            yield

    with locked(), pytest.raises(distlock.ConfigurationError, match="this very code"):
        locks.lock("a").__enter__()
    with ExitStack() as stack:
        stack.enter_context(locks.lock("a"))
        with pytest.raises(distlock.ConfigurationError, match="this very code"):
            locks.lock("a").__enter__()


def test_a_generator_that_was_left_open_in_this_thread_counts(locks: distlock.Locks) -> None:
    def rows() -> Iterator[int]:
        with locks.lock("a"):
            yield 1
            yield 2

    left_open = rows()
    next(left_open)
    with pytest.raises(distlock.ConfigurationError, match="this very code"):
        locks.lock("a").__enter__()
    assert list(left_open) == [2]
    with locks.lock("a"):
        pass


def test_a_block_that_is_over_does_not_count(locks: distlock.Locks) -> None:
    with ThreadPoolExecutor(1) as other:
        with locks.lock("a") as grant:
            # Handed to another thread, and given back there.
            other.submit(grant.release).result()
            with locks.lock("a"):
                pass
        with locks.lock("a") as grant:
            grant.release()
            with locks.lock("a"):
                pass


def test_a_lost_one_does_not_either(connect: Connect) -> None:
    locks, other = connect(ttl=30), connect()
    with pytest.raises(distlock.LostInside), locks.lock("a"):  # noqa: PT012
        locks.close()
        with other.lock("a"):
            pass


def test_acquire_waits_as_that_of_threading_does(
    locks: distlock.Locks, caplog: pytest.LogCaptureFixture
) -> None:
    lock = locks.lock("a")
    with lock, caplog.at_level(logging.WARNING, "distlock"):
        assert lock.acquire(timeout=0) is None
        assert caplog.messages == []
        assert lock.acquire(timeout=0.05) is None
        assert "a 'with' block around this very code, which waits for itself" in caplog.messages[-1]
    with ThreadPoolExecutor(1) as other:
        # One who holds it and asks again is served when another thread releases it: CPython's test_reacquire.
        assert lock.acquire()
        again = other.submit(lock.acquire)
        lock.release()
        assert again.result(60)
        lock.release()


@pytest.mark.parametrize("timeout", [LONG, 0])
def test_a_write_of_several_names_that_the_caller_reads_is_refused_before_any_is_waited_for(
    connect: Connect, timeout: float
) -> None:
    locks, other = connect(), connect()
    elsewhere, reader = other.lock("a").acquire(), locks.read_lock("b").acquire()
    assert elsewhere is not None
    assert reader is not None
    with locks.read_lock("c"):
        with pytest.raises(distlock.ConfigurationError, match="lock 'b' can't be taken to write"):
            locks.write_lock("a", "b").acquire(timeout=timeout)
        with (
            pytest.raises(distlock.ConfigurationError, match="lock 'b' can't be taken to write"),
            locks.write_lock("a", "b", timeout=timeout),
        ):
            pass
        # Others have to wait, as ever, and a reader may read again.
        with ThreadPoolExecutor(1) as thread:
            assert thread.submit(locks.write_lock("b", "d").acquire, timeout=0.05).result() is None
        with locks.read_lock("b", "c"):
            pass
    reader.release()
    elsewhere.release()
    with locks.write_lock("a", "b", "c", timeout=0):
        pass


def test_a_timeout_says_which_acquire_it_waited_for(connect: Connect) -> None:
    locks = connect(timeout=0.05)
    grant = locks.lock("a").acquire()
    assert grant is not None
    with pytest.raises(distlock.LockTimeout, match=r"acquire\(\) of this very thread"), locks.lock("a"):
        pass
    with ThreadPoolExecutor(1) as other, pytest.raises(distlock.LockTimeout, match="somebody else"):
        other.submit(locks.lock("a").__enter__).result()
    grant.release()


def test_threads_and_tasks_that_were_started_inside_wait_as_ever(connect: Connect) -> None:
    locks = connect(timeout=0.05)

    async def enter() -> None:
        async with locks.lock("a"):
            pass

    async def main() -> None:
        async with locks.lock("a"):
            told = await asyncio.gather(enter(), enter(), return_exceptions=True)
            assert [type(error) for error in told] == [distlock.LockTimeout] * 2
            assert "code that started this thread or task" in str(told[0])
            # To one that is awaited nobody would ever give it: see `tests.core.test_awaited`.
            assert await asyncio.to_thread(locks.lock("a").acquire, timeout=0.05) is None
            patient = asyncio.create_task(locks.lock("a").aacquire(timeout=60))
            await asyncio.sleep(0)
        assert await patient

    asyncio.run(main())


def test_a_pool_that_runs_parts_of_two_calls_in_one_thread_is_not_one_caller(connect: Connect) -> None:
    """As anyio does for the sync generators of FastAPI's dependencies."""
    locks = connect(timeout=0.05)
    first, second = contextvars.copy_context(), contextvars.copy_context()
    one, two = locks.lock("a"), locks.lock("a")
    with ThreadPoolExecutor(1) as thread, ThreadPoolExecutor(1) as other:
        thread.submit(first.run, one.__enter__).result()
        with pytest.raises(distlock.LockTimeout):
            thread.submit(second.run, two.__enter__).result()
        other.submit(first.run, one.__exit__, None, None, None).result()
        thread.submit(second.run, two.__enter__).result()
        thread.submit(second.run, two.__exit__, None, None, None).result()
