from __future__ import annotations

import asyncio
import contextvars
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

import distlock
from distlock.errors import ConfigurationError, LockLost, LockTimeout
from distlock.grants.current import current_grants
from distlock.web import guard
from distlock.web.settings.aliases import read
from distlock.web.settings.clients import Clients

numbers = itertools.count()


@pytest.fixture
def locks() -> Iterator[distlock.Locks]:
    client = distlock.connect(f"memory://guard{next(numbers)}", timeout=5)
    yield client
    client.close()


class Transactions:
    """Notes what happens, with whether the lock is held just then."""

    def __init__(self, locks: distlock.Locks, log: list[str], commits: bool = True) -> None:
        self.locks, self.log, self.commits = locks, log, commits
        self.open = False

    def refuse_open(self, names: Sequence[str], nested: bool) -> None:
        self.note("names" if not nested else "nested")
        if self.open:
            raise ConfigurationError("open")

    def note(self, what: str) -> None:
        self.log.append(f"{what}{'+' if self.locks.lock('product_1').locked() else '-'}")

    @contextmanager
    def begin(
        self, grant: distlock.Grant, fenced_in: str | None, left: Callable[[], float]
    ) -> Iterator[bool]:
        self.note("BEGIN")
        self.open = True
        try:
            yield self.commits
        except BaseException:
            self.note("ROLLBACK")
            raise
        else:
            self.note("COMMIT")
        finally:
            self.open = False


@pytest.mark.parametrize("given", [[], [0]])
def test_what_the_body_raises_is_not_turned_into_another_error(
    locks: distlock.Locks, given: list[int]
) -> None:
    def view() -> int:
        return next(iter(given)) or next(leaking())

    def leaking() -> Iterator[int]:
        yield next(iter(()))

    with pytest.raises(RuntimeError if given else StopIteration) as caught:
        guard.run(locks, ["product_1"], view, Transactions(locks, []))
    assert type(caught.value) is (RuntimeError if given else StopIteration)
    assert not locks.lock("product_1").locked()


def test_the_lock_encloses_the_transaction(locks: distlock.Locks) -> None:
    log: list[str] = []
    transactions = Transactions(locks, log)
    guard.run(locks, ["product_1"], lambda: transactions.note("view"), transactions)
    transactions.note("answer")
    assert log == ["names-", "BEGIN+", "view+", "COMMIT+", "answer-"]


def test_a_view_that_raises_is_rolled_back_before_the_release(locks: distlock.Locks) -> None:
    log: list[str] = []
    transactions = Transactions(locks, log)

    def view() -> None:
        raise SystemExit(1)

    with pytest.raises(SystemExit):
        guard.run(locks, ["product_1"], view, transactions)
    transactions.note("answer")
    assert log == ["names-", "BEGIN+", "ROLLBACK+", "answer-"]


def lose_everything(locks: distlock.Locks) -> None:
    # What an ended lease, a flushed server or a failover come to.
    locks.close()


def test_a_lock_that_is_lost_before_commit_rolls_back(locks: distlock.Locks) -> None:
    log: list[str] = []
    transactions = Transactions(locks, log)
    with pytest.raises(LockLost):
        guard.run(locks, ["product_1"], lambda: lose_everything(locks), transactions)
    assert [entry[:-1] for entry in log] == ["names", "BEGIN", "ROLLBACK"]


def test_a_lock_that_is_lost_after_the_view_committed_by_itself_changes_nothing(
    locks: distlock.Locks,
) -> None:
    def view() -> str:
        lose_everything(locks)
        return "sold"

    assert guard.run(locks, ["product_1"], view, Transactions(locks, [], commits=False)) == "sold"


def test_whoever_does_not_get_the_lock_does_not_enter(locks: distlock.Locks) -> None:
    log: list[str] = []
    with locks.lock("product_1"), pytest.raises(LockTimeout):
        guard.run(locks, ["product_1"], lambda: log.append("view"), Transactions(locks, []), timeout=0)
    assert log == []


def test_a_name_that_is_given_twice_is_one(locks: distlock.Locks) -> None:
    transactions = Transactions(locks, [])
    assert guard.run(locks, ["product_1"] * 2, lambda: "sold", transactions, timeout=0) == "sold"


def test_a_nested_guard_on_a_held_name_reenters(locks: distlock.Locks) -> None:
    log: list[str] = []
    transactions = Transactions(locks, log)

    def outer() -> str:
        return guard.run(locks, ["product_1"], lambda: "inner", transactions, timeout=0)

    assert guard.run(locks, ["product_1", "shop"], outer, transactions) == "inner"
    assert log == ["names-", "BEGIN+", "COMMIT+"]


def test_a_nested_guard_on_a_held_name_that_was_lost_does_not_enter(locks: distlock.Locks) -> None:
    def outer() -> None:
        lose_everything(locks)
        guard.run(locks, ["product_1"], lambda: pytest.fail("entered"), Transactions(locks, []))

    with pytest.raises(LockLost):
        guard.run(locks, ["product_1"], outer, Transactions(locks, [], commits=False))


def test_a_new_name_inside_an_open_transaction_is_refused(locks: distlock.Locks) -> None:
    log: list[str] = []
    transactions = Transactions(locks, log)

    def outer() -> None:
        guard.run(locks, ["product_1", "product_2"], lambda: None, transactions)

    with pytest.raises(ConfigurationError, match="open"):
        guard.run(locks, ["product_1"], outer, transactions)
    assert log == ["names-", "BEGIN+", "nested+", "ROLLBACK+"]


