"""What the server says to one request: waited for by several, or told once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from kazoo.exceptions import ConnectionLoss, NoNodeError, OperationTimeoutError

from distlock.backends.zookeeper.exchanges import ZooKeeperReply

#: Longer than any of it takes on a busy machine, seconds.
CEILING = 60.0


def test_all_that_wait_are_woken() -> None:
    answer = ZooKeeperReply()
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(answer.wait, CEILING) for _ in range(3)]
        answer.set("said")
        assert [one.result(CEILING) for one in waiting] == [True] * 3
    assert answer.get() == "said"


def test_one_that_does_not_come_is_waited_for_no_longer_and_counts_as_lost() -> None:
    answer = ZooKeeperReply()
    assert not answer.wait(0.01)
    assert not answer.wait(-1.0)
    with pytest.raises(OperationTimeoutError):
        answer.get()


def test_the_first_counts_and_is_told_once_in_the_thread_that_reads_it() -> None:
    told: list[tuple[int, ZooKeeperReply]] = []
    answer = ZooKeeperReply(lambda one: told.append((threading.get_ident(), one)))
    answer.set_exception(NoNodeError())
    answer.set_exception(ConnectionLoss())
    assert answer.ready()
    assert told == [(threading.get_ident(), answer)]
    with pytest.raises(NoNodeError):
        answer.get()
