"""The nodes of a lock: their names, order and fences, and who has the lock by the names."""

from __future__ import annotations

import itertools
import uuid

import pytest

from distlock.backends.zookeeper import nodes
from distlock.backends.zookeeper.nodes import (
    FOLDER,
    entered,
    first_number_of,
    followed,
    in_order,
    lock_path,
    rivals_of,
    silent,
)
from distlock.errors import BackendUnavailable, ConfigurationError
from tests.backends.zookeeper.contender import MakeContender, ask, some_key
from tests.zookeeper_server import CHROOT, ZooKeeperServer


def curators_order(names: list[str]) -> list[str]:
    """``LockInternals.getSortedChildren``: by the text behind the last ``lock-``, or by the whole name."""

    def fixed_for_sorting(name: str) -> str:
        index = name.rfind("lock-")
        return name[index + len("lock-") :] if index >= 0 else name

    return sorted(names, key=fixed_for_sorting)


def test_curator_sees_the_same_order(zookeeper_server: ZooKeeperServer, contender: MakeContender) -> None:
    key, one = some_key(), contender(zookeeper_server.url)
    parent, entered = lock_path(f"{CHROOT}/{FOLDER}", key), []
    zookeeper_server.admin.ensure_path(parent)
    for number in range(12):
        if number % 3 == 1:
            path = f"{parent}/_c_{uuid.uuid4()}-lock-"
            made = zookeeper_server.admin.create(path, ephemeral=True, sequence=True)
            entered.append(made.rpartition("/")[2])
        else:
            mine = ask(key)
            one.request(mine)
            entered.append(one.line().nodes[mine.token].name)
    names = zookeeper_server.admin.get_children(parent)
    assert curators_order(names) == in_order(names) == entered
    for name in names:
        zookeeper_server.admin.delete(f"{parent}/{name}")


def test_what_is_no_contender_is_not_in_line() -> None:
    names = ["_c_x-lock-0000000002", "members", "lock-", "_c_y-lock-0000000001", "lock-12", "lock-0000000000"]
    assert in_order(names) == ["_c_y-lock-0000000001", "_c_x-lock-0000000002"]


