"""What a crowd before one ZooKeeper node costs. The server itself counts the watches that fire."""

from __future__ import annotations

import socket
import threading
import time
from urllib.parse import urlsplit

from loadtest.museum.benches import Bench
from loadtest.museum.scenes import SHORT, queue
from loadtest.museum.shop import PATIENCE, Shop, Visit

WATCHING, FIRED = "zk_watch_count", "zk_sum_node_deleted_watch_count"


def ten_in_line(bench: Bench) -> int:
    """One holder and ten behind it; each leaves when all that are left watch. Buyers woken in vain."""
    first, *others = visits = queue(bench, bench.name(), 11)
    for visit in others:
        visit.after = first.inside
    with Shop() as shop:
        for visit in visits:
            visit.think = lambda: until_watched(bench, len(others) - len(shop.history))
        before = statistic(bench, FIRED)
        shop.send(*visits)
    # One is let in by each release, and needs to be woken.
    return statistic(bench, FIRED) - before - len(others)


def last_comes_first(bench: Bench) -> int:
    """News of the release is slow to those in line, and a new one comes. Buyers that it overtakes."""
    first, newcomer = queue(bench, bench.name(), 2)
    line = [bench.instance() for _ in range(3)]
    waiting = [Visit(instance.lock(bench.name()), after=first.inside) for instance in line]

    def slow_news() -> None:
        until_watched(bench, len(waiting))
        for instance in line:
            instance.wire.hold()

    first.leave, newcomer.after = slow_news, first.left
    with Shop() as shop:
        shop.send(first, newcomer, *waiting)
        first.left.wait(PATIENCE)
        newcomer.inside.wait(SHORT)
        for instance in line:
            instance.wire.abandon()
    order = [record.caller for record in sorted(shop.history, key=lambda record: record.granted)]
    return len(order) - 1 - order.index(newcomer.caller)


def until_watched(bench: Bench, watches: int) -> None:
    pause, deadline = threading.Event(), time.monotonic() + PATIENCE
    while statistic(bench, WATCHING) < watches:
        if time.monotonic() > deadline:
            raise TimeoutError(f"Nobody else came to wait within {PATIENCE:g} s.")
        pause.wait(0.005)


def statistic(bench: Bench, name: str) -> int:
    with socket.create_connection(("127.0.0.1", urlsplit(bench.url).port or 2181)) as connection:
        connection.sendall(b"mntr")
        said = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    return int(dict(line.split("\t") for line in said.splitlines() if "\t" in line)[name])
