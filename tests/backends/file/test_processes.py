"""Several processes at one directory: exclusion, order, and what a death or a stop does."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import Future
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from distlock.backends.base import Acquired, Busy, Queued
from distlock.testing.protocol_fixtures import Contender, ask
from distlock.testing.waits import wait_until
from tests.backend_class import backend_class
from tests.backends.file.peer import PATIENCE, Peer

FileBackend = backend_class("file:///nowhere")

#: Far below the slow poll: a waiter served within this was told, and did not find out by asking again.
AT_ONCE = 1.0

StartPeer = Callable[..., Peer]


def queued(directory: Path) -> int:
    """How many hold or wait."""
    return len(list(directory.glob("v2/queue/*/*")))


def test_one_process_is_inside_at_a_time(peer: StartPeer, key: str, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0", encoding="ascii")
    peers = [peer() for _ in range(4)]
    running = [each.begin("hammer", key, 100, str(counter)) for each in peers]
    turns = sorted((turn for each in running for turn in each.result(PATIENCE)), key=lambda turn: turn["at"])
    assert int(counter.read_text(encoding="ascii")) == 400
    assert all(before["released"] <= after["at"] for before, after in pairwise(turns))
    fences = [turn["fence"] for turn in turns]
    assert fences == sorted(set(fences))


def test_one_process_is_inside_at_a_time_while_others_are_killed(
    peer: StartPeer, key: str, tmp_path: Path
) -> None:
    latest, stop = tmp_path / "latest", tmp_path / "stop"
    latest.write_bytes(bytes(8))

    def start() -> tuple[Peer, Future[Any]]:
        each = peer()
        return each, each.begin("overtaken", key, str(latest), str(stop))

    running = [start() for _ in range(3)]
    for number in range(9):
        victim, _ = running.pop(0)
        for _ in range(20 + number):
            seen = latest.read_bytes()
            wait_until(lambda seen=seen: latest.read_bytes() != seen, "the lock passes on")
        victim.kill()
        running.append(start())
    stop.touch()
    assert [each.result(PATIENCE) for _, each in running] == [[], [], []]


def test_processes_are_served_in_the_order_of_their_asks(
    peer: StartPeer, one: Contender, key: str, directory: Path
) -> None:
    mine = ask(key)
    one.held(mine)
    waiting = []
    for number in range(4):
        each = peer()
        waiting.append((each, each.begin("acquire", key)))
        wait_until(lambda count=number + 2: queued(directory) == count, "it stands in line")
    one.backend.release(mine)
    fences = []
    for each, acquired in waiting:
        fences.append(acquired.result(AT_ONCE)["fence"])
        later = [other for _, other in waiting[len(fences) :]]
        assert not any(other.done() for other in later)
        each.do("release", key)
    assert fences == sorted(fences)


def test_a_killed_holder_frees_its_lock_at_once(peer: StartPeer, key: str, directory: Path) -> None:
    holder, waiter = peer(), peer()
    fence = holder.do("acquire", key)["fence"]
    acquired = waiter.begin("acquire", key)
    wait_until(lambda: queued(directory) == 2, "the waiter stands in line")
    holder.kill()
    assert acquired.result(AT_ONCE)["fence"] > fence


def test_a_child_that_lives_on_keeps_nothing_of_its_killed_parent(
    peer: StartPeer, key: str, directory: Path
) -> None:
    holder, waiter = peer(), peer()
    holder.do("acquire", key)
    child = holder.do("fork", "live")
    try:
        acquired = waiter.begin("acquire", key)
        wait_until(lambda: queued(directory) == 2, "the waiter stands in line")
        holder.kill()
        assert acquired.result(AT_ONCE)["fence"]
    finally:
        os.kill(child["pid"], signal.SIGKILL)


@pytest.mark.fault("F07")
@pytest.mark.parametrize("then", ["exit", "close", "live"])
def test_a_forked_child_holds_nothing_and_frees_nothing(
    peer: StartPeer, one: Contender, key: str, then: str
) -> None:
    holder = peer()
    holder.do("acquire", key)
    child = holder.do("fork", then)
    try:
        # It knows the parent's token and can see that the hold is there, but it can't use it.
        assert child["released"] == [False]
        assert child["took"] == ["Busy"]
        assert one.backend.locked(key)
        assert one.backend.request(ask(key, wait=False)) == Busy()
        assert holder.do("renew", key)
    finally:
        if then == "live":
            os.kill(child["pid"], signal.SIGKILL)
    assert holder.do("release", key)["released"]
    one.held(ask(key))


def test_a_killed_waiter_is_passed_over(peer: StartPeer, one: Contender, key: str, directory: Path) -> None:
    mine = ask(key)
    one.held(mine)
    first, second = peer(), peer()
    first.begin("acquire", key)
    wait_until(lambda: queued(directory) == 2, "the first waiter stands in line")
    acquired = second.begin("acquire", key)
    wait_until(lambda: queued(directory) == 3, "the second waiter stands in line")
    first.kill()
    one.backend.release(mine)
    assert acquired.result(AT_ONCE)


@pytest.mark.fault("F02")
def test_a_waiter_that_dies_after_it_was_handed_the_lock_is_passed_over(
    peer: StartPeer, one: Contender, key: str, directory: Path
) -> None:
    mine = ask(key)
    one.held(mine)
    first, second = peer(), peer()
    first.begin("acquire", key)
    wait_until(lambda: queued(directory) == 2, "the first waiter stands in line")
    acquired = second.begin("acquire", key)
    wait_until(lambda: queued(directory) == 3, "the second waiter stands in line")
    first.stop()
    one.backend.release(mine)
    first.kill()
    assert acquired.result(AT_ONCE)


def test_a_stopped_holder_keeps_its_lock_and_nobody_hangs(peer: StartPeer, one: Contender, key: str) -> None:
    holder = peer()
    holder.do("acquire", key)
    holder.stop()
    began = time.monotonic()
    waiting = ask(key)
    assert isinstance(one.backend.request(waiting), Queued)
    assert one.backend.request(ask(key, wait=False)) == Busy()
    assert one.backend.locked(key)
    assert one.backend.cancel(waiting) is False
    assert time.monotonic() - began < AT_ONCE
    holder.go_on()
    assert holder.do("release", key)["released"]


@pytest.mark.alone
def test_a_handover_takes_less_than_5_ms(peer: StartPeer, key: str, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0", encoding="ascii")
    peers = [peer(), peer()]
    running = [(each.pid, each.begin("hammer", key, 300, str(counter))) for each in peers]
    turns = sorted(
        (turn["at"], turn["released"], pid) for pid, each in running for turn in each.result(PATIENCE)
    )
    hand_offs = [after[0] - before[1] for before, after in pairwise(turns) if before[2] != after[2]]
    assert len(hand_offs) > 20
    assert median(hand_offs) <= 0.005


def test_an_idle_waiter_uses_no_cpu(peer: StartPeer, one: Contender, key: str) -> None:
    one.held(ask(key))
    waiter = peer()
    assert waiter.do("request", key) == "Queued"
    assert waiter.do("cpu", 1.0) < 0.01


def test_the_death_of_a_process_in_another_pid_namespace_is_noticed_by_asking(
    peer: StartPeer, one: Contender, key: str
) -> None:
    wrapper = ("unshare", "--pid", "--fork", "--kill-child")
    if subprocess.run([*wrapper, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no right to make a PID namespace")
    outsider = peer()
    outsider.do("acquire", key)
    insider = peer(wrapper=wrapper)
    assert insider.do("request", key) == "Queued"
    assert insider.do("poll", key) <= 0.25
    mine = ask(key)
    assert one.queued(mine).poll >= 1.0
    outsider.kill()
    assert insider.do("request", key) == "Acquired"
    one.queued(mine)
    one.sink.notified_keys.clear()
    insider.process.kill()
    assert one.sink.wait_for_notification(key, AT_ONCE)
    one.until_held(mine)


def test_clients_of_one_process_exclude_each_other(one: Contender, two: Contender, key: str) -> None:
    mine = ask(key)
    one.held(mine)
    two.queued(ask(key))
    assert one.backend.renew([mine]) == [True]


def test_a_closed_client_does_not_hurt_the_other_one_of_its_process(
    one: Contender, two: Contender, peer: StartPeer, key: str
) -> None:
    mine = ask(key)
    one.held(mine)
    two.held(ask("shop:product_2"))
    two.backend.close()
    other = peer()
    assert other.do("request", key) == "Queued"
    assert other.do("request", "shop:product_2") == "Acquired"
    assert one.backend.renew([mine]) == [True]
    assert one.backend.release(mine)


def test_a_closed_client_gives_up_what_it_holds_and_tells_who_waits(
    one: Contender, two: Contender, key: str
) -> None:
    one.held(ask(key))
    second = ask(key)
    two.queued(second)
    one.backend.close()
    assert two.sink.wait_for_notification(key, AT_ONCE)
    two.held(second)


def test_a_closed_client_may_be_used_again(one: Contender, two: Contender, key: str) -> None:
    one.held(ask(key))
    one.backend.close()
    one.held(ask(key))
    two.queued(ask(key))


def test_threads_of_one_client_hold_one_after_another(url: str, key: str) -> None:
    backend = FileBackend(url)
    first, second = ask(key), ask(key)
    assert isinstance(backend.request(first), Acquired)
    assert isinstance(backend.request(second), Queued)
    assert backend.release(first)
    assert isinstance(backend.request(second), Acquired)
    backend.close()
