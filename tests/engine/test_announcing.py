"""What a process says of itself: of what has lasted, in small parts, and at nobody's cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from distlock.backends.base import Acquired, LockRequest
from distlock.backends.inspectable import MOMENT, StatusRow
from distlock.backends.memory import MemoryBackend
from distlock.backends.memory.service import MemoryService
from distlock.engine import status
from distlock.engine.engine import Engine
from distlock.engine.hold import NameGrant
from distlock.engine.sans_io import Call, Park, ThreadParker, run
from distlock.engine.status import LIFE, PUBLISH_PERIOD
from distlock.errors import BackendUnavailable
from distlock.terms import EXCLUSIVE, PERMIT, Mode, Terms


class Heard(MemoryBackend):
    """It counts what it is told, and may be out of reach for that."""

    def __init__(self, service: MemoryService) -> None:
        super().__init__("memory://", service)
        self.told: list[tuple[list[str], list[str]]] = []
        self.until: list[float] = []
        self.away = False
        self.heed: Callable[[float], None] = lambda deadline: None

    def announce(
        self,
        host: str,
        pid: int,
        rows: Sequence[StatusRow],
        gone: Sequence[str],
        life: float,
        deadline: float = math.inf,
        lease: float = 0.0,
    ) -> bool:
        self.told.append(([row.key for row in rows], list(gone)))
        self.until.append(deadline)
        self.heed(deadline)
        if self.away:
            raise BackendUnavailable("away")
        return super().announce(host, pid, rows, gone, life)


class Kept:
    """An engine in time that the test makes up; the test plays the keeper's thread."""

    def __init__(self, ttl: float = 9.0) -> None:
        self.now = 0.0
        self.service = MemoryService(now=lambda: self.now)
        self.backend = Heard(self.service)
        self.terms = Terms(ttl, 600.0, "shop.views.reduce")
        self.engine = Engine(
            self.backend,
            ttl=ttl,
            max_hold=600.0,
            max_waiters=None,
            max_waiters_total=None,
            epoch=1,
            now=lambda: self.now,
            threads=False,
        )

    def acquire(self, name: str) -> NameGrant:
        grant = run(self.engine.acquire(name, name, ThreadParker(), 0.0, self.terms))
        assert grant is not None
        return grant

    def pass_time(self, seconds: float) -> None:
        until = self.now + seconds
        while (pause := run(self.engine.maintenance.tick())) <= until - self.now:
            self.now += max(pause, 0.001)
        self.now = until

    def shown(self) -> list[str]:
        return sorted(seen.row.key for seen in self.service.status.rows_below("") if seen.row is not None)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    kept = Kept()
    monkeypatch.setattr(status.time, "time", lambda: 1e9 + kept.now)
    return kept


def test_what_is_over_in_a_moment_is_not_worth_a_word(kept: Kept) -> None:
    for _ in range(50):
        grant = kept.acquire("a")
        kept.pass_time(MOMENT / 4)
        run(grant._release())
    kept.pass_time(60.0)
    assert kept.backend.told == []


def test_what_lasts_is_said_once_and_taken_back_when_it_ends(kept: Kept) -> None:
    grant = kept.acquire("a")
    kept.pass_time(MOMENT + PUBLISH_PERIOD)
    assert kept.shown() == ["a"]
    kept.pass_time(10 * LIFE * PUBLISH_PERIOD)
    assert kept.shown() == ["a"], "it is kept alive for as long as it lasts"
    assert [rows for rows, _ in kept.backend.told if rows] == [["a"]], "and nothing is said twice"
    run(grant._release())
    kept.pass_time(2 * PUBLISH_PERIOD)
    assert kept.shown() == []
    said = len(kept.backend.told)
    kept.pass_time(60.0)
    assert len(kept.backend.told) == said, "then there is nothing to say"


@pytest.mark.parametrize(("mode", "limit"), [(PERMIT, 3), (EXCLUSIVE, 0)])
def test_a_limit_is_said_of_a_semaphore_even_while_nobody_is_in_here(
    kept: Kept, mode: Mode, limit: int
) -> None:
    terms = replace(kept.terms, mode=mode, limit=limit or kept.terms.limit)
    steps = kept.engine.acquire("a", "a", ThreadParker(), math.inf, terms)
    next(steps)
    kept.pass_time(MOMENT)
    row = kept.engine.row("a")
    assert row is not None
    assert (row.waiting, row.limit) == (1, limit)
    steps.close()


