from __future__ import annotations

import asyncio
import gc
import importlib
import inspect
import math
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

import distlock
from distlock.testing.waits import engine_of


def test_connecting_reaches_for_nothing() -> None:
    before = set(threading.enumerate())
    distlock.connect("redis://127.0.0.1:1/0").lock("product_1")
    distlock.connect("file:///nowhere/at/all").lock("product_1")
    assert not set(threading.enumerate()) - before


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"ttl": 0}, "ttl=0"),
        ({"ttl": -1}, "ttl=-1"),
        ({"ttl": math.inf}, "ttl=inf"),
        ({"ttl": "10"}, "ttl='10'"),
        ({"ttl": True}, "ttl=True"),
        ({"timeout": -2}, "timeout=-2"),
        ({"max_hold": 0}, "max_hold=0"),
        ({"max_waiters": 0}, "max_waiters=0"),
        ({"max_waiters": 1.5}, "max_waiters=1.5"),
        ({"max_waiters_total": True}, "max_waiters_total=True"),
        ({"epoch": 0}, "epoch=0"),
        ({"prefix": "a:b"}, "prefix 'a:b'"),
        ({"colour": "red"}, "no option 'colour'"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, object], said: str) -> None:
    with pytest.raises(distlock.ConfigurationError, match=said):
        distlock.connect("memory://x", **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("word", ["blocking_timeout", "expire", "auto_renewal", "lease_time", "thread_local"])
def test_the_words_of_other_libraries_are_translated(word: str) -> None:
    with pytest.raises(TypeError, match=f"'{word}'. Here that is"):
        distlock.connect("memory://x", **{word: 1})
    with pytest.raises(TypeError, match=f"'{word}'. Here that is"):
        distlock.connect("memory://x").lock("product_1", **{word: 1})


def test_unknown_words_and_no_names_are_refused() -> None:
    locks = distlock.connect("memory://x")
    with pytest.raises(TypeError, match="no argument 'colour'"):
        locks.lock("product_1", colour="red")
    with pytest.raises(TypeError, match="at least one name"):
        locks.lock()
    with pytest.raises(distlock.InvalidName):
        locks.lock("product_1", "")
    with pytest.raises(distlock.ConfigurationError, match="ttl"):
        locks.lock("product_1", ttl=0)
    with pytest.raises(ValueError, match="non-negative"):
        locks.lock("product_1", timeout=-3)


def test_a_misspelt_argument_of_connect_is_recognised() -> None:
    with pytest.raises(distlock.ConfigurationError, match="Did you mean 'prefix'"):
        distlock.connect("memory://", prefx="shop")
    with pytest.raises(distlock.ConfigurationError, match="Did you mean 'epoch'"):
        distlock.connect("memory://", FENCE_EPOCH=2)  # as the setting is written


@pytest.mark.parametrize("argument", [*inspect.signature(distlock.connect).parameters][1:-1])
def test_each_argument_of_connect_is_suggested(argument: str) -> None:
    with pytest.raises(distlock.ConfigurationError, match=f"Did you mean '{argument}'"):
        distlock.connect("memory://", **{f"{argument}_": None})


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("carrier-pigeon://x", "No lock service is known as 'carrier-pigeon'"),
        ("postgres://x", r"No lock service is known as 'postgres'\. Did you mean postgresql://\?"),
        ("mysql+pymysql://x", r"Did you mean mysql://\?"),
        ("valkeys://x", r"Did you mean rediss://\?"),
        ("nowhere.at.all.Backend://", "No lock service|Check the dotted path"),
        ("", "has no scheme.*redis://localhost"),
        ("database", "'database' can't be connected to.*DISTLOCK ="),
    ],
)
def test_an_unknown_service_is_named(url: str, said: str) -> None:
    with pytest.raises(distlock.ConfigurationError, match=said):
        distlock.connect(url)


@pytest.mark.parametrize(
    "url",
    [
        "redis://u:hunter2@[::1/0",
        "redis://u:hunter2@::1]/0",
        "redis://u:hunter2@host:port/0",
        "redis://u:hunter2@\u2100/0",
        "rediss://u:hunter2@[::1/0",
        "zookeeper://u:hunter2@[::1/shop",
        "zookeeper://u:hunter2@\u2100/shop",
        "file://u:hunter2@[::1",
        "unix://u:hunter2@[::1",
        "[::1hunter2",
    ],
)
def test_a_url_that_cannot_be_read_is_a_wrong_setting_and_is_not_shown(url: str) -> None:
    with pytest.raises(distlock.ConfigurationError) as caught:
        distlock.connect(url)
    assert caught.value.__cause__ is None
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "backend",
    ["threading.Lock", "threading.Thread", "collections.OrderedDict", "logging.handlers", "math.pi"],
)
def test_a_dotted_path_to_something_else_is_told_what_a_backend_is(backend: str) -> None:
    with pytest.raises(
        distlock.ConfigurationError, match=r"no backend of distlock.*written as a word: memory"
    ):
        distlock.connect("redis://localhost", backend=backend)


def test_a_lock_above_a_function_is_told_what_to_write() -> None:
    lock = distlock.connect("memory://x").lock("product_1")
    with pytest.raises(TypeError, match=r"write 'with locks.lock\('product_1'\):' inside of the function"):

        @lock
        def reduce_stock() -> None: ...


