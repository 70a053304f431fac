"""Two decorators of two lock services on one view: both locks enclose every COMMIT of its request."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from cachelib.file import FileSystemCache
from flask import Flask, has_app_context, session
from flask_session import Session
from sqlalchemy import text

import distlock
from distlock import clock
from distlock.errors import ConfigurationError, LockTimeout
from distlock.grants.current import current_grants
from distlock.testing.fakes import lose_grant
from distlock.web import guard_lock
from flask_distlock import DistLock, distributed_lock
from flask_distlock.fence import fence_table
from flask_distlock.signals import lock_acquired, lock_contended, lock_refused
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

    def set(self, alias: str, **setting: Any) -> None:
        self.app.config["DISTLOCK"][alias] = setting
        with self.app.app_context():
            self.locks.close()

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


@pytest.mark.parametrize("order", [["row", NEW], [NEW, "row"], [OLD, NEW]], ids="-".join)
def test_the_second_commit_of_a_request_is_under_the_lock_too(stack: Stack, order: list[str]) -> None:
    def sell_and_commit() -> str:
        stack.sell()
        stack.db.session.commit()
        return "sold"

    stack.set("row", BACKEND="database")
    stack.serve_under(sell_and_commit, *(distributed_lock("product_1", alias=alias) for alias in order))
    after(stack, sell_and_commit)
    assert stack.post().text == "sold"
    locks = " ".join(alias for alias in order if alias != "row")
    assert (stack.log, stack.held(), stack.stock()) == ([f"commit: {locks}"] * 2, "", 8)


@pytest.mark.parametrize("lower", [{}, {"timeout": 900}], ids=["none of its own", "longer"])
@pytest.mark.parametrize("kind", ["view", "async view"])
def test_the_lower_lock_is_waited_for_until_the_deadline_of_the_upper(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, lower: dict[str, Any], kind: str
) -> None:
    stack.set(NEW, LOCATION="memory://new-impatient", TIMEOUT=0.2)
    late, waits = [0.0], dict[str, float]()
    monkeypatch.setattr(guard_lock, "now", lambda: clock.now() + late[0])

    def note(sender: Flask, alias: str, grant: distlock.Grant, **_: Any) -> None:
        waits[alias] = grant.timeout
        # As if the upper lock had been waited for so long.
        late[0] = 300

    async def aview() -> str:
        return "seen"

    stack.serve_under(
        aview if kind == "async view" else lambda: "seen",
        distributed_lock("product_1", alias=OLD, timeout=600),
        distributed_lock("product_1", alias=NEW, **lower),
    )
    with lock_acquired.connected_to(note, stack.app):
        assert stack.post().text == "seen"
    assert 60 < waits[NEW] <= 300


@pytest.mark.parametrize("kind", ["view", "async view"])
def test_a_view_does_not_run_if_its_upper_lock_is_lost_while_it_waits_for_the_lower(
    stack: Stack, kind: str
) -> None:
    upper: list[distlock.Grant] = []

    def note(sender: Flask, alias: str, grant: distlock.Grant, **_: Any) -> None:
        if alias == OLD:
            upper.append(grant)

    def lose(sender: Flask, alias: str, **_: Any) -> None:
        assert alias == NEW
        lose_grant(upper[0], "a test")
        taken.release()

    async def aview() -> str:
        pytest.fail("ran")

    stack.serve_under(aview if kind == "async view" else lambda: pytest.fail("ran"))
    with stack.app.app_context():
        taken: Any = stack.locks[NEW].lock("product_1").acquire()
    with lock_acquired.connected_to(note, stack.app), lock_contended.connected_to(lose, stack.app):
        response = stack.post()
    assert (response.status_code, response.json["code"]) == (503, "lock_lost")
    assert (taken.released, stack.held()) == (True, "")


@pytest.mark.parametrize("kind", ["job", "async job"])
def test_a_time_out_that_a_job_raises_itself_is_not_skipped(stack: Stack, kind: str) -> None:
    def job() -> None:
        raise LockTimeout("another lock")

    async def ajob() -> None:
        raise LockTimeout("another lock")

    upper, lower = (distributed_lock("product_1", alias=alias, on_contended="skip") for alias in (OLD, NEW))
    call: Any = upper(lower(job)) if kind == "job" else async_to_sync(upper(lower(ajob)))
    with stack.app.app_context(), pytest.raises(LockTimeout, match="another lock"):
        call()


@pytest.mark.parametrize("apart", [OLD, NEW])
def test_a_session_is_compared_if_either_lock_keeps_it_apart(
    stack: Stack, tmp_path: Path, apart: str
) -> None:
    stack.app.config.update(SESSION_TYPE="cachelib", SESSION_CACHELIB=FileSystemCache(str(tmp_path / "it")))
    Session(stack.app)
    client = stack.app.test_client()

    def put(vouchers: int) -> str:
        session["vouchers"] = vouchers
        return "put"

    def view(id: int) -> str:
        return str(session["vouchers"])

    def spend(sender: Flask, alias: str, **_: Any) -> None:
        if alias == OLD:
            other = threading.Thread(target=lambda: client.post("/put/3"))
            other.start()
            other.join()

    upper, lower = (
        distributed_lock("all" if alias == apart else "product_<id>", alias=alias) for alias in (OLD, NEW)
    )
    stack.app.add_url_rule("/put/<int:vouchers>", "put", put, methods=["POST"])
    stack.app.add_url_rule("/<int:id>", "view", upper(lower(view)), methods=["POST"])
    client.post("/put/10")
    with lock_acquired.connected_to(spend, stack.app):
        assert client.post("/1").text == "3"


def test_two_aliases_of_one_lock_service_do_not_wait_for_themselves(stack: Stack) -> None:
    stack.set(NEW, LOCATION=stack.app.config["DISTLOCK"][OLD]["LOCATION"], TIMEOUT=1)
    stack.serve_under(lambda: stack.held())
    assert stack.post().text == "old new"
    assert stack.held() == ""


def test_the_current_grant_is_that_of_the_top_one_of_three_in_a_hook_too(stack: Stack) -> None:
    granted: dict[str, distlock.Grant] = {}
    seen: list[distlock.Grant | None] = []

    def note(sender: Flask, alias: str, grant: distlock.Grant, **_: Any) -> None:
        granted[alias] = grant

    def view() -> str:
        seen.append(distlock.current_grant())
        return stack.sell()

    def commit() -> None:
        seen.append(distlock.current_grant())
        stack.db.session.commit()

    stack.serve_under(view, distributed_lock("product_1"), *both)
    after(stack, commit)
    with lock_acquired.connected_to(note, stack.app):
        assert stack.post().text == "sold"
    assert list(granted) == ["default", OLD, NEW]
    assert seen == [granted["default"]] * 2


def test_a_refused_upper_lock_is_the_only_one_that_is_told(stack: Stack) -> None:
    refused: list[str] = []

    def note(sender: Flask, alias: str, **_: Any) -> None:
        refused.append(alias)

    stack.serve_under(
        lambda: pytest.fail("ran"), distributed_lock("product_1", alias=OLD, timeout=0.1), both[1]
    )
    with (
        stack.app.app_context(),
        stack.locks[OLD].lock("product_1"),
        lock_refused.connected_to(note, stack.app),
    ):
        assert stack.post().status_code == 423
    assert refused == [OLD]


def test_a_batch_is_refused_at_import() -> None:
    with pytest.raises(ConfigurationError, match=r"leave batch= out until one of the two decorators is gone"):
        both[0](distributed_lock("product_1", alias=NEW, batch=8, fence=True)(lambda: None))
