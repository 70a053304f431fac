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
from distlock.engine.sans_io import Call, Commands, Park, ThreadParker, run
from distlock.engine.status import LIFE, PUBLISH_PERIOD, PUBLISH_TIMEOUT
from distlock.errors import BackendUnavailable
from distlock.terms import EXCLUSIVE, PERMIT, Mode, Terms


class Heard(MemoryBackend):
    """It counts what it is told, and may be out of reach for that."""

    def __init__(self, service: MemoryService) -> None:
        super().__init__("memory://", service)
        self.told: list[tuple[list[str], list[str]]] = []
        self.until: list[float] = []
        self.leases: list[float] = []
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
        self.leases.append(lease)
        self.heed(deadline)
        if self.away:
            raise BackendUnavailable("away")
        return super().announce(host, pid, rows, gone, life)


class Kept:
    """An engine in time that the test makes up; the test plays the keeper's thread."""

    def __init__(self, ttl: float = 9.0) -> None:
        self.now = 0.0
        #: How often the keeper has looked at what there is to do.
        self.rounds = 0
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
            self.rounds += 1
        self.now = until

    def wait_for(self, name: str) -> Commands[NameGrant | None]:
        """Return the steps of a caller that waits for *name*, which another process holds from now on."""
        other = MemoryBackend("memory://", self.service)
        assert isinstance(other.request(LockRequest(name, "f" * 48, 600.0, 1)), Acquired)
        waiting = self.engine.acquire(name, name, ThreadParker(), 300.0, self.terms)
        asked = next(waiting)
        assert isinstance(asked, Call)
        assert isinstance(waiting.send(asked.function(*asked.arguments)), Park)
        return waiting

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
    allowed = list[float]()

    def heed(deadline: float) -> None:
        due = min(kept.engine.renewer._due(hold) for hold in kept.engine.renewer.holds)
        allowed.append(min(due, kept.now + PUBLISH_TIMEOUT))

    kept.backend.heed = heed
    kept.acquire("a")
    for _ in range(100):
        kept.pass_time(0.1)
    assert len(allowed) > 3
    assert all(until <= most for until, most in zip(kept.backend.until, allowed, strict=True))


def test_it_is_said_once_in_a_period_however_often_locks_are_renewed() -> None:
    kept = Kept(ttl=1.5)
    kept.acquire("a")
    kept.pass_time(20 * PUBLISH_PERIOD)
    assert len(kept.backend.told) <= 20


def test_a_process_that_was_idle_says_at_once_what_lasts(kept: Kept) -> None:
    run(kept.acquire("a")._release())
    kept.pass_time(0.5)
    kept.acquire("b")
    kept.now += MOMENT
    kept.pass_time(0.1)
    assert kept.shown() == ["b"]


def test_it_outlives_the_longest_lease(kept: Kept) -> None:
    kept.acquire("a")
    kept.terms = replace(kept.terms, ttl=3.0)
    kept.acquire("b")
    kept.pass_time(5 * PUBLISH_PERIOD)
    assert set(kept.backend.leases) == {9.0}


def test_who_holds_what_is_waited_for_is_known_before_the_wait_ends(kept: Kept) -> None:
    waiting = kept.wait_for("b")
    kept.pass_time(MOMENT + PUBLISH_PERIOD)
    state = kept.engine.status.last_state("b")
    assert state is not None
    assert state.holder is not None
    waiting.close()


def test_nothing_is_said_to_a_lock_service_that_does_not_renew(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.acquire("a")
    kept.pass_time(MOMENT + PUBLISH_PERIOD)
    with monkeypatch.context() as patch:
        patch.setattr(kept.backend, "renew", out_of_reach)
        kept.pass_time(1.0)
        kept.rounds, said = 0, len(kept.backend.told)
        kept.pass_time(3.0)
        assert len(kept.backend.told) == said, "each try would delay the next renewal"
        assert kept.rounds < 30, "the keeper sleeps in between"
    kept.pass_time(2 * PUBLISH_PERIOD)
    assert len(kept.backend.told) > said


def test_who_waits_after_an_outage_that_has_cost_all_locks_says_so(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant = kept.acquire("a")
    with monkeypatch.context() as patch:
        patch.setattr(kept.backend, "renew", out_of_reach)
        kept.pass_time(10.0)
    assert grant.lost
    waiting = kept.wait_for("b")
    kept.pass_time(MOMENT + 2 * PUBLISH_PERIOD)
    assert "b" in kept.shown()
    waiting.close()


def out_of_reach(requests: Sequence[LockRequest]) -> list[bool]:
    raise BackendUnavailable("away")


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

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("nonsense was read")

    monkeypatch.setattr(kept.backend, step, fail)
    waiting = kept.wait_for("b")
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
    kept.backend.heed = lambda deadline: None
    kept.backend.told.clear()
    kept.service.status.clear()
    kept.pass_time(40 * PUBLISH_PERIOD)
    assert len(kept.shown()) == 2000
    assert max(len(rows) for rows, _ in kept.backend.told) > 700, "then the limit rises again"
