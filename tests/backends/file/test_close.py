"""A close while other threads are in the middle of a call."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import distlock
from distlock.backends.base import Acquired, LockRequest
from distlock.backends.file.directory import Directory
from distlock.backends.file.notifications import FileListener
from distlock.backends.file.trusted_directories import Tree
from distlock.errors import BackendUnavailable, ConfigurationError
from distlock.testing.protocol_fixtures import Contender, RecordingSink, ask
from tests.backend_class import backend_class
from tests.backends.file.peer import PATIENCE, Peer
from tests.core.interrupts import Interrupted
from tests.redis_server import eventually

FileBackend = backend_class("file:///nowhere")

StartPeer = Callable[..., Peer]

CALLS: dict[str, Callable[[FileBackend, LockRequest], object]] = {
    "request": FileBackend.request,
    "cancel": FileBackend.cancel,
    "renew": lambda backend, ask: backend.renew([ask]),
    "release": FileBackend.release,
    "locked": lambda backend, ask: backend.locked(ask.key),
}


#: Those of the test that runs; they are let go when it failed as well.
holds: list[Hold] = []


class Hold:
    """Stops the first call of a method, just before or just after it, until it is let go."""

    def __init__(self, owner: object, name: str, *, after: bool = False) -> None:
        self._inside, self._go = threading.Event(), threading.Event()
        original = getattr(owner, name)

        def held(*arguments: Any) -> Any:
            result = original(*arguments) if after else None
            if not self._inside.is_set():
                self._inside.set()
                assert self._go.wait(PATIENCE)
            return result if after else original(*arguments)

        setattr(owner, name, held)
        holds.append(self)

    def reached(self) -> None:
        assert self._inside.wait(PATIENCE)

    def abandon(self) -> None:
        self._go.set()


@pytest.fixture
def thread() -> Iterator[Callable[..., Future[Any]]]:
    with ThreadPoolExecutor(4) as pool:
        yield pool.submit
        while holds:
            holds.pop().abandon()


@pytest.fixture
def reuse(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Opens one file until it has the descriptor's number, if it is free."""
    opened: list[int] = []
    path = tmp_path / "precious"

    def open_as(descriptor: int) -> Path:
        while not opened or opened[-1] < descriptor:
            opened.append(os.open(path, os.O_RDWR | os.O_CREAT))
        return path

    yield open_as
    for each in opened:
        with suppress(OSError):
            os.close(each)


def presence_of(contender: Contender) -> Any:
    """Its presence, connected."""
    # To look makes no directory.
    contender.backend.renew([])
    assert isinstance(contender.backend, FileBackend)
    presence = contender.backend._presence
    assert presence is not None
    return presence


def entries(directory: Path) -> int:
    return len(list(directory.glob("v2/queue/*/*")))


def test_a_request_that_a_close_overtook_writes_into_no_other_file(
    one: Contender,
    key: str,
    directory: Path,
    thread: Callable[..., Future[Any]],
    reuse: Callable[[int], Path],
) -> None:
    presence = presence_of(one)
    hold = Hold(presence.queues, "join")
    answer = thread(one.backend.request, ask(key))
    hold.reached()
    one.backend.close()
    precious = reuse(presence.locks.descriptor)
    hold.abandon()
    with pytest.raises(BackendUnavailable, match="closed"):
        answer.result(PATIENCE)
    assert precious.read_bytes() == b""
    assert entries(directory) == 0
    assert not presence.locks.intact()


def test_who_joined_the_line_of_a_closed_client_leaves_it_and_tells_the_next(
    one: Contender, two: Contender, key: str, thread: Callable[..., Future[Any]]
) -> None:
    hold = Hold(presence_of(one).queues, "join", after=True)
    answer = thread(one.backend.request, ask(key))
    hold.reached()
    one.backend.close()
    mine = ask(key)
    two.queued(mine)
    hold.abandon()
    with pytest.raises(BackendUnavailable, match="closed"):
        answer.result(PATIENCE)
    assert two.sink.wait_for_notification(key, PATIENCE)
    two.held(mine)


