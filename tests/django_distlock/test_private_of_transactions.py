"""The private names of Django's transactions and connections that `django_distlock.private` leans on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection, connections, transaction

from django_distlock import private
from tests.django_distlock.leaning import leaning_on

ATOMIC = "Atomic of django/db/transaction.py"
WRAPPER = "BaseDatabaseWrapper of django/db/backends/base/base.py"


@pytest.mark.django_db
def test_the_blocks_of_a_test_case_are_told_from_those_of_the_site() -> None:
    with leaning_on("_from_testcase", f"{ATOMIC} and TestCase of django/test/testcases.py"):
        assert connection.in_atomic_block
        assert private.own_blocks(connection) == []
        with transaction.atomic(), transaction.atomic():
            assert len(private.own_blocks(connection)) == 2


@pytest.mark.django_db(transaction=True)
def test_blocks_that_are_left_open_are_ended_and_rolled_back() -> None:
    with leaning_on("atomic_blocks", ATOMIC):
        transaction.atomic().__enter__()
        transaction.atomic().__enter__()
        Group.objects.create(name="sold")
        assert private.end_blocks(connection, RuntimeError())
        assert not connection.in_atomic_block
        assert not Group.objects.exists()
        assert not private.end_blocks(connection, RuntimeError())


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("savepoint", [True, False])
def test_blocks_that_are_marked_are_all_rolled_back(savepoint: bool) -> None:
    with leaning_on("savepoint_ids, commit_on_exit", ATOMIC):
        with transaction.atomic():
            Group.objects.create(name="sold")
            with transaction.atomic(savepoint=savepoint):
                assert private.mark_blocks(connection)
        assert not Group.objects.exists()
        assert not private.mark_blocks(connection)


@pytest.mark.django_db(transaction=True)
def test_a_marked_block_is_rolled_back() -> None:
    with leaning_on("needs_rollback", ATOMIC):
        with transaction.atomic():
            Group.objects.create(name="sold")
            assert not private.is_marked(connection)
            private.mark(connection)
            assert transaction.get_rollback()
            assert private.is_marked(connection)
        assert not Group.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_is_closed_in_its_block_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = connections.settings["default"] | {"NAME": str(tmp_path / "shop.sqlite3")}
    with leaning_on("closed_in_transaction", WRAPPER):
        own = type(connections["default"])(settings, "own")
        monkeypatch.setattr(connections._connections, "own", own, raising=False)
        with transaction.atomic(using="own"):
            assert not private.was_closed_inside(own)
            own.close()
            assert private.was_closed_inside(own)


@pytest.mark.django_db(transaction=True)
def test_a_connection_knows_what_waits_for_its_commit() -> None:
    with leaning_on("run_on_commit", WRAPPER), transaction.atomic():
        assert not private.has_commit_hooks(connection)
        transaction.on_commit(lambda: None)
        assert private.has_commit_hooks(connection)


@pytest.mark.django_db(transaction=True)
def test_what_waits_for_a_commit_may_wait_for_another() -> None:
    done: list[str] = []
    with leaning_on("run_on_commit", WRAPPER), transaction.atomic():
        transaction.on_commit(lambda: done.append("hook"))
        hooks = private.put_commit_hooks(
            connections["default"], [private.commit_hook(lambda: done.append("own"))]
        )
    private.run_commit_hooks(connections["default"], hooks)
    assert done == ["own", "hook"]


@pytest.mark.django_db(transaction=True)
def test_blocks_that_are_left_open_inside_of_one_are_ended_alone() -> None:
    with leaning_on("atomic_blocks", ATOMIC), (block := transaction.atomic()):
        Group.objects.create(name="kept")
        assert not private.end_blocks_inside(connection, block, RuntimeError())
        transaction.atomic().__enter__()
        Group.objects.create(name="left")
        assert private.end_blocks_inside(connection, block, RuntimeError())
    assert [group.name for group in Group.objects.all()] == ["kept"]


@pytest.mark.django_db(transaction=True)
def test_what_is_around_the_statements_of_a_connection_is_replaced() -> None:
    seen: list[str] = []

    def note(execute: Any, sql: str, *arguments: Any) -> Any:
        seen.append(sql)
        return execute(sql, *arguments)

    with leaning_on("execute_wrappers", WRAPPER):
        wrapper = connections["default"]
        private.wrappers_of(wrapper).append(note)
        Group.objects.exists()
        private.wrappers_of(wrapper).clear()
        Group.objects.exists()
    assert len(seen) == 1


@pytest.mark.django_db(transaction=True)
def test_each_outermost_transaction_begins_and_ends_at_set_autocommit() -> None:
    began: list[bool] = []
    # The proxy would keep what is set on it for itself.
    wrapper = connections["default"]
    set_autocommit = wrapper.set_autocommit

    def replacement(autocommit: bool, *args: Any, **kwargs: Any) -> None:
        began.append(autocommit)
        set_autocommit(autocommit, *args, **kwargs)

    with leaning_on("set_autocommit", ATOMIC):
        undo = private.begin_and_end_by(wrapper, replacement)
        inner = private.begin_and_end_by(wrapper, replacement)
        inner()
        with transaction.atomic(), transaction.atomic():
            pass
        undo()
        with transaction.atomic():
            pass
        assert began == [False, True]


@pytest.mark.django_db(transaction=True)
def test_what_sends_commit_is_replaced() -> None:
    with leaning_on("_commit", WRAPPER):
        seen: list[str] = []

        def send(commit: Any) -> None:
            assert not connection.in_atomic_block
            seen.append("COMMIT")
            commit()

        undo = private.send_commit_by(connection, send)
        with transaction.atomic():
            assert private.is_outermost(connection)
            Group.objects.create(name="sold")
            with transaction.atomic():
                assert not private.is_outermost(connection)
        assert seen == ["COMMIT"]
        undo()
        with transaction.atomic():
            pass
        assert seen == ["COMMIT"]
        assert Group.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_what_sends_rollback_is_replaced() -> None:
    with leaning_on("_rollback", WRAPPER):
        seen: list[str] = []

        def send(rollback: Any) -> None:
            seen.append("ROLLBACK")
            rollback()

        def fail() -> None:
            with transaction.atomic():
                Group.objects.create(name="sold")
                raise ZeroDivisionError

        undo = private.send_rollback_by(connection, send)
        with pytest.raises(ZeroDivisionError):
            fail()
        undo()
        with pytest.raises(ZeroDivisionError):
            fail()
        assert seen == ["ROLLBACK"]
        assert not Group.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_what_closes_the_connection_of_the_driver_is_replaced(tmp_path: Path) -> None:
    settings = connections.settings["default"] | {"NAME": str(tmp_path / "shop.sqlite3")}
    with leaning_on("_close", WRAPPER):
        own, seen = type(connections["default"])(settings, "own"), list[str]()

        def close(close: Any) -> None:
            seen.append("closed")
            close()

        undo = private.close_by(own, close)
        own.ensure_connection()
        own.close()
        undo()
        own.ensure_connection()
        own.close()
        assert seen == ["closed"]


@pytest.mark.django_db(transaction=True)
def test_a_block_with_autocommit_off_sends_no_commit_at_its_end() -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with leaning_on("commit_on_exit", ATOMIC):
        with transaction.atomic():
            assert not private.is_in_manual_block(connection)
        transaction.set_autocommit(False)
        try:
            assert not private.is_in_manual_block(connection)
            with transaction.atomic(), transaction.atomic():
                assert private.is_in_manual_block(connection)
            with (
                connection.execute_wrapper(fail),
                pytest.raises(ZeroDivisionError),
                private.leaving_manual_block(connection),
                transaction.atomic(),
            ):
                pytest.fail("entered")
            with transaction.atomic():
                pass
        finally:
            transaction.rollback()
            transaction.set_autocommit(True)


@pytest.mark.django_db(transaction=True)
def test_hooks_have_names() -> None:
    def send_mail() -> None: ...

    with leaning_on("run_on_commit", WRAPPER), transaction.atomic():
        transaction.on_commit(send_mail)
        [name] = private.commit_hook_names(connection)
        assert name.startswith(__name__)
        assert name.endswith("send_mail")


@pytest.mark.django_db(transaction=True)
def test_an_error_of_a_hook_is_told_from_one_of_the_view() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    with leaning_on("run_and_clear_commit_hooks", WRAPPER):
        with pytest.raises(ZeroDivisionError) as of_hook, transaction.atomic():
            transaction.on_commit(fail)
        with pytest.raises(ZeroDivisionError) as of_view, transaction.atomic():
            fail()
        assert private.was_raised_by_commit_hook(of_hook.value)
        assert not private.was_raised_by_commit_hook(of_view.value)


@pytest.mark.django_db(transaction=True)
def test_what_asks_for_a_rollback_is_heard() -> None:
    with leaning_on("set_rollback", WRAPPER):
        asked: list[bool] = []
        undo = private.set_rollback_by(connection, asked.append)
        with transaction.atomic():
            transaction.set_rollback(True)
        undo()
        with transaction.atomic():
            transaction.set_rollback(False)
        assert asked == [True]
