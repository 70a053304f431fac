"""Scenes that break the flawed locks, one for each fault, and `TRIALS`: which scene breaks which exhibit.

A scene returns the damage as a number, which is 0 for a correct lock. Events decide when buyers go on. Times
are used only for the lifetime of a lock, and for how long a buyer stays inside while a correct lock keeps the
others out. No scene sleeps in the hope that another buyer gets somewhere meanwhile.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from demo_shop.museum import MuseumLock
from demo_shop.museum.exhibits import ProcessAnew
from demo_shop.museum.redis_locks import (
    RedisStep0,
    RedisStep1,
    RedisStep2,
    RedisStep3,
    RedisStep4,
    RedisStep5,
)
from loadtest.museum.instances import InstanceMaker, control, on_redis, on_zookeeper
from loadtest.museum.shop import PATIENCE, MuseumShop, MuseumVisit

#: The lifetime of a lock, seconds, that its buyer outlives.
SHORT = 0.5
#: The lifetime of a lock that is renewed ten times, seconds; and a visit that outlives all renewals.
RENEWED, LONGER = 0.3, 1.8


def everybody_at_once(bench: InstanceMaker) -> int:
    """Count refused buyers. Ten come for ten units; the first stays until all others have an answer."""
    with MuseumShop(stock=10) as shop:
        visits = [MuseumVisit(bench.instance().lock(bench.name())) for _ in range(10)]
        answers = threading.Barrier(len(visits))
        for visit in visits:
            visit.think = visit.turned_away = lambda: meet(answers)
        shop.send(*visits)
    return shop.refused


def all_in_one_process(bench: InstanceMaker) -> int:
    """Count units sold twice. Ten buyers at one instance stay inside until all are inside."""
    instance = bench.instance()
    with MuseumShop(stock=10) as shop:
        visits = [MuseumVisit(instance.lock(bench.name())) for _ in range(10)]
        everybody = threading.Barrier(len(visits))
        for visit in visits:
            visit.think = lambda: meet(everybody)
        shop.send(*visits)
    return shop.sold_twice


def stranger_releases(bench: InstanceMaker) -> int:
    """Count buyers let in beside a holder. A stranger's ``finally`` releases a lock that it never had."""
    name = bench.name()
    holder, other = MuseumVisit(bench.instance().lock(name)), MuseumVisit(bench.instance().lock(name))
    stranger = bench.instance().lock(name)
    with MuseumShop() as shop:

        def think() -> None:
            stranger.release()
            shop.send(other)
            other.inside.wait(SHORT)

        holder.think = think
        shop.send(holder)
    return shop.met()


def thinks_too_long(bench: InstanceMaker) -> int:
    """Count units sold twice. Only the first of five buyers outlives its lock's expiry."""
    return chain(bench, SHORT, 2 * SHORT, followers=4)


def outlives_all_renewals(bench: InstanceMaker) -> int:
    """Count units sold twice. The first of two buyers stays inside longer than ten renewals last."""
    return chain(bench, RENEWED, LONGER, followers=1)


def chain(bench: InstanceMaker, expiry: float, body: float, followers: int) -> int:
    """Let each buyer stay inside until the next one is inside, too, or its time is over."""
    name = bench.name()
    visits = [MuseumVisit(bench.instance().lock(name, expiry)), *queue(bench, name, followers)]
    for visit, follower in itertools.pairwise(visits):
        follower.after = visit.inside
        visit.think = until(follower.inside, body if visit is visits[0] else SHORT)
    with MuseumShop() as shop:
        shop.send(*visits)
    return shop.sold_twice


def shared_object(bench: InstanceMaker) -> int:
    """Count locks deleted under a holder. Two threads share a lock object; the first outlives its expiry."""
    name, instance = bench.name(), bench.instance()
    lock = instance.lock(name, SHORT)
    slow, other = MuseumVisit(lock), MuseumVisit(lock)
    deleted = []

    def look() -> None:
        slow.left.wait(SHORT)
        deleted.append(not instance.taken(name))

    slow.think, other.think = until(other.inside, 2 * SHORT), look
    other.after = slow.inside
    with MuseumShop() as shop:
        shop.send(slow, other)
    return sum(deleted)


def slow_answer_at_release(bench: InstanceMaker) -> int:
    """Count buyers let in beside a holder. In a release, the first answer comes after the lock's expiry."""
    name, instance = bench.name(), bench.instance()
    slow = MuseumVisit(instance.lock(name, SHORT))
    second, third = queue(bench, name, 2)
    slow.leave = instance.wire.hold
    second.after, third.after = slow.inside, slow.left

    def think() -> None:
        instance.wire.abandon()
        third.inside.wait(SHORT)

    second.think = think
    with MuseumShop() as shop:
        shop.send(slow, second, third)
    return shop.met()