def test_the_hold_waits_for_a_curator_before_it_and_does_not_send_it_away(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    key, one = some_key(), contender(zookeeper_server.url, ack_window=0.05)
    first, second = ask(key), ask(key)
    one.hold(first)
    parent = lock_path(f"{CHROOT}/{FOLDER}", key)
    path = zookeeper_server.admin.create(f"{parent}/_c_{uuid.uuid4()}-lock-", ephemeral=True, sequence=True)
    one.queue(second)
    one.release(first)
    for _ in range(5):
        assert one.queue(second).poll > 0.5
    zookeeper_server.admin.delete(path)
    assert one.sink.wait_for_notification(key)
    one.hold(second)


@pytest.mark.attack("A02")
def test_keys_are_paths_of_bounded_length_one_for_each() -> None:
    keys = [
        "p:1",
        "p:1/2",
        "p:../1",
        "p:/",
        "p:%2F",
        "p:\u00e9",
        "p:e\u0301",
        "p:" + "x" * 300,
        "p:" + "x" * 301,
    ]
    paths = [lock_path("/shop", key) for key in keys]
    assert len(set(paths)) == len(keys)
    for path in paths:
        assert path.startswith("/shop/")
        assert path.count("/") == 2
        assert len(path) < 220


@pytest.mark.attack("A01")
def test_a_client_cannot_reach_another_lock_by_its_name(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    # With bare paths this name would leave a node in the line of product_2 that never goes away.
    one, outer = contender(zookeeper_server.url), f"{some_key()}_2"
    one.hold(ask(f"{outer}/_c_00000000000000000000000000000000-lock-0000000000"))
    one.hold(ask(outer))


def test_a_fence_is_the_transaction_that_made_the_node(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    one, mine = contender(zookeeper_server.url), ask()
    held = one.hold(mine)
    stat = zookeeper_server.admin.exists(one.line().nodes[mine.token].path)
    assert held.number == stat.czxid << nodes.SPAN_BITS


def test_fences_of_later_nodes_leave_room_for_a_span() -> None:
    numbers = [1, 2, 2**32 - 1, 1 << 32, (1 << 32) + 1, (2**21 - 1) << 32]
    fences = [first_number_of(number, 1024) for number in numbers]
    assert all(later - earlier >= 1024 for earlier, later in itertools.pairwise(fences))
    assert fences[-1] + 1024 < 2**63


def test_the_end_of_the_fences_is_loud() -> None:
    with pytest.raises(BackendUnavailable, match="raise epoch"):
        first_number_of(2**21 << 32, 64)
    with pytest.raises(ConfigurationError, match="1024"):
        first_number_of(1, 1025)


def test_the_end_of_the_numbers_is_loud() -> None:
    nodes.check_sequence("_c_x-lock-2147000000")
    for name in ("_c_x-lock-2147483647", "_c_x-lock--2147483648"):
        with pytest.raises(BackendUnavailable, match="few seconds"):
            nodes.check_sequence(name)


# -- who has the lock, by the names -----------------------------------------------------------------


def line(text: str) -> list[str]:
    """``W`` a writer, ``R`` a reader, ``2of5`` permits: in the order of their numbers."""
    kinds = {"W": "lock", "R": "rlock"}
    return [
        f"_c_x{number}-{kinds.get(word, f'{word}-plock')}-{number:010}"
        for number, word in enumerate(text.split())
    ]


@pytest.mark.parametrize(
    ("text", "many"),
    [
        ("", 0),
        ("W", 1),
        ("W W R", 1),
        ("W R R", 1),
        ("R R R", 3),
        ("R R W R", 2),
        ("1of2 1of2", 2),
        ("1of2 1of2 1of2", 2),
        ("2of3 2of3 1of3", 1),
        # Each has a limit of its own: one that has to wait lets nobody pass, and is let in by nobody else's.
        ("1of9 1of1 1of9", 1),
        ("1of1 1of9 1of1", 2),
    ],
)
def test_those_that_have_the_lock_are_the_first_in_line(text: str, many: int) -> None:
    assert entered(line(text)) == many


def test_behind_a_writer_that_reads_by_now_readers_have_it_up_to_the_next_writer() -> None:
    names = line("W R R W R")
    assert entered(names, names[0]) == 3


@pytest.mark.parametrize(
    ("text", "rivals"),
    [
        ("R", ""),
        ("R R", ""),
        ("R W R", "1"),
        ("W R W R", "0 2"),
        ("R W", "0"),
        ("R R W", "0 1"),
        ("1of2 1of2", ""),
        ("1of2 1of2 1of2", "0 1"),
        ("1of1 1of1 1of9", "0 1"),
    ],
)
def test_what_keeps_the_last_one_out(text: str, rivals: str) -> None:
    *before, name = line(text)
    assert list(rivals_of(before, name)) == [before[int(number)] for number in rivals.split()]


@pytest.mark.parametrize(
    ("text", "came", "left", "quiet"),
    [
        # The first one may have found the lock free; the second one was handed it and has to say so.
        ("W W", 2, 1, "0"),
        ("R R W", 3, 0, "0 1"),
        ("W R R", 3, 1, "0"),
        # One that came between our look and our node may have found it free.
        ("W W", 1, 1, "0 1"),
        ("W R R", 1, 1, "0 1 2"),
        ("1of2 1of2 1of2", 3, 1, "0 1"),
    ],
)
def test_those_that_could_enter_when_they_came_need_not_say_so(
    text: str, came: int, left: int, quiet: str
) -> None:
    names = line(text)
    assert silent(names[:came], names[left:]) == {names[int(number)] for number in quiet.split()}


def test_a_reader_is_followed_by_a_writer_and_not_by_readers() -> None:
    assert [followed(line(text)) for text in ("", "R R", "R W R")] == [False, False, True]