@pytest.mark.parametrize("name", CALLS)
def test_the_descriptor_outlives_every_call_and_no_longer(
    one: Contender, key: str, directory: Path, thread: Callable[..., Future[Any]], name: str
) -> None:
    presence, mine = presence_of(one), ask(key)
    one.held(mine)
    presence.ours.held.clear()
    hold = Hold(presence.queues, "entries")
    answer = thread(CALLS[name], one.backend, mine)
    hold.reached()
    one.backend.close()
    assert presence.locks.intact()
    hold.abandon()
    with suppress(BackendUnavailable):
        assert answer.result(PATIENCE) is False
    assert not presence.locks.intact()
    assert entries(directory) == 0


@pytest.mark.parametrize("name", ["cancel", "renew"])
def test_nobody_is_told_that_a_closed_client_holds(
    one: Contender, key: str, thread: Callable[..., Future[Any]], name: str
) -> None:
    presence, mine = presence_of(one), ask(key)
    one.held(mine)
    presence.ours.held.clear()
    hold = Hold(presence.queues, "entries", after=True)
    answer = thread(CALLS[name], one.backend, mine)
    hold.reached()
    one.backend.close()
    hold.abandon()
    with pytest.raises(BackendUnavailable, match="closed"):
        answer.result(PATIENCE)


def test_two_closes_at_once_give_back_once(
    one: Contender, two: Contender, peer: StartPeer, key: str, thread: Callable[..., Future[Any]]
) -> None:
    one.held(ask("shop:product_2"))
    mine = ask(key)
    two.held(mine)
    presence = presence_of(one)
    hold = Hold(presence.queues, "leave")
    first = thread(presence.close)
    hold.reached()
    presence.close()
    one.backend.close()
    hold.abandon()
    first.result(PATIENCE)
    assert presence_of(two).locks.intact()
    assert peer().do("request", key) == "Queued"
    assert two.backend.renew([mine]) == [True]


def test_a_deleted_directory_leaves_no_descriptor(one: Contender, key: str, directory: Path) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        one.held(ask(key))
        shutil.rmtree(directory)
    one.backend.close()
    assert len(os.listdir("/proc/self/fd")) <= descriptors


def test_a_request_that_lost_its_directory_says_so(
    one: Contender, key: str, directory: Path, thread: Callable[..., Future[Any]]
) -> None:
    presence = presence_of(one)
    hold = Hold(presence.queues, "join", after=True)
    answer = thread(one.backend.request, ask(key))
    hold.reached()
    shutil.rmtree(directory)
    one.held(ask(key))
    hold.abandon()
    with pytest.raises(BackendUnavailable, match="deleted"):
        answer.result(PATIENCE)
    assert not presence.locks.intact()


def test_a_directory_that_cannot_be_made_again_is_told_each_time(
    one: Contender, two: Contender, key: str, directory: Path
) -> None:
    two.held(ask(key))
    one.queued(ask(key))
    shutil.rmtree(directory)
    directory.touch()
    for _ in range(3):
        with pytest.raises(ConfigurationError, match="not a directory"):
            one.backend.request(ask(key))


def test_clients_that_are_dropped_leave_nothing(one: Contender, url: str, directory: Path) -> None:
    one.held(ask("shop:product_1"))
    gc.collect()
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        locks = distlock.connect(url, prefix="shop", max_hold=1)
        assert locks.lock("product_1").acquire(timeout=0.02) is None
        with locks.lock("product_2"):
            pass
        del locks

    def freed() -> bool:
        gc.collect()
        return (
            threading.active_count() <= threads
            and len(os.listdir("/proc/self/fd")) <= files
            and not list(directory.glob("v2/wake/*"))
            and entries(directory) == 1
        )

    # A keeper stays for max_hold, and for ten seconds that it is idle.
    eventually(freed, "threads, descriptors and FIFOs are given back", pause=0.5)