def test_all_is_said_again_when_it_was_forgotten(kept: Kept) -> None:
    for name in "abc":
        kept.acquire(name)
    kept.pass_time(MOMENT + PUBLISH_PERIOD)
    kept.service.status.clear()
    kept.pass_time(3 * PUBLISH_PERIOD)
    assert kept.shown() == ["a", "b", "c"]


def test_so_it_is_when_the_lock_service_was_away(kept: Kept) -> None:
    kept.acquire("a")
    kept.backend.away = True
    kept.pass_time(20.0)
    assert kept.shown() == []
    kept.backend.away = False
    kept.pass_time(2 * PUBLISH_PERIOD)
    assert kept.shown() == ["a"]


def test_many_names_are_said_some_at_a_time(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "MOST_KEYS", 10)
    grants = [kept.acquire(f"p{number}") for number in range(35)]
    kept.pass_time(10 * PUBLISH_PERIOD)
    assert len(kept.shown()) == 35
    assert max(len(rows) for rows, _ in kept.backend.told) == 10
    for grant in grants[:30]:
        run(grant._release())
    kept.pass_time(10 * PUBLISH_PERIOD)
    assert len(kept.shown()) == 5
    assert max(len(gone) for _, gone in kept.backend.told) == 10


def test_it_never_takes_so_long_that_a_renewal_would_be_late() -> None:
    kept = Kept(ttl=1.5)
    kept.acquire("a")
    for _ in range(100):
        kept.pass_time(0.1)
        due = min(kept.engine.renewer._due(hold) for hold in kept.engine.renewer.holds)
        assert all(until <= due + 0.5 for until in kept.backend.until[-1:])
    assert all(until < math.inf for until in kept.backend.until)


def test_what_ended_while_the_lock_service_was_away_is_taken_back(kept: Kept) -> None:
    first, _ = kept.acquire("a"), kept.acquire("b")
    kept.pass_time(MOMENT + PUBLISH_PERIOD)
    assert kept.shown() == ["a", "b"]
    kept.backend.away = True
    kept.pass_time(PUBLISH_PERIOD)
    run(first._release())
    kept.backend.away = False
    kept.pass_time(2 * PUBLISH_PERIOD)
    assert kept.shown() == ["b"], "what others hold keeps the entry alive, and the ended one with it"


def test_nobody_tries_for_ever_to_take_back_what_is_forgotten_anyway(kept: Kept) -> None:
    grant = kept.acquire("a")
    kept.pass_time(MOMENT + PUBLISH_PERIOD)
    kept.backend.away = True
    run(grant._release())
    kept.pass_time(3 * LIFE * PUBLISH_PERIOD)
    tried = len(kept.backend.told)
    kept.pass_time(3 * LIFE * PUBLISH_PERIOD)
    assert len(kept.backend.told) == tried
    assert kept.engine.maintenance.is_idle()


@pytest.mark.parametrize("step", ["announce", "inspect"])
def test_an_unforeseen_error_of_it_costs_no_lock(
    step: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Kept(ttl=0.9)
    other = MemoryBackend("memory://", kept.service)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("nonsense was read")

    monkeypatch.setattr(kept.backend, step, fail)
    assert isinstance(other.request(LockRequest("b", "f" * 48, 60.0, 1)), Acquired)
    waiting = kept.engine.acquire("b", "b", ThreadParker(), 30.0, kept.terms)
    asked = next(waiting)
    assert isinstance(asked, Call)
    assert isinstance(waiting.send(asked.function(*asked.arguments)), Park)
    grant = kept.acquire("a")
    for _ in range(50):
        kept.pass_time(0.1)
    assert not grant.lost
    assert "nonsense" in caplog.text
    waiting.close()


def test_it_makes_no_call_that_has_no_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(ttl=1.5)
    renew, late = kept.backend.renew, []

    def slowly(requests: Sequence[LockRequest]) -> list[bool]:
        kept.now += 0.6
        return renew(requests)

    monkeypatch.setattr(kept.backend, "renew", slowly)
    kept.backend.heed = lambda deadline: late.append(deadline <= kept.now)
    kept.acquire("a")
    for _ in range(50):
        kept.pass_time(0.1)
    assert not any(late), "it would fail, and cost others their connections"


def test_where_many_names_take_too_long_fewer_are_said_at_a_time(kept: Kept) -> None:
    def heed(deadline: float) -> None:
        if len(kept.backend.told[-1][0]) > 700:
            kept.now = deadline
            raise BackendUnavailable("no time was left")

    kept.backend.heed = heed
    for number in range(2000):
        kept.acquire(f"p{number}")
    kept.pass_time(40 * PUBLISH_PERIOD)
    assert len(kept.shown()) == 2000