def slow_answer_at_renewal(bench: InstanceMaker) -> int:
    """Count buyers let in beside a holder. In a renewal, the first answer comes when another has the lock."""
    name, instance = bench.name(), bench.instance()
    slow = MuseumVisit(instance.lock(name, SHORT))
    second, third = queue(bench, name, 2)

    def stall() -> None:
        instance.wire.hold()
        second.inside.wait(5 * SHORT)

    def think() -> None:
        instance.wire.abandon()
        third.inside.wait(2 * SHORT)

    slow.think, second.think = stall, think
    second.after, third.after = slow.inside, second.inside
    with MuseumShop() as shop:
        shop.send(slow, second, third)
    # The first buyer is cut off, so the lock has to pass on. Only the other two must not meet.
    return shop.met(second, third)


def nested_call(bench: InstanceMaker) -> int:
    """Count the seconds of a self-deadlock: a function holds the lock and calls one that takes it."""
    name, instance = bench.name(), bench.instance()
    outer = MuseumVisit(instance.lock(name))
    blocked = []

    def call() -> None:
        inner, asked = instance.lock(name), time.monotonic()
        if inner.acquire():
            inner.release()
        blocked.append(time.monotonic() - asked)

    outer.think = call
    with MuseumShop() as shop:
        shop.send(outer)
    return round(sum(blocked))


def second_name(bench: InstanceMaker) -> int:
    """Count buyers let in beside a holder. A holder of one lock asks for another, which is taken."""
    cart = bench.instance()
    first, both = (
        MuseumVisit(cart.lock(bench.name(1)), "first"),
        MuseumVisit(cart.lock(bench.name(2)), "second"),
    )
    other = MuseumVisit(bench.instance().lock(bench.name(2)), "second")
    other.think = until(both.inside, SHORT)
    first.after = other.inside
    with MuseumShop() as shop:
        first.think = lambda: shop.buy(both)
        shop.send(other, first)
    return shop.met(both, other)


def enters_again_too_late(bench: InstanceMaker) -> int:
    """Count entries granted beside another holder. A holder whose renewals have ended enters again."""
    name, instance = bench.name(), bench.instance()
    slow, (other,) = MuseumVisit(instance.lock(name, RENEWED)), queue(bench, name, 1)
    again = instance.lock(name, RENEWED)
    beside = []

    def think() -> None:
        met = other.inside.wait(LONGER)
        if again.acquire():
            beside.append(met)
            again.release()

    slow.think, other.think = think, until(slow.left, SHORT)
    other.after = slow.inside
    with MuseumShop() as shop:
        shop.send(slow, other)
    return sum(beside)


def cut_off(
    bench: InstanceMaker, first_sees: Callable[[MuseumLock, MuseumLock], object] = lambda *_: None
) -> int:
    """Count buyers let in beside a holder while the network is away longer than a lock lives. No lock helps.

    *first_sees* is called with the locks of the first and the second buyer while both are inside.
    """
    name, instance = bench.name(), bench.instance()
    first, (second,) = MuseumVisit(instance.lock(name, SHORT)), queue(bench, name, 1)

    def think() -> None:
        instance.wire.hold()
        second.inside.wait(5 * SHORT)
        first_sees(first.lock, second.lock)
        instance.wire.abandon()

    first.think, second.think = think, until(first.left, 5 * SHORT)
    second.after = first.inside
    with MuseumShop() as shop:
        shop.send(first, second)
    return shop.met()


def queue(bench: InstanceMaker, name: str, count: int) -> list[MuseumVisit]:
    """Make *count* buyers, each at its own instance, with locks that live long enough."""
    return [MuseumVisit(bench.instance().lock(name)) for _ in range(count)]


def until(event: threading.Event, longest: float) -> Callable[[], bool]:
    return lambda: event.wait(longest)


def meet(everybody: threading.Barrier) -> None:
    """Wait for all buyers, but at most `SHORT` seconds, because a correct lock keeps the others out."""
    with contextlib.suppress(threading.BrokenBarrierError):
        everybody.wait(SHORT)


WATCHING, FIRED = "zk_watch_count", "zk_sum_node_deleted_watch_count"


def ten_in_line(bench: InstanceMaker) -> int:
    """Count buyers woken in vain. Ten wait for a holder; each leaves when all remaining buyers watch."""
    first, *others = visits = queue(bench, bench.name(), 11)
    for visit in others:
        visit.after = first.inside
    with MuseumShop() as shop:
        for visit in visits:
            visit.think = lambda: until_watched(bench, len(others) - len(shop.history))
        before = statistic(bench, FIRED)
        shop.send(*visits)
    # Each release lets one buyer in, which has to be woken.
    return statistic(bench, FIRED) - before - len(others)


