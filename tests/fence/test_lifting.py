"""A fence behind its row: lifted if the lock is still ours, refused if it is not."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Engine, MetaData, create_engine, text
from sqlalchemy.orm import Session

import distlock
from distlock import Fence, Grant, Locks
from distlock.backends.memory import MemoryBackend
from distlock.errors import BackendUnavailable, LockLost
from distlock.fence.stamps import OldEpoch, Overtaken
from distlock.testing.waits import engine_of
from distlock.web.answers import log_level
from flask_distlock.fence import fence_table
from flask_distlock.sql.fenced_sessions import fenced
from tests.redis_server import RedisServer

AHEAD = 3_600_000_000


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{tmp_path}/shop.sqlite3")
    metadata = MetaData()
    fence_table(metadata)
    metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture(params=["memory", "file", "redis"])
def locks(request: pytest.FixtureRequest, tmp_path: Path, redis_server: RedisServer) -> Iterator[Locks]:
    urls = {
        "memory": f"memory://{secrets.token_hex(4)}",
        "file": f"file://{tmp_path}/locks",
        "redis": redis_server.url,
    }
    url = urls[request.param]
    redis_server.client.flushall()
    locks = distlock.connect(url, prefix="shop", on_lifted=lambda grant, was: told.append((grant, was)))
    told.clear()
    yield locks
    locks.close()


told: list[tuple[Grant, Fence]] = []


def passes(engine: Engine, grant: Grant) -> None:
    with Session(engine) as session, fenced(session, engine, grant, lambda: 5.0):
        session.commit()


def remembers(engine: Engine, locks: Locks) -> None:
    """There is a row, of an earlier grant."""
    with locks.lock("product_1") as earlier:
        passes(engine, earlier)


def put_ahead(engine: Engine, fence: Fence, holder_id: str = "before the loss") -> None:
    """The row remembers *fence*."""
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE distlock_fence SET epoch = :epoch, number = :number, holder_id = :holder_id"),
            {"epoch": fence.epoch, "number": fence.number, "holder_id": holder_id},
        )


def test_readers_are_lifted_together_and_tell_it_once(engine: Engine, locks: Locks) -> None:
    remembers(engine, locks)
    with locks.read_lock("product_1") as one, locks.read_lock("product_1") as two:
        behind = one.fence
        ahead = Fence(1, behind.number + AHEAD)
        put_ahead(engine, ahead)
        passes(engine, one)
        passes(engine, two)
        assert ahead < one.fence == two.fence
        assert seen(engine) == ahead
    assert [(was, grant is one) for grant, was in told] == [(behind, True)]
    with locks.lock("product_1") as later:
        passes(engine, later)
        assert later.fence > two.fence


def test_a_reader_that_a_later_writer_has_overtaken_is_not_lifted(engine: Engine, locks: Locks) -> None:
    remembers(engine, locks)
    with locks.read_lock("product_1") as one:
        put_ahead(engine, Fence(1, one.fence.number + AHEAD))
        passes(engine, one)
        put_ahead(engine, Fence(1, one.fence.number + 1))
        with pytest.raises(Overtaken):
            passes(engine, one)


def seen(engine: Engine) -> Fence:
    with engine.connect() as connection:
        [(epoch, number)] = connection.execute(text("SELECT epoch, number FROM distlock_fence"))
        return Fence(epoch, number)


def test_a_grant_that_is_ours_still_goes_on_above_the_row_with_an_alarm(
    engine: Engine, locks: Locks, caplog: pytest.LogCaptureFixture
) -> None:
    remembers(engine, locks)
    with locks.lock("product_1") as grant:
        was = grant.fence
        ahead = Fence(1, was.number + AHEAD)
        put_ahead(engine, ahead)
        passes(engine, grant)
        assert seen(engine) == grant.fence > ahead
        assert told == [(grant, was)]
    assert "was lifted to" in caplog.text

    # The service has learned it: the next one needs no alarm.
    with locks.lock("product_1") as later:
        passes(engine, later)
        assert later.fence > grant.fence
    assert len(told) == 1


def test_those_to_whom_the_hold_is_passed_go_on_from_there(engine: Engine, locks: Locks) -> None:
    with locks.lock("product_1") as grant:
        passes(engine, grant)
        put_ahead(engine, Fence(1, grant.fence.number + AHEAD))

    def buy(_: int) -> Fence:
        with locks.lock("product_1") as grant:
            passes(engine, grant)
            return grant.fence

    with ThreadPoolExecutor(4) as pool:
        fences = list(pool.map(buy, range(12)))
    assert len(set(fences)) == 12
    assert len(told) == 1


def test_of_several_names_only_what_fell_behind_is_lifted(engine: Engine, locks: Locks) -> None:
    with locks.lock("product_1") as grant:
        passes(engine, grant)
        put_ahead(engine, Fence(1, grant.fence.number + AHEAD))
    with locks.lock("product_1", "product_2") as cart:
        before = dict(cart.fences)
        passes(engine, cart)
        assert cart.fences["product_2"] == before["product_2"]
        assert cart.fences["product_1"].number > before["product_1"].number + AHEAD // 2


def test_an_equal_number_of_another_holder_is_lifted_above(engine: Engine, locks: Locks) -> None:
    remembers(engine, locks)
    with locks.lock("product_1") as grant:
        put_ahead(engine, grant.fence)
        passes(engine, grant)
        assert seen(engine) == grant.fence
        assert len(told) == 1


def test_it_is_lifted_once_what_overtakes_it_again_is_alive(engine: Engine, locks: Locks) -> None:
    remembers(engine, locks)
    with locks.lock("product_1") as grant:
        put_ahead(engine, Fence(1, grant.fence.number + AHEAD))
        passes(engine, grant)
        put_ahead(engine, Fence(1, grant.fence.number + AHEAD))
        with pytest.raises(Overtaken):
            passes(engine, grant)


def test_who_has_passed_is_not_lifted_although_the_service_says_that_the_lock_is_its_own(
    engine: Engine, locks: Locks
) -> None:
    """It answers for what it knows: another primary may have let somebody in, or the row itself (`run`)."""
    with locks.lock("product_1") as grant:
        passes(engine, grant)
        later = Fence(1, grant.fence.number + 1)
        put_ahead(engine, later, "who came after it")
        with pytest.raises(Overtaken):
            passes(engine, grant)
        assert seen(engine) == later
    assert told == []


class Forgetful(MemoryBackend):
    """A service that may forget its locks, or be away."""

    away = False

    def raise_fence(self, *arguments: object) -> object:  # type: ignore[override]
        if self.away:
            raise BackendUnavailable("away")
        return super().raise_fence(*arguments)  # type: ignore[arg-type]


@pytest.fixture
def memory() -> Iterator[Locks]:
    locks = distlock.connect("memory://x", backend=f"{__name__}.Forgetful", prefix="shop")
    yield locks
    locks.close()


def test_a_grant_that_the_service_has_given_to_another_is_overtaken(engine: Engine, memory: Locks) -> None:
    backend = engine_of(memory).backend
    assert isinstance(backend, Forgetful)
    remembers(engine, memory)
    # No 'with': its end says that the lock was lost.
    grant = memory.lock("product_1").acquire()
    assert grant is not None
    backend.service.records.clear()
    other = distlock.connect("memory://x", prefix="shop")
    engine_of(other).backend.service = backend.service  # type: ignore[attr-defined]
    with other.lock("product_1") as later:
        passes(engine, later)
        assert not grant.lost
        with pytest.raises(Overtaken):
            passes(engine, grant)
        # It learned more from the question than from the clock.
        assert grant.lost
        assert seen(engine) == later.fence
    other.close()
    grant.release()


def test_a_service_that_does_not_answer_confirms_nothing(engine: Engine, memory: Locks) -> None:
    backend = engine_of(memory).backend
    assert isinstance(backend, Forgetful)
    remembers(engine, memory)
    with memory.lock("product_1") as grant:
        put_ahead(engine, Fence(1, grant.fence.number + AHEAD))
        backend.away = True
        with pytest.raises(Overtaken):
            passes(engine, grant)
        backend.away = False
        passes(engine, grant)


def test_a_grant_that_was_released_is_not_lifted(engine: Engine, locks: Locks) -> None:
    with locks.lock("product_1") as grant:
        passes(engine, grant)
        put_ahead(engine, Fence(1, grant.fence.number + AHEAD))
    with pytest.raises(Overtaken):
        passes(engine, grant)


def epoch(number: int) -> Locks:
    return distlock.connect(f"memory://{secrets.token_hex(4)}", prefix="shop", epoch=number)


def test_a_new_era_goes_on_with_any_number_and_refuses_the_old_one(engine: Engine) -> None:
    old, new = epoch(1), epoch(2)
    with old.lock("product_1") as before, new.lock("product_1") as after:
        passes(engine, before)
        put_ahead(engine, Fence(1, 2**62))
        passes(engine, after)
        assert seen(engine) == after.fence == Fence(2, 1)
        with pytest.raises(OldEpoch) as refusal:
            passes(engine, before)
    for said in ["DISTLOCK's FENCE_EPOCH", "is 1 here", "seen the epoch 2", '"FENCE_EPOCH": 2']:
        assert said in str(refusal.value)
    # Clients try again at another server, and the operator of this one is called.
    assert isinstance(refusal.value, LockLost)
    assert log_level(refusal.value) == logging.CRITICAL
    old.close()
    new.close()
