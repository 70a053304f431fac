"""Two decorators of two lock services on one view: both locks enclose every COMMIT of its request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from flask import Flask, has_app_context
from sqlalchemy import text

from distlock.errors import ConfigurationError
from distlock.grants.current import current_grants
from distlock.testing.fakes import lose_grant
from flask_distlock import DistLock, distributed_lock
from flask_distlock.fence import fence_table
from tests.flask_distlock.sql.session_shop import Shop, after

OLD, NEW = "old", "new"
both = (distributed_lock("product_1", alias=OLD), distributed_lock("product_1", alias=NEW))


class Stack(Shop):
    """A shop with two lock services. What is committed is noted with the locks that are held."""

    def note(self, what: str) -> None:
        self.log.append(f"{what}: {self.held()}")

    def held(self) -> str:
        with nullcontext() if has_app_context() else self.app.app_context():
            return " ".join(alias for alias in (OLD, NEW) if self.locks[alias].lock("product_1").locked())

    def serve_under(self, view: Callable[[], Any], *decorators: Any) -> None:
        for decorate in reversed(decorators or both):
            view = decorate(view)
        self.app.add_url_rule("/", "view", view, methods=["POST"])


@pytest.fixture
def stack(
    make_app: Callable[..., Flask], locks: DistLock, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Stack]:
    app = make_app(
        SQLALCHEMY_DATABASE_URI=f"sqlite:///{tmp_path}/shop.db",
        DISTLOCK={
            "default": {"LOCATION": "memory://default"},
            OLD: {"LOCATION": f"memory://old-{request.node.name}", "TIMEOUT": 60},
            NEW: {"LOCATION": f"memory://new-{request.node.name}", "TIMEOUT": 60},
        },
    )
    shop = Stack(app, locks)
    with app.app_context():
        fence_table(shop.db.metadata)
        shop.db.create_all()
    shop.log.clear()
    yield shop
    shop.close()


def test_both_locks_enclose_the_commit_of_the_view(stack: Stack) -> None:
    def view() -> str:
        stack.sell()
        stack.db.session.commit()
        return "sold"

    stack.serve_under(view)
    assert stack.post().text == "sold"
    assert (stack.log, stack.held(), stack.stock()) == (["commit: old new"], "", 9)


def test_both_locks_are_kept_for_the_commit_of_a_hook(stack: Stack) -> None:
    stack.serve_under(stack.sell)
    after(stack, stack.db.session.commit)
    assert stack.post().text == "sold"
    assert (stack.log, stack.held(), stack.stock()) == (["commit: old new"], "", 9)


def test_both_locks_of_a_function_are_kept_until_the_transaction_ends(stack: Stack) -> None:
    def view() -> str:
        guarded()
        stack.db.session.commit()
        stack.note("then")
        return "sold"

    guarded: Any = both[0](both[1](lambda: stack.sell()))
    stack.app.add_url_rule("/", "view", view, methods=["POST"])
    assert stack.post().text == "sold"
    assert (stack.log, stack.held()) == (["commit: old new", "then: "], "")


@pytest.mark.parametrize("where", ["view", "hook"])
@pytest.mark.parametrize("lost", [OLD, NEW])
def test_after_the_loss_of_either_nothing_is_committed(
    stack: Stack, caplog: pytest.LogCaptureFixture, lost: str, where: str
) -> None:
    stack.app.testing = False

    def lose_and_commit() -> None:
        (grant,) = (one.grant for one in current_grants() if one.namespace is stack.locks[lost].namespace)
        lose_grant(grant, "a test")
        stack.db.session.commit()

    def view() -> str:
        stack.sell()
        if where == "view":
            lose_and_commit()
        return "sold"

    stack.serve_under(view)
    if where == "hook":
        after(stack, lose_and_commit)
    response = stack.post()
    assert (response.status_code, response.json["code"]) == (503, "lock_lost")
    assert (stack.log, stack.held(), stack.stock()) == ([], "", 10)
    assert "streamed" not in caplog.text


@pytest.mark.parametrize("taken", [OLD, NEW])
def test_who_holds_either_lock_keeps_the_view_out(stack: Stack, taken: str) -> None:
    stack.serve_under(
        lambda: pytest.fail("ran"), distributed_lock("product_1", alias=OLD, timeout=0.1), both[1]
    )
    stack.app.testing = False
    with stack.app.app_context(), stack.locks[taken].lock("product_1"):
        assert stack.post().status_code == 423
        assert stack.held() == taken


@pytest.mark.parametrize("fenced", [OLD, NEW, "both"])
def test_the_fence_is_that_of_the_upper_guard_that_has_one(stack: Stack, fenced: str) -> None:
    numbers: dict[str, int] = {}

    def view() -> str:
        for one in current_grants():
            alias = OLD if one.namespace is stack.locks[OLD].namespace else NEW
            numbers[alias] = one.grant.fence.number
        stack.sell()
        stack.db.session.commit()
        return "sold"

    words = {alias: {"fence": True} if fenced in {alias, "both"} else {} for alias in (OLD, NEW)}
    with stack.app.app_context():
        # The two numbers are different ones.
        stack.locks[NEW].lock("product_1").acquire().release()  # type: ignore[union-attr]
    stack.serve_under(view, *(distributed_lock("product_1", alias=alias, **words[alias]) for alias in words))
    assert stack.post().text == "sold"
    with stack.app.app_context():
        stored = stack.db.session.execute(text("SELECT number FROM distlock_fence")).scalar_one()
    assert numbers[OLD] != numbers[NEW]
    assert stored == numbers[NEW if fenced == NEW else OLD]


def test_an_async_view_takes_both_locks(stack: Stack) -> None:
    async def view() -> str:
        return stack.held()

    stack.serve_under(view)
    assert stack.post().text == "old new"
    assert stack.held() == ""


def test_a_batch_is_refused_at_import() -> None:
    with pytest.raises(ConfigurationError, match=r"leave batch= out until one of the two decorators is gone"):
        both[0](distributed_lock("product_1", alias=NEW, batch=8, fence=True)(lambda: None))
