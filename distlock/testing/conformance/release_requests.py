"""The conformance kit: requests to release a lock, through `distlock.connect`. The capability is `notify`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import distlock
from distlock.testing.fixtures import ConformanceFixtures, Connect
from distlock.testing.waits import PATIENCE, engine_of, wait_for_waiters, wait_until, wait_until_queued

#: Seconds of a lease. Without pushes, a holder learns of a request when it renews, every third of its lease.
TTL = 3.0


def take(locks: distlock.Locks, *names: str, **words: object) -> distlock.Grant:
    grant = locks.lock(*names, **words).acquire()  # type: ignore[arg-type]
    assert grant is not None
    return grant


def wait_until_asked(grant: distlock.Grant) -> None:
    wait_until(lambda: grant.release_requested, "the holder is told that its lock is wanted back")


class RevocationConformance(ConformanceFixtures):
    """Tests for backends with the capability `notify`."""

    @pytest.fixture
    def holder(
        self, connect: Connect, other: distlock.Locks, name: str, pool: ThreadPoolExecutor
    ) -> distlock.Locks:
        """Return a client that has waited before, so that it listens to notifications."""
        holder = connect(ttl=TTL)
        with other.lock(f"{name}_before"):
            waiting = pool.submit(take, holder, f"{name}_before")
            wait_until_queued(holder)
        waiting.result(PATIENCE).release()
        return holder

    def test_whoever_holds_the_name_is_asked_to_give_it_back(
        self, connect: Connect, other: distlock.Locks, name: str
    ) -> None:
        holder = connect(ttl=TTL)
        assert not other.request_release(name)
        grant = take(holder, name)
        assert not grant.release_requested
        assert other.request_release(name)
        wait_until_asked(grant)
        assert not grant.lost, "nothing is taken by force"
        grant.check()
        grant.release()
        assert grant.release_requested
        assert not other.request_release(name)

    def test_a_holder_that_is_asked_gives_back_where_it_can(
        self, holder: distlock.Locks, other: distlock.Locks, name: str, pool: ThreadPoolExecutor
    ) -> None:
        inside = threading.Event()

        def work() -> int:
            with holder.lock(name) as grant:
                inside.set()
                rounds, pause = 1, threading.Event()
                while not grant.release_requested:
                    pause.wait(0.005)
                    rounds += 1
                return rounds

        working = pool.submit(work)
        assert inside.wait(PATIENCE)
        assert other.request_release(name)
        take(other, name).release()
        assert working.result(PATIENCE) >= 1

    def test_a_grant_of_several_names_is_asked_by_each(
        self, holder: distlock.Locks, other: distlock.Locks, name: str
    ) -> None:
        names = f"{name}_a", f"{name}_b"
        with holder.lock(*names) as grant:
            assert other.request_release(names[1])
            wait_until_asked(grant)
            assert not grant.parts[names[0]].release_requested
            assert grant.parts[names[1]].release_requested

    def test_the_next_in_line_of_the_same_process_is_not_asked(
        self, holder: distlock.Locks, other: distlock.Locks, name: str, pool: ThreadPoolExecutor
    ) -> None:
        first = take(holder, name)
        following = pool.submit(take, holder, name)
        wait_for_waiters(holder, 1)
        assert other.request_release(name)
        wait_until_asked(first)
        first.release()
        second = following.result(PATIENCE)
        # The second waiter got its own hold from the lock service, and nobody requested its release.
        assert not second.release_requested
        assert other.request_release(name)
        wait_until_asked(second)
        second.release()

    def test_readers_that_share_a_lock_are_all_asked(
        self, holder: distlock.Locks, other: distlock.Locks, name: str
    ) -> None:
        if not engine_of(holder).backend.capabilities.read:
            pytest.skip("it has no readers")
        told: list[distlock.Grant] = []
        readers = [holder.read_lock(name, on_release_requested=told.append).acquire() for _ in range(2)]
        assert other.request_release(name)
        for reader in readers:
            assert reader is not None
            wait_until_asked(reader)
            reader.release()
        with other.write_lock(name) as grant:
            wait_until(lambda: len(told) == len(readers), "each callback is called")
            assert not grant.release_requested

    def test_the_callback_of_the_lock_may_give_it_back(
        self, holder: distlock.Locks, other: distlock.Locks, name: str
    ) -> None:
        told: list[tuple[distlock.Grant, str]] = []

        def give_back(grant: distlock.Grant) -> None:
            told.append((grant, threading.current_thread().name))
            grant.release()

        grant = take(holder, name, on_release_requested=give_back)
        assert other.request_release(name)
        take(other, name).release()
        assert [(one.names, thread) for one, thread in told] == [((name,), "distlock-release-requested")]
        assert grant.released

    def test_what_the_client_was_given_is_called_for_each_of_its_locks(
        self, connect: Connect, other: distlock.Locks, name: str
    ) -> None:
        told: list[str] = []
        holder = connect(ttl=TTL, on_release_requested=lambda grant: told.append(grant.names[0]))
        with holder.lock(name):
            assert other.request_release(name)
            assert other.request_release(name)
            wait_until(lambda: bool(told), "the client's callback is called")
            # Later renewals may find the same requests. They must not call the callback again.
            threading.Event().wait(TTL)
        assert told == [name]

    def test_a_callback_in_trouble_harms_no_lock(
        self, holder: distlock.Locks, other: distlock.Locks, name: str
    ) -> None:
        go_on, taken, told = threading.Event(), threading.Event(), threading.Event()

        def fail(grant: distlock.Grant) -> None:
            raise ZeroDivisionError

        def hang(grant: distlock.Grant) -> None:
            go_on.wait(PATIENCE)

        def take_again(grant: distlock.Grant) -> None:
            with holder.lock(*grant.names):
                taken.set()

        troubles = {f"{name}_again": take_again, f"{name}_fails": fail, f"{name}_hangs": hang}
        begun = {troubled: threading.Event() for troubled in troubles}
        grants = [
            take(holder, troubled, on_release_requested=announced(begun[troubled], trouble))
            for troubled, trouble in troubles.items()
        ]
        grants.append(take(holder, name, on_release_requested=lambda grant: told.set()))
        for troubled in troubles:
            assert other.request_release(troubled)
        assert all(event.wait(PATIENCE) for event in begun.values())
        assert other.request_release(name)
        assert told.wait(PATIENCE), "others are told meanwhile"
        # The wait is longer than a lease.
        assert other.lock(name).acquire(timeout=1.5 * TTL) is None
        for grant in grants:
            grant.check()
            grant.release()
        assert taken.wait(PATIENCE)
        go_on.set()
        for grant in grants:
            take(other, *grant.names).release()


def announced(
    begun: threading.Event, callback: Callable[[distlock.Grant], object]
) -> Callable[[distlock.Grant], object]:
    def call(grant: distlock.Grant) -> object:
        begun.set()
        return callback(grant)

    return call