def last_comes_first(bench: InstanceMaker) -> int:
    """Count the buyers that a newcomer overtakes, because they hear late of the release."""
    first, newcomer = queue(bench, bench.name(), 2)
    line = [bench.instance() for _ in range(3)]
    waiting = [MuseumVisit(instance.lock(bench.name()), after=first.inside) for instance in line]

    def slow_news() -> None:
        until_watched(bench, len(waiting))
        for instance in line:
            instance.wire.hold()

    first.leave, newcomer.after = slow_news, first.left
    with MuseumShop() as shop:
        shop.send(first, newcomer, *waiting)
        first.left.wait(PATIENCE)
        newcomer.inside.wait(SHORT)
        for instance in line:
            instance.wire.abandon()
    order = [record.caller for record in sorted(shop.history, key=lambda record: record.granted)]
    return len(order) - 1 - order.index(newcomer.caller)


def until_watched(bench: InstanceMaker, watches: int) -> None:
    pause, deadline = threading.Event(), time.monotonic() + PATIENCE
    while statistic(bench, WATCHING) < watches:
        if time.monotonic() > deadline:
            raise TimeoutError(f"Nobody else came to wait within {PATIENCE:g} s.")
        pause.wait(0.005)


def statistic(bench: InstanceMaker, name: str) -> int:
    with socket.create_connection(("127.0.0.1", urlsplit(bench.url).port or 2181)) as connection:
        connection.sendall(b"mntr")
        said = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    return int(dict(line.split("\t") for line in said.splitlines() if "\t" in line)[name])


@dataclass(frozen=True, slots=True)
class Trial:
    """A scene that breaks an exhibit, and how much damage that does."""

    #: A key of `demo_shop.museum.exhibits.EXHIBITS`.
    exhibit: str
    bench: Callable[[str], InstanceMaker]
    scene: Callable[[InstanceMaker], int]
    #: The unit of the damage, in the plural.
    unit: str
    #: How much damage the exhibit does.
    damage: int
    #: Whether the scene nests, so that distlock's re-entrant lock is its control.
    nested: bool = False

    @property
    def name(self) -> str:
        return f"{self.exhibit}: {self.scene.__name__.replace('_', ' ')}"

    @property
    def service(self) -> str:
        """The lock service. A process lock needs none, but its control is distlock on Redis."""
        return "zookeeper" if self.bench is on_zookeeper else "redis"

    def try_exhibit(self, url: str) -> int:
        with self.bench(url) as bench:
            return self.scene(bench)

    def try_distlock(self, url: str) -> int:
        with control(url, self.nested) as bench:
            return self.scene(bench)


TWICE, REFUSED, MET, DELETED, BLOCKED, IN_VAIN, OVERTAKEN = (
    "units sold twice",
    "buyers refused",
    "let in beside a holder",
    "lock deleted under its holder",
    "seconds blocked by oneself",
    "buyers woken in vain",
    "buyers overtaken",
)
TRIALS = (
    Trial("process-anew", on_redis(lambda *_: ProcessAnew()), all_in_one_process, TWICE, 9),
    Trial("redis-step-0", on_redis(RedisStep0), everybody_at_once, REFUSED, 9),
    Trial("redis-step-0", on_redis(RedisStep0), stranger_releases, MET, 1),
    Trial("redis-step-1", on_redis(RedisStep1), thinks_too_long, TWICE, 3),
    Trial("redis-step-2", on_redis(RedisStep2), thinks_too_long, TWICE, 1),
    Trial("redis-step-2", on_redis(RedisStep2), slow_answer_at_release, MET, 1),
    Trial("redis-step-2", on_redis(RedisStep2), shared_object, DELETED, 1),
    Trial("redis-step-3", on_redis(RedisStep3), outlives_all_renewals, TWICE, 1),
    Trial("redis-step-3", on_redis(RedisStep3), slow_answer_at_renewal, MET, 1),
    Trial("redis-step-4", on_redis(RedisStep4), nested_call, BLOCKED, 2, nested=True),
    Trial("redis-step-5", on_redis(RedisStep5), second_name, MET, 1, nested=True),
    Trial("redis-step-5", on_redis(RedisStep5), enters_again_too_late, MET, 1, nested=True),
    Trial("zookeeper-unfair", on_zookeeper, ten_in_line, IN_VAIN, 45),
    Trial("zookeeper-unfair", on_zookeeper, last_comes_first, OVERTAKEN, 3),
)