def test_a_thread_that_inherits_the_context_does_not_inherit_the_lock(locks: distlock.Locks) -> None:
    outcomes: list[str] = []

    def child() -> None:
        try:
            guard.run(locks, ["product_1"], lambda: outcomes.append("entered"), transactions, timeout=0)
        except LockTimeout:
            outcomes.append("kept out")

    def outer() -> None:
        thread = threading.Thread(target=contextvars.copy_context().run, args=(child,))
        thread.start()
        thread.join()

    transactions = Transactions(locks, [], commits=False)
    transactions.refuse_open = lambda names, nested: None  # type: ignore[method-assign]
    guard.run(locks, ["product_1"], outer, transactions)
    assert outcomes == ["kept out"]


def test_the_same_name_of_another_service_is_another_lock(locks: distlock.Locks) -> None:
    other = distlock.connect("memory://other")
    taken: list[bool] = []

    def outer() -> None:
        inner = Transactions(other, [])
        guard.run(other, ["product_1"], lambda: taken.append(other.lock("product_1").locked()), inner)

    guard.run(locks, ["product_1"], outer, Transactions(locks, []))
    other.close()
    assert taken == [True]


def test_the_view_sees_that_its_lock_is_wanted_back_and_commits_all_the_same(locks: distlock.Locks) -> None:
    log: list[str] = []

    def view() -> bool:
        grant = distlock.current_grant()
        assert grant is not None
        before = grant.release_requested
        assert locks.request_release("product_1")
        return not before and grant.release_requested

    assert guard.run(locks, ["product_1"], view, Transactions(locks, log))
    assert log[-1] == "COMMIT+"
    assert not locks.lock("product_1").locked()


def test_outside_of_a_guard_nothing_is_held(locks: distlock.Locks) -> None:
    guard.run(locks, ["product_1"], lambda: None, Transactions(locks, []))
    assert current_grants() == ()
    guard.check_held()


def test_a_thread_that_the_body_starts_is_told_of_a_lost_lock_before_it_commits(
    locks: distlock.Locks,
) -> None:
    def body() -> None:
        context = contextvars.copy_context()
        guard.check_held()
        # Closing the client is to a grant what an ended lease is.
        locks.close()
        told: list[BaseException] = []

        def commit() -> None:
            try:
                guard.check_held()
            except LockLost as error:
                told.append(error)

        thread = threading.Thread(target=context.run, args=[commit])
        thread.start()
        thread.join()
        assert len(told) == 1

    guard.run(locks, ["product_1"], body, Transactions(locks, [], commits=False))


def test_a_thread_that_outlives_the_body_is_not(locks: distlock.Locks) -> None:
    contexts: list[contextvars.Context] = []
    guard.run(
        locks, ["product_1"], lambda: contexts.append(contextvars.copy_context()), Transactions(locks, [])
    )
    contexts[0].run(guard.check_held)


def test_who_waits_for_the_guard_around_itself_is_told(locks: distlock.Locks) -> None:
    def view() -> None:
        with locks.lock("product_1", timeout=0):
            pass

    with pytest.raises(ConfigurationError, match=r"guard around this very code.*leave this lock out"):
        guard.run(locks, ["product_1"], view, Transactions(locks, []))
    with (
        ThreadPoolExecutor(1) as other,
        locks.lock("product_1"),
        pytest.raises(LockTimeout, match="somebody else"),
    ):
        other.submit(view).result()


def nested(outer: distlock.Locks, inner: distlock.Locks) -> list[str]:
    """What is noted of a guard by *inner* inside a guard by *outer*, both on one name."""
    log: list[str] = []
    notes = Transactions(outer, log, commits=False)

    def view() -> None:
        guard.run(inner, ["product_1"], lambda: notes.note("view"), Transactions(inner, log), timeout=0.2)

    guard.run(outer, ["product_1"], view, notes)
    return log


def test_two_aliases_of_one_service_and_prefix_give_out_one_lock() -> None:
    location = f"memory://guard{next(numbers)}"
    site = Clients(
        lambda: read(
            {
                "default": {"LOCATION": location, "PREFIX": "shop"},
                "patient": {"LOCATION": location, "PREFIX": "shop", "TIMEOUT": 60},
                "other": {"LOCATION": location, "PREFIX": "other"},
            }
        )
    )
    # The inner guard would wait for the outer one, and give up.
    assert nested(site["patient"], site["default"]) == ["names-", "BEGIN+", "view+", "COMMIT+"]
    # Another prefix is another lock.
    assert nested(site["other"], site["default"])[2:4] == ["nested-", "BEGIN+"]
    site.reset()


def test_a_fence_inside_a_guard_on_the_same_name_without_it_is_refused(locks: distlock.Locks) -> None:
    def view() -> str:
        return guard.run(
            locks, ["product_1"], lambda: "inner", Transactions(locks, [], commits=False), fenced_in="default"
        )

    outer = Transactions(locks, [], commits=False)
    with pytest.raises(ConfigurationError, match="write the fence on the outer guard"):
        guard.run(locks, ["product_1"], view, outer)
    assert guard.run(locks, ["product_1"], view, outer, fenced_in="default") == "inner"


def test_only_who_has_stopped_the_event_loop_is_told_so(locks: distlock.Locks) -> None:
    def view() -> None:
        pytest.fail("entered")

    async def aview() -> None:
        view()

    async def both() -> None:
        with pytest.raises(LockTimeout, match="stopped the event loop"):
            guard.run(locks, ["product_1"], view, Transactions(locks, []), timeout=0.01)
        with pytest.raises(LockTimeout) as found:
            await guard.arun(locks, ["product_1"], aview, Transactions(locks, []), timeout=0.01)
        assert "event loop" not in str(found.value)

    with ThreadPoolExecutor(1) as other:
        grant = other.submit(locks.lock("product_1").acquire).result()
    assert grant is not None
    asyncio.run(both())
    grant.release()
