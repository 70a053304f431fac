"""A holder is stopped past its lease, at five points of a request; meanwhile another sells the last piece.

The instances are processes with the real handlers of Django and Flask, over one Redis and one database. The
one that is stopped holds what it holds in the database, too: then the other one waits, and is told so.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from distlock import clock
from tests.cgroups import frozen
from tests.databases import Databases
from tests.fence.instance import POINTS
from tests.fence.pairs import KEPT_OUT, LOST, SHORT, SOLD, SOLD_OUT, Pair, pair
from tests.redis_server import RedisServer, eventually


@pytest.fixture(
    scope="module",
    params=[("postgresql", "django", "flask"), ("mariadb", "flask", "django")],
    ids="{0[0]}: {0[1]} is stopped, {0[2]} goes on".format,
)
def site(
    request: pytest.FixtureRequest, databases: Databases, redis_server: RedisServer
) -> tuple[str, str, str, str]:
    """The database, the lock service, and the frameworks of the two instances."""
    database, *frameworks = request.param
    return databases(database, "stalled"), redis_server.url, *frameworks


@pytest.fixture(scope="module")
def fenced(site: tuple[str, str, str, str]) -> Iterator[Pair]:
    yield from pair(site, fence=True)


@pytest.fixture(scope="module")
def unfenced(site: tuple[str, str, str, str]) -> Iterator[Pair]:
    yield from pair(site, fence=False)


#: Point -> what `b` is answered meanwhile, what `a` is answered in the end, and who has sold then.
WITH_FENCE = {
    # The next holder passes the fence first: one that comes later with an older number is overtaken.
    "before the fence": (SOLD, LOST, "b"),
    # It has passed the fence, and its row is locked until it goes on: it finds its lease over.
    "before the read": (KEPT_OUT, LOST, ""),
    "after the read": (KEPT_OUT, LOST, ""),
    # It had looked at its lease just before. It commits, and nobody has come between.
    "before COMMIT": (KEPT_OUT, SOLD, "a"),
    "before release": (SOLD_OUT, SOLD, "a"),
}


@pytest.mark.fault("F03", "F33")
@pytest.mark.parametrize("point", POINTS)
def test_with_the_fence_the_last_piece_is_sold_once_wherever_a_holder_stalls(
    fenced: Pair, point: str
) -> None:
    meanwhile, finally_, sellers = WITH_FENCE[point]
    fenced.stop_at(point)
    assert fenced.sell() == meanwhile
    assert fenced.wake() == finally_
    assert (fenced.stock.sellers(), fenced.stock.left()) == (sellers, 1 - len(sellers))
    # Nothing stays behind: the next one gets what is there.
    assert fenced.sell() == (SOLD_OUT if sellers else SOLD)
    assert (len(fenced.stock.sales()), fenced.stock.left()) == (1, 0)


@pytest.mark.parametrize("point", [point for point in POINTS if point != "before COMMIT"])
def test_without_the_fence_the_look_before_commit_finds_all_but_one_of_them(
    unfenced: Pair, point: str
) -> None:
    unfenced.stop_at(point)
    committed = point == "before release"
    assert unfenced.sell() == (SOLD_OUT if committed else SOLD)
    assert unfenced.wake() == (SOLD if committed else LOST)
    assert (unfenced.stock.sellers(), unfenced.stock.left()) == ("a" if committed else "b", 0)


@pytest.mark.fault("F03", "F33", control=True)
def test_without_the_fence_a_holder_that_stalls_between_that_look_and_commit_oversells(
    unfenced: Pair,
) -> None:
    unfenced.stop_at("before COMMIT")
    # It has read what is there, and waits for the row that the stopped one has written.
    unfenced.b.tell("sell")
    unfenced.stock.wait_for_a_waiter()
    assert unfenced.wake() == SOLD
    assert unfenced.b.says() == SOLD
    assert (sorted(unfenced.stock.sellers()), unfenced.stock.left()) == (["a", "b"], 0)


@pytest.mark.parametrize("fence", [True, False], ids=["fenced", "not fenced"])
def test_a_django_view_that_opens_its_transaction_by_itself_needs_the_fence(
    site: tuple[str, str, str, str], fence: bool
) -> None:
    database, redis, *_ = site
    for own in pair((database, redis, "django", "django"), fence, atomic=False):
        own.stop_at("after the read")
        meanwhile, finally_ = own.sell(), own.wake()
        if fence:
            assert (meanwhile, finally_, own.stock.sellers()) == (KEPT_OUT, LOST, "")
        else:
            # Nobody looks at the lease before its COMMIT.
            assert (meanwhile, finally_, own.stock.sellers()) == (SOLD, SOLD, "ba")


# -- a holder whose interpreter is busy -------------------------------------------------------------


@pytest.mark.fault("F05")
@pytest.mark.parametrize("point", ["before the fence", "after the read"])
def test_a_holder_that_was_busy_in_c_finds_its_lock_lost_before_it_commits(fenced: Pair, point: str) -> None:
    meanwhile, finally_, sellers = WITH_FENCE[point]
    fenced.keep_busy_at(point)
    assert fenced.sell() == meanwhile
    assert fenced.return_from_c() == finally_ == LOST
    assert (fenced.stock.sellers(), fenced.stock.left()) == (sellers, 1 - len(sellers))


def test_a_holder_that_waits_without_the_interpreter_renews_its_lease(fenced: Pair) -> None:
    # On a busy machine so short a lease may be over by itself, but not each time.
    for _ in range(10):
        fenced.halt_at("before the fence")
        said = fenced.sell()
        fenced.a.tell("go on")
        if fenced.a.says() == SOLD:
            break
    assert said == KEPT_OUT
    assert fenced.stock.sellers() == "a"


@pytest.mark.fault("F05", control=True)
def test_without_the_fence_a_holder_that_is_busy_in_c_right_before_commit_oversells(unfenced: Pair) -> None:
    unfenced.keep_busy_at("before COMMIT")
    unfenced.b.tell("sell")
    unfenced.stock.wait_for_a_waiter()
    assert unfenced.return_from_c() == SOLD
    assert unfenced.b.says() == SOLD
    assert (sorted(unfenced.stock.sellers()), unfenced.stock.left()) == (["a", "b"], 0)


@pytest.mark.fault("F05", control=True)
def test_where_nothing_looks_at_the_lease_a_holder_that_was_busy_in_c_oversells(
    site: tuple[str, str, str, str],
) -> None:
    database, redis, *_ = site
    for own in pair((database, redis, "django", "django"), fence=False, atomic=False):
        own.keep_busy_at("after the read")
        assert (own.sell(), own.return_from_c(), own.stock.sellers()) == (SOLD, SOLD, "ba")


# -- a machine that is suspended --------------------------------------------------------------------


@pytest.mark.fault("F43")
def test_a_holder_whose_machine_was_suspended_finds_its_lock_lost(unfenced: Pair) -> None:
    unfenced.halt_at("after the read")
    with frozen(unfenced.a.pid):
        # Its TTL counts on the server, and the other machine sells.
        unfenced.a.tell("go on")
        assert unfenced.sell() == SOLD
    assert unfenced.a.says() == LOST
    assert (unfenced.stock.sellers(), unfenced.stock.left()) == ("b", 0)


@pytest.mark.fault("F43")
def test_where_all_machines_were_suspended_nobody_came_between_and_it_is_lost_all_the_same(
    unfenced: Pair,
) -> None:
    unfenced.halt_at("after the read")
    with frozen(unfenced.a.pid, unfenced.b.pid):
        end = clock.now() + 2 * SHORT
        unfenced.a.tell("go on")
        eventually(lambda: clock.now() > end, "two leases are over")
    assert unfenced.a.says() == LOST
    assert unfenced.sell() == SOLD
    assert (unfenced.stock.sellers(), unfenced.stock.left()) == ("b", 0)


@pytest.mark.fault("F43", control=True)
def test_where_nothing_looks_at_the_lease_a_holder_whose_machine_was_suspended_oversells(
    site: tuple[str, str, str, str],
) -> None:
    database, redis, *_ = site
    for own in pair((database, redis, "django", "django"), fence=False, atomic=False):
        own.halt_at("after the read")
        with frozen(own.a.pid):
            own.a.tell("go on")
            assert own.sell() == SOLD
        assert (own.a.says(), own.stock.sellers()) == (SOLD, "ba")
