"""Downgrades of one grant that come at the same time, or again: each one does what is left to do."""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from distlock import Grant
from distlock.backends.base import EXCLUSIVE, READ, LockRequest
from distlock.errors import BackendUnavailable, NotHeld
from tests.backend_class import backend_class
from tests.engine.scene import Caller, Scene

MemoryBackend = backend_class("memory://")


def granted(caller: Caller) -> Grant:
    caller.go()
    assert caller.grant is not None
    return caller.grant


@pytest.fixture
def scene() -> Scene:
    return Scene(processes=2)


def downgrades(grant: Grant) -> Iterator[None]:
    """One call of `downgrade`, which stops before and after the lock service does what it is asked."""
    steps: Generator[Any, Any, None] = grant._downgrade()
    try:
        call = next(steps)
        yield
        answer = call.function(*call.arguments)
        yield
        steps.send(answer)
    except (StopIteration, NotHeld):
        return


def releases(grant: Grant) -> Iterator[None]:
    yield
    grant.release()


STEPS = 3
ORDERS = sorted(set(itertools.permutations("A" * STEPS + "B" * STEPS)))


@pytest.mark.parametrize("order", ORDERS, ids="".join)
def test_a_grant_that_is_downgraded_twice_at_once_keeps_writers_out(
    scene: Scene, order: tuple[str, ...]
) -> None:
    grant = granted(scene.come())
    calls = {"A": downgrades(grant), "B": downgrades(grant)}
    for who in order:
        next(calls[who], None)
    scene.keep()
    writer = scene.come(process=1)
    writer.go()
    assert not writer.done
    assert grant.mode == READ
    grant.check()
    grant.release()
    granted(writer).check()


@pytest.mark.parametrize("order", sorted(set(itertools.permutations("AAABBBRR"))), ids="".join)
def test_a_release_beside_two_downgrades_leaves_nothing(scene: Scene, order: tuple[str, ...]) -> None:
    grant = granted(scene.come())
    next_one = scene.come()
    calls = {"A": downgrades(grant), "B": downgrades(grant), "R": releases(grant)}
    for who in order:
        next(calls[who], None)
    scene.keep()
    granted(next_one).check()
    scene.keep()
    other = scene.come(process=1)
    other.go()
    assert not other.done
    next_one.leave()
    granted(other).check()


def test_a_second_downgrade_changes_nothing(scene: Scene) -> None:
    grant = granted(scene.come())
    grant.downgrade()
    assert [*grant._downgrade()] == [], "it asks nothing"
    grant.check()
    grant.release()
    with pytest.raises(NotHeld, match="released"):
        grant.downgrade()


# -- several names -------------------------------------------------------------------------------


def test_a_repetition_downgrades_the_names_that_are_left(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant = granted(scene.come("x", "y"))
    honest = MemoryBackend.downgrade

    def downgrade(self: MemoryBackend, request: LockRequest, deadline: float = math.inf) -> bool:
        if request.key == ":y":
            raise BackendUnavailable("It does not answer.")
        return honest(self, request, deadline)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryBackend, "downgrade", downgrade)
        with pytest.raises(BackendUnavailable):
            grant.downgrade()
    assert grant.mode == EXCLUSIVE
    grant.downgrade()
    assert grant.mode == READ
    for name in ("x", "y"):
        granted(scene.come(name, mode=READ, process=1)).check()


def test_so_it_does_after_a_downgrade_that_was_cancelled(scene: Scene) -> None:
    grant = granted(scene.come("x", "y"))
    steps: Generator[Any, Any, None] = grant._downgrade()
    call = next(steps)
    call = steps.send(call.function(*call.arguments))
    call.function(*call.arguments)
    with pytest.raises(KeyboardInterrupt):
        steps.throw(KeyboardInterrupt())
    assert grant.mode == EXCLUSIVE
    grant.downgrade()
    assert grant.mode == READ
    for name in ("x", "y"):
        granted(scene.come(name, mode=READ, process=1)).check()