def test_a_dotted_path_names_a_backend_of_the_users_own() -> None:
    locks = distlock.connect("mine://x", backend="distlock.backends.memory.MemoryBackend")
    with locks.lock("product_1"):
        pass
    for wrong in ("distlock.backends.memory.Nothing", "no_such_package.Backend"):
        with pytest.raises(distlock.ConfigurationError, match="dotted path"):
            distlock.connect("mine://x", backend=wrong)
    locks.close()


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("cluster", "ClusterBackend"),
        ("memory", "MemoryBackend"),
        ("redis", "RedisBackend"),
        ("redlock", "RedlockBackend"),
        ("sentinel", "SentinelBackend"),
        ("zookeeper", "ZooKeeperBackend"),
    ],
)
def test_a_backend_is_at_the_dotted_path_of_its_folder(folder: str, name: str) -> None:
    assert hasattr(importlib.import_module(f"distlock.backends.{folder}"), name)


def test_a_client_that_was_closed_may_be_used_again() -> None:
    locks = distlock.connect("memory://again")
    grant = locks.lock("product_1").acquire()
    assert grant is not None
    locks.close()
    assert grant.lost
    with locks.lock("product_1") as again:
        assert not again.lost
    locks.close()


def test_prefixes_keep_clients_apart() -> None:
    one, two = (distlock.connect("memory://prefixes", prefix=prefix) for prefix in ("a", "b"))
    with one.lock("product_1"), two.lock("product_1", timeout=0):
        pass
    one.close()
    two.close()


def test_an_error_in_the_body_releases_and_is_raised() -> None:
    locks = distlock.connect("memory://errors")
    lock = locks.lock("product_1")
    with pytest.raises(ZeroDivisionError), lock:
        1 / 0  # noqa: B018
    assert not lock.locked()
    locks.close()


def test_a_grant_says_what_it_is() -> None:
    locks = distlock.connect("memory://repr", epoch=7)
    grant = locks.lock("product_1").acquire()
    assert grant is not None
    assert repr(grant) == "<Grant 'product_1' fence=7:1 held>"
    assert grant.fence == distlock.Fence(7, 1) < distlock.Fence(8, 0)
    assert grant.names == ("product_1",)
    assert 0 < grant.remaining() < 10
    grant.release()
    assert grant.released
    assert not grant.lost
    assert grant.remaining() == 0
    with pytest.raises(distlock.NotHeld, match="released before it was checked"):
        grant.check()
    locks.close()


def test_two_threads_may_use_one_lock_object_in_with() -> None:
    """A decorator keeps one lock object for all its calls (https://github.com/Opus10/django-pglock)."""
    locks = distlock.connect("memory://shared")
    lock = locks.lock("product_1", timeout=20)
    inside = 0

    def work() -> None:
        nonlocal inside
        for _ in range(100):
            with lock:
                inside += 1
                assert inside == 1
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not lock.locked()
    locks.close()


def test_a_block_may_be_left_in_another_thread_than_it_was_entered_in() -> None:
    """Frameworks run a generator that has a lock around its yield so, as FastAPI its dependencies."""
    locks = distlock.connect("memory://left-in-a-thread")
    lock = locks.lock("product_1", timeout=0)
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        for _ in range(3):
            one.submit(lock.__enter__).result()
            assert lock.locked()
            other.submit(lock.__exit__, None, None, None).result()
            assert not lock.locked()
    locks.close()


def test_a_block_may_be_left_in_another_task_than_it_was_entered_in() -> None:
    locks = distlock.connect("memory://left-in-a-task")
    lock = locks.lock("product_1", timeout=0)

    async def work() -> None:
        await asyncio.create_task(lock.__aenter__())
        assert lock.locked()
        await asyncio.create_task(lock.__aexit__(None, None, None))

    asyncio.run(work())
    assert not lock.locked()
    locks.close()


def test_a_plain_with_that_stops_its_event_loop_is_told_what_to_write() -> None:
    locks = distlock.connect("memory://loop", timeout=0)

    async def wait() -> None:
        with pytest.raises(distlock.LockTimeout, match="write 'async with'"), locks.lock("a"):
            pass
        with pytest.raises(distlock.LockTimeout) as caught:
            async with locks.lock("a"):
                pass
        assert "async with" not in str(caught.value)

    async def main() -> None:
        async with locks.lock("a"):
            await asyncio.create_task(wait())

    asyncio.run(main())
    with locks.lock("a"), ThreadPoolExecutor(1) as pool, pytest.raises(distlock.LockTimeout) as caught:
        pool.submit(locks.lock("a").__enter__).result()
    assert "async with" not in str(caught.value)


def test_the_end_of_a_block_takes_nothing_from_others() -> None:
    locks = distlock.connect("memory://left-early")
    lock = locks.lock("product_1", timeout=0)
    with ThreadPoolExecutor(1) as other:
        with lock:
            lock.release()
            other.submit(lock.__enter__).result()
        assert lock.locked()
        other.submit(lock.__exit__, None, None, None).result()
    with lock:
        lock.release()
        lock.acquire()
    assert not lock.locked()
    locks.close()


def test_a_forgotten_client_is_collected_after_it_was_closed() -> None:
    locks = distlock.connect("memory://forgotten")
    with locks.lock("product_1"):
        pass
    engine = weakref.ref(engine_of(locks))
    locks.close()
    del locks
    gc.collect()
    assert engine() is None


@pytest.mark.parametrize("way", ["with", "acquire"])
def test_a_lock_that_is_done_leaves_nothing_to_the_garbage_collector(way: str) -> None:
    locks = distlock.connect("memory://no-garbage")

    def pair() -> None:
        if way == "with":
            with locks.lock("product_1"):
                return
        grant = locks.lock("product_1").acquire()
        assert grant is not None
        grant.release()

    pair()
    gc.collect()
    # What threads of earlier tests still hold, and drop meanwhile, is none of this lock's.
    gc.freeze()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for _ in range(10):
            pair()
        gc.collect()
        left = [type(one).__name__ for one in gc.garbage if type(one).__module__.startswith("distlock.")]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.unfreeze()
        gc.enable()
        locks.close()
    assert left == []
