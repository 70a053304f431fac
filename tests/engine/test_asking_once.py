"""Readers and permits with ``timeout=0``: refused only where the lock service would refuse each by itself."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

import distlock
from distlock.backends.base import EXCLUSIVE, PERMIT, READ, LockRequest
from distlock.listening import Attempt, Listener
from distlock.testing.waits import engine_of, wait_until
from tests.backend_class import backend_class
from tests.engine.scene import Caller, Owners, Scene, come_as
from tests.engine.sharing import Sharing
from tests.engine.simulation import Faults

__all__ = ["come_as"]

MemoryBackend = backend_class("memory://")

SEEDS = range(100)
SHARED: list[dict[str, Any]] = [{"mode": READ}, {"mode": PERMIT, "limit": 8}]


def play(seed: int, **arguments: Any) -> Sharing:
    simulation = Sharing(seed, **arguments)
    assert simulation.run() == [], f"seed {seed}"
    assert simulation.refused_in_vain == [], f"seed {seed}"
    return simulation


# -- in every order ------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [READ, PERMIT])
def test_nobody_is_refused_where_there_is_room_for_all(mode: str) -> None:
    for seed in SEEDS:
        assert play(seed, modes=[mode], limits=[100], timeouts=[0.0]).refused == 0, f"seed {seed}"


@pytest.mark.parametrize("faults", [Faults(), Faults(cancel=0.05)], ids=["no fault", "cancelled"])
@pytest.mark.parametrize("modes", [[READ, READ, EXCLUSIVE], [PERMIT]], ids=["readers", "permits"])
@pytest.mark.parametrize("timeouts", [[0.0], [0.0, 0.0, 0.3, math.inf]], ids=["all", "some"])
def test_who_is_refused_came_while_the_lock_service_would_refuse_it(
    modes: list[str], timeouts: list[float], faults: Faults
) -> None:
    refused = sum(play(seed, modes=modes, timeouts=timeouts, faults=faults).refused for seed in SEEDS)
    assert refused > 100


# -- one by one ----------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def each_is_a_thread_of_its_own(request: pytest.FixtureRequest) -> None:
    if "scene" in request.fixturenames:
        request.getfixturevalue("come_as")


@pytest.fixture
def scene() -> Scene:
    return Scene(processes=2)


def refused(caller: Caller) -> bool:
    caller.go()
    return caller.done and caller.grant is None


@pytest.mark.parametrize("terms", SHARED, ids=[READ, PERMIT])
def test_it_stands_in_line_until_the_answer_to_another(scene: Scene, terms: dict[str, Any]) -> None:
    first = scene.ask(timeout=0.0, **terms)
    several = [scene.come(timeout=0.0, **terms) for _ in range(3)]
    assert not any(one.done for one in several)
    first.hear(first.carry_out())
    for one in several:
        assert one.parker.open
        one.go()
        assert one.grant is not None
    for one in [first, *several]:
        one.leave()
    assert not scene.service.locked(":a")
    assert scene.all[0].engine.queues.by_key == {}


@pytest.mark.parametrize("terms", SHARED, ids=[READ, PERMIT])
@pytest.mark.parametrize("patience", [0.0, 5.0])
def test_it_is_refused_with_the_answer_and_waits_for_no_lock(
    scene: Scene, terms: dict[str, Any], patience: float
) -> None:
    holder = scene.come(process=1, **{**terms, "mode": EXCLUSIVE if terms["mode"] == READ else PERMIT})
    if terms["mode"] == PERMIT:
        scene.come(process=1, **{**terms, "permits": 7})
    first = scene.ask(timeout=patience, **terms)
    second = scene.come(timeout=0.0, **terms)
    assert not second.done
    first.hear(first.carry_out())
    assert second.parker.open
    assert refused(second)
    if patience:
        # Somebody of this process waits by now.
        assert scene.come(timeout=0.0, **terms).done
    holder.leave()


def test_one_answer_refuses_all_that_were_there_when_it_was_asked_for(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[LockRequest] = []
    honest = MemoryBackend.request
    monkeypatch.setattr(
        MemoryBackend, "request", lambda self, ask, deadline: asked.append(ask) or honest(self, ask, deadline)
    )
    scene.come(process=1)
    first = scene.ask(mode=READ, timeout=0.0)
    several = [scene.come(mode=READ, timeout=0.0) for _ in range(10)]
    scene.now += 0.001
    first.hear(first.carry_out())
    assert first.done
    assert all(refused(one) for one in several)
    assert len(asked) == 3


def test_a_writer_of_this_process_that_comes_first_refuses_it(scene: Scene) -> None:
    writer = scene.ask()
    reader = scene.come(mode=READ, timeout=0.0)
    assert not reader.done
    writer.hear(writer.carry_out())
    assert writer.grant is not None
    assert refused(reader)


def test_a_writer_that_is_refused_does_not(scene: Scene) -> None:
    scene.come(mode=READ, process=1)
    writer = scene.ask(timeout=0.0)
    reader = scene.come(mode=READ, timeout=0.0)
    writer.hear(writer.carry_out())
    assert refused(writer)
    reader.go()
    assert reader.grant is not None


def test_it_does_not_stand_behind_one_that_stands_still(scene: Scene) -> None:
    scene.ask(mode=READ)
    second = scene.come(mode=READ, timeout=0.0)
    # It leaves the queue after a second.
    scene.now += 1.0
    assert refused(second)
    assert scene.all[0].engine.queues.waiting == 1


def test_it_never_stands_behind_the_code_that_it_has_interrupted(scene: Scene, come_as: Owners) -> None:
    """A signal handler: what is beneath goes on when it is over."""
    come_as(1)
    scene.ask(mode=READ)
    assert refused(scene.come(mode=READ, timeout=0.0))


def test_no_more_stand_in_line_than_may_wait(scene: Scene) -> None:
    scene.all[0].engine.queues.admission.max_waiters = 2
    first = scene.ask(mode=READ, timeout=0.0)
    second, third = (scene.come(mode=READ, timeout=0.0) for _ in range(2))
    assert not second.done
    assert refused(third)
    first.hear(first.carry_out())
    second.go()
    assert second.grant is not None


def test_a_closed_client_keeps_nobody(scene: Scene) -> None:
    scene.ask(mode=READ)
    second = scene.come(mode=READ, timeout=0.0)
    scene.all[0].engine.close()
    with pytest.raises(distlock.BackendUnavailable, match="closed"):
        second.go()


# -- threads and tasks ---------------------------------------------------------------------------


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """The lock service answers from when it is set."""
    may_answer, honest = threading.Event(), MemoryBackend.request

    def request(self: MemoryBackend, ask: LockRequest, deadline: float = math.inf) -> Any:
        assert may_answer.wait(60.0)
        return honest(self, ask, deadline)

    monkeypatch.setattr(MemoryBackend, "request", request)
    return may_answer


KINDS: dict[str, Callable[[distlock.Locks], distlock.Lock]] = {
    READ: lambda locks: locks.read_lock("a"),
    PERMIT: lambda locks: locks.semaphore("a", limit=8),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_threads_that_come_at_once_are_all_let_in(
    kind: Callable[[distlock.Locks], distlock.Lock], answers: threading.Event
) -> None:
    locks = distlock.connect("memory://asking-once")
    with closing(locks), ThreadPoolExecutor(8) as threads:
        begun = [threads.submit(kind(locks).acquire, timeout=0) for _ in range(8)]
        wait_until(
            lambda: engine_of(locks).queues.waiting + sum(one.done() for one in begun) == 8,
            "all have come",
        )
        answers.set()
        assert all(one.result() for one in begun)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_so_are_tasks(kind: Callable[[distlock.Locks], distlock.Lock], answers: threading.Event) -> None:
    async def main(locks: distlock.Locks) -> None:
        begun = [asyncio.create_task(kind(locks).aacquire(timeout=0)) for _ in range(8)]
        while engine_of(locks).queues.waiting + sum(one.done() for one in begun) < 8:
            await asyncio.sleep(0)
        answers.set()
        assert all(await asyncio.gather(*begun))

    with closing(distlock.connect("memory://asking-once")) as locks:
        asyncio.run(main(locks))


def test_nobody_is_told_that_it_waits(answers: threading.Event) -> None:
    """It waits for answers, and not for the lock."""
    told: list[object] = []

    class Asked(Attempt):
        def contended(self, holder: object) -> None:
            told.append(holder)

    class Told(Listener):
        def asked(self, names: tuple[str, ...], where: object) -> Attempt:
            return Asked()

    locks = distlock.connect("memory://asking-once", listener=Told())
    with closing(locks), ThreadPoolExecutor(8) as threads:
        begun = [threads.submit(locks.read_lock("a").acquire, timeout=0) for _ in range(8)]
        wait_until(
            lambda: engine_of(locks).queues.waiting + sum(one.done() for one in begun) == 8,
            "all have come",
        )
        answers.set()
        assert all(one.result() for one in begun)
    assert told == []