def drop_at_a_limit_of_threads(url: str, key: str) -> None:
    """Drop a client that holds *key*. No thread can be started to close it."""
    dropped = FileBackend(url)
    dropped.open(RecordingSink())
    assert isinstance(dropped.request(ask(key)), Acquired)
    # No address space has room for such a stack, so no thread starts.
    before = threading.stack_size(1 << 46)
    try:
        del dropped
        gc.collect()
    finally:
        threading.stack_size(before)


def test_a_client_that_is_dropped_at_a_limit_of_threads_is_closed_by_the_next_call(
    one: Contender, url: str, key: str
) -> None:
    drop_at_a_limit_of_threads(url, key)
    one.held(ask(key))


def test_what_is_wrong_where_a_dropped_client_was_is_not_told_to_another(
    one: Contender, key: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    drop_at_a_limit_of_threads(f"file://{tmp_path}/dropped", key)
    for path in (tmp_path / "dropped").rglob("*"):
        if path.is_dir():
            path.chmod(0o777)
    with caplog.at_level(logging.DEBUG, "distlock"):
        one.held(ask(key))
    [told] = caplog.messages
    assert f"could not be closed: The lock directory {tmp_path}/dropped" in told


class TestListener:
    @pytest.fixture
    def listener(self, url: str) -> Iterator[FileListener]:
        tree = Tree(Directory(url))
        listener = FileListener(tree, 1, RecordingSink())
        yield listener
        listener.close()
        tree.close()

    @pytest.fixture
    def neighbour(self, peer: StartPeer) -> Callable[[int], int]:
        """A contender of another process."""
        pid = peer().pid
        return lambda _: pid

    def test_a_closed_one_watches_nobody_and_pokes_no_other_file(
        self, listener: FileListener, neighbour: Callable[[int], int], reuse: Callable[[int], Path]
    ) -> None:
        listener.close()
        precious = reuse(listener._fifo)
        assert listener.watch(2, neighbour) is False
        listener.close()
        assert precious.read_bytes() == b""

    def test_a_close_waits_for_who_is_about_to_poke(
        self,
        listener: FileListener,
        neighbour: Callable[[int], int],
        reuse: Callable[[int], Path],
        thread: Callable[..., Future[Any]],
    ) -> None:
        hold = Hold(listener, "_poke")
        watched = thread(listener.watch, 2, neighbour)
        hold.reached()
        closed = thread(listener.close)
        # Only a close that does not wait is done by then.
        with suppress(TimeoutError):
            closed.result(0.2)
        precious = reuse(listener._fifo)
        hold.abandon()
        assert watched.result(PATIENCE) is True
        closed.result(PATIENCE)
        assert precious.read_bytes() == b""


def test_a_listener_that_may_not_set_the_rights_of_its_fifo_keeps_no_descriptor(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, mode: int) -> None:
        raise PermissionError

    tree = Tree(Directory(url))
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "fchmod", refuse)
    with pytest.raises(PermissionError):
        FileListener(tree, 1, RecordingSink())
    assert len(os.listdir("/proc/self/fd")) == before
    tree.close()


def test_a_listener_that_is_interrupted_when_it_starts_keeps_its_number_until_its_thread_ends(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    start = threading.Thread.start

    def interrupted_start(thread: threading.Thread) -> None:
        start(thread)
        started.append(thread)
        raise Interrupted

    tree = Tree(Directory(url))
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(threading.Thread, "start", interrupted_start)
    with pytest.raises(Interrupted):
        FileListener(tree, 1, RecordingSink())
    monkeypatch.undo()
    started[0].join(10)
    assert not started[0].is_alive()
    assert len(os.listdir("/proc/self/fd")) <= before
    tree.close()
