"""The queue: fences that grow, names that stay apart, nothing left behind, and whose turn it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from distlock.backends.base import LockRequest
from distlock.backends.file import queues, record_locks
from distlock.backends.file.directory import Directory
from distlock.backends.file.entries import (
    READING,
    WHOLE,
    QueueEntry,
    Spot,
    front,
    is_front,
    spot_of,
    wants,
)
from distlock.backends.file.queues import FileQueues
from distlock.backends.file.record_locks import RecordLocks
from distlock.backends.file.trusted_directories import Tree
from distlock.errors import BackendUnavailable
from distlock.testing.conformance.closing import opened
from distlock.testing.protocol_fixtures import Contender, ask, read
from distlock.testing.waits import wait_until
from tests.backends.file.peer import Peer
from tests.shifted_clock import HOUR, Shift

StartPeer = Callable[..., Peer]


def entries(directory: Path) -> int:
    return len(list(directory.glob("v2/queue/*/*")))


@pytest.fixture
def lock_directory(url: str) -> Directory:
    return Directory(url)


@pytest.fixture
def tree(lock_directory: Directory) -> Iterator[Tree]:
    tree = Tree(lock_directory)
    yield tree
    tree.close()


@pytest.fixture
def locks(lock_directory: Directory, tree: Tree) -> Iterator[RecordLocks]:
    locks = record_locks.attach(lock_directory, tree)
    yield locks
    record_locks.detach(locks)


@pytest.fixture
def line_at(
    lock_directory: Directory, tree: Tree, locks: RecordLocks, monkeypatch: pytest.MonkeyPatch
) -> Callable[[int], FileQueues]:
    """Make the queues of a process whose clock tells that many microseconds."""

    def line_at(clock: int) -> FileQueues:
        monkeypatch.setattr(queues, "microseconds", lambda: clock)
        return FileQueues(lock_directory, tree, locks)

    return line_at


def take(line: FileQueues, locks: RecordLocks, key: str, span: int = 1) -> int:
    """A fence for *key*, used and given back."""
    contender = locks.enter()
    entry, _ = line.join(LockRequest(key, "token", 10.0, span), contender, patience=2.0)
    assert entry is not None
    line.leave(entry)
    locks.leave(contender)
    return entry.ticket


def test_fences_grow_when_the_clock_is_set_back(
    line_at: Callable[[int], FileQueues], locks: RecordLocks, key: str
) -> None:
    first = take(line_at(1_000_000), locks, key, span=50)
    second = take(line_at(5), locks, key)
    assert first == 1_000_000
    assert second == 1_000_050


FENCES = """
import sys, time, distlock
locks = distlock.connect(sys.argv[1])
for _ in sys.stdin:
    with locks.lock("product_1") as grant:
        print(grant.fence.number, time.time(), flush=True)
"""


@pytest.mark.fault("F16")
def test_fences_grow_whatever_the_clock_of_a_process_does(tmp_path: Path) -> None:
    shift = Shift(tmp_path / "shift")
    command = [sys.executable, "-c", FENCES, f"file://{tmp_path}/locks"]
    environment = {**os.environ, **shift.environment}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    fences, clocks = [], []
    with subprocess.Popen(command, env=environment, **pipes) as process:
        for ahead in (0, HOUR, -HOUR, 0):
            shift.set(ahead)
            print(file=process.stdin, flush=True)
            number, clock = process.stdout.readline().split()  # type: ignore[union-attr]
            fences.append(int(number))
            clocks.append(float(clock) - time.time())
        process.kill()
    assert fences == sorted(set(fences))
    assert [round(ahead / HOUR) for ahead in clocks] == [0, 1, -1, 0]


def test_fences_follow_the_clock(line_at: Callable[[int], FileQueues], locks: RecordLocks, key: str) -> None:
    take(line_at(1_000_000), locks, key)
    assert take(line_at(2_000_000), locks, key) == 2_000_000


def test_fences_grow_over_a_restart_of_all_processes(peer: StartPeer, key: str) -> None:
    fences = []
    for _ in range(3):
        each = peer()
        fences.append(each.do("acquire", key)["fence"])
        each.kill()
    assert fences == sorted(set(fences))


def test_fences_grow_when_the_directory_was_wiped(one: Contender, key: str, directory: Path) -> None:
    first, second = ask(key), ask(key)
    fence = one.held(first).number
    one.backend.release(first)
    shutil.rmtree(directory)
    assert one.held(second).number > fence


@pytest.mark.attack("A42")
def test_a_corrupt_counter_is_told_with_its_remedy(one: Contender, key: str, directory: Path) -> None:
    mine = ask(key)
    one.held(mine)
    one.backend.release(mine)
    (directory / "v2" / "state").write_bytes(b"\xff" * 4096)
    with pytest.raises(BackendUnavailable, match=r"corrupt.*delete"):
        one.backend.request(ask(key))


def test_who_loses_the_directory_learns_that_its_lock_is_gone(
    one: Contender, two: Contender, key: str, directory: Path
) -> None:
    mine = ask(key)
    one.held(mine)
    shutil.rmtree(directory)
    two.held(ask(key))
    assert one.backend.renew([mine]) == [False]
    assert one.backend.release(mine) is False
    one.queued(mine)


def test_a_process_that_closes_all_descriptors_holds_nothing_and_goes_on(
    peer: StartPeer, one: Contender, key: str
) -> None:
    daemon = peer()
    daemon.do("acquire", key)
    daemon.do("close_all_descriptors")
    mine = ask(key)
    one.held(mine)
    assert daemon.do("renew", key) is False
    assert daemon.do("request", key) == "Queued"
    one.backend.release(mine)
    assert daemon.do("request", key) == "Acquired"


@pytest.mark.attack("A03")
def test_hostile_names_are_different_locks_and_stay_in_the_directory(
    one: Contender, two: Contender, tmp_path: Path
) -> None:
    names = [
        "..",
        ".",
        "../../x",
        "/etc/passwd",
        "a~b",
        "a~",
        "A",
        "a",
        "e\u0301",
        "\u00e9",
        "x" * 255,
        "x" * 254,
    ]
    names += ["\n", "\0", " ", "%2e", "*", "\ud83d", "\U0001f600", "\U0001f600" * 255]
    requests = [ask(name) for name in names]
    for each in requests:
        one.held(each)
    for name in names:
        two.queued(ask(name))
    assert [path.name for path in tmp_path.iterdir()] == ["locks"]
    assert all(one.backend.release(each) for each in requests)


@pytest.mark.attack("A36")
def test_the_token_is_written_nowhere(one: Contender, key: str, directory: Path) -> None:
    mine = ask(key)
    one.held(mine)
    paths = [str(path) for path in directory.rglob("*")]
    assert any("product_1" in path for path in paths)
    assert not any(mine.token in path for path in paths)


@pytest.mark.attack("A18")
def test_ten_thousand_names_held_at_once_leave_nothing(one: Contender, directory: Path) -> None:
    requests = [ask(f"shop:product_{number}") for number in range(10_000)]
    for each in requests:
        one.held(each)
    assert entries(directory) == len(requests)
    for each in requests:
        assert one.backend.release(each)
    assert entries(directory) == 0


def test_descriptors_threads_and_fifos_are_gone_after_close(
    one: Contender, two: Contender, directory: Path
) -> None:
    before = opened()
    one.held(ask("shop:product_1"))
    two.queued(ask("shop:product_1"))
    assert list(directory.glob("v2/wake/*"))
    one.backend.close()
    two.backend.close()
    assert not list(directory.glob("v2/wake/*"))
    assert entries(directory) == 0
    assert opened() - before == set()


def test_what_a_crash_left_is_swept_by_who_comes_next(peer: StartPeer, directory: Path) -> None:
    crashed = peer()
    crashed.do("hold_many", 2_000)
    assert entries(directory) == 2_000
    crashed.kill()
    sweeper = peer()

    def swept() -> bool:
        sweeper.do("request", "shop:basket")
        sweeper.do("release", "shop:basket")
        return entries(directory) == 0 and not list(directory.glob("v2/wake/*"))

    wait_until(swept, "nothing is left")


def test_files_that_are_not_ours_are_left_alone(one: Contender, key: str, directory: Path) -> None:
    mine = ask(key)
    one.held(mine)
    shard = next(directory.glob("v2/queue/*"))
    prefix = next(shard.iterdir()).name.rsplit("~", 3)[0]
    strange = [shard / "README", shard / f"{prefix}~x~y~z", directory / "v2" / "wake" / "README"]
    for path in strange:
        path.touch()
    one.backend.release(mine)
    one.held(ask(key))
    assert all(path.exists() for path in strange)


def test_a_writer_that_was_stopped_halfway_makes_calls_fail_on_time(
    lock_directory: Directory, tree: Tree, locks: RecordLocks, key: str
) -> None:
    line = FileQueues(lock_directory, tree, locks)
    spot = spot_of(key)
    newcomer = LockRequest(key, "token", 10.0, 1)
    with (
        ThreadPoolExecutor(1) as pool,
        locks.writing(spot.shard, patience=2.0),
        pytest.raises(BackendUnavailable, match="Another thread of this process"),
    ):
        pool.submit(line.join, newcomer, locks.enter(), 0.05).result()


def test_a_writer_that_was_interrupted_where_no_exit_helps_is_passed_over(
    lock_directory: Directory, tree: Tree, locks: RecordLocks, key: str
) -> None:
    line = FileQueues(lock_directory, tree, locks)
    spot = spot_of(key)

    def enter_and_never_leave() -> None:
        locks.writing(spot.shard, patience=2.0).__enter__()

    enter_and_never_leave()
    newcomer = LockRequest(key, "token", 10.0, 1)
    assert line.join(newcomer, locks.enter(), 0.0)[0] is not None


# -- whose turn it is -------------------------------------------------------------------------------


def line(text: str) -> list[QueueEntry]:
    """Of ``w r 2/5``: a writer, a reader, one that wants two of five permits. In capitals: it has it."""
    entries = []
    for ticket, word in enumerate(text.split()):
        if word.lower() in {"w", "r"}:
            wanted = WHOLE if word.lower() == "w" else READING
        else:
            permits, _, limit = word.removeprefix("!").partition("/")
            wanted = wants(f"-{permits}of{limit}")
        held = word.isupper() or word.startswith("!")
        entries.append(QueueEntry(ticket, 1, "", wanted, held, "", word))
    return entries


@pytest.mark.parametrize(
    ("standing", "turns"),
    [
        ("", []),
        ("w r", [0]),
        ("W r r", [0]),
        ("r r w r", [0, 1]),
        ("R r w r", [0, 1]),
        ("r R w", [0, 1]),
        ("R w r", [0]),
        ("R R", [0, 1]),
        ("1/2 1/2 1/2", [0, 1]),
        ("!1/2 1/2 1/2", [0, 1]),
        ("!4/5 2/5 1/5", [0]),
        ("!3/5 2/5 1/5", [0, 1]),
        ("!5/5", [0]),
        # What has been given out behind one that waits counts, too.
        ("2/5 !4/5", [1]),
        # Each goes by its own limit.
        ("!3/10 1/3 1/10", [0]),
        ("!3/3 1/10 1/3", [0, 1]),
        # One that can never have what it wants lets nobody pass.
        ("9/5 1/5", []),
    ],
)
def test_whose_turn_it_is(standing: str, turns: list[int]) -> None:
    assert [entry.ticket for entry in front(line(standing))] == turns


def test_a_newcomer_enters_if_it_were_its_turn() -> None:
    reader, writer = line("r w")
    assert is_front(reader, line("R R"))
    assert not is_front(reader, line("R w"))
    assert not is_front(writer, line("R"))
    assert is_front(writer, [])


def test_behind_one_that_wants_the_whole_lock_nobody_is_looked_at() -> None:
    """To find out who lives costs two system calls each."""

    def looked_at() -> Iterator[QueueEntry]:
        yield from line("w")
        raise AssertionError("there is no need to look")

    assert len(list(front(looked_at()))) == 1


def test_what_a_newer_version_wants_is_the_whole_lock() -> None:
    assert wants("-future").mode == "exclusive"
    assert wants("-3of10")[1:] == ("permit", 3, 10)


# -- files that get another name meanwhile ----------------------------------------------------------


def test_a_hold_whose_file_gets_another_name_meanwhile_is_not_lost(
    one: Contender, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread renews it while another one turns it into a reader's."""
    mine = ask(key)
    one.held(mine)
    there = FileQueues.there

    def turned_first(line: FileQueues, entry: QueueEntry) -> bool:
        monkeypatch.setattr(FileQueues, "there", there)
        assert one.backend.downgrade(mine)
        return there(line, entry)

    monkeypatch.setattr(FileQueues, "there", turned_first)
    assert one.backend.renew([mine]) == [True]


def test_a_hold_whose_file_gets_another_name_meanwhile_is_released(
    one: Contender, two: Contender, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = ask(key)
    one.held(mine)
    leave = FileQueues.leave

    def turned_first(line: FileQueues, entry: QueueEntry) -> bool:
        monkeypatch.setattr(FileQueues, "leave", leave)
        assert one.backend.downgrade(mine)
        return leave(line, entry)

    monkeypatch.setattr(FileQueues, "leave", turned_first)
    assert one.backend.release(mine)
    two.held(ask(key))


@pytest.mark.parametrize("wanted", [ask, read])
def test_a_look_that_misses_a_file_lets_nobody_in(
    one: Contender,
    two: Contender,
    key: str,
    monkeypatch: pytest.MonkeyPatch,
    wanted: Callable[[str], LockRequest],
) -> None:
    """A folder that is read while a file in it gets another name may show neither of its names."""
    one.held(ask(key))
    mine = wanted(key)
    two.queued(mine)
    entries = FileQueues.entries

    def missed(line: FileQueues, spot: Spot) -> list[QueueEntry]:
        monkeypatch.setattr(FileQueues, "entries", entries)
        return [entry for entry in entries(line, spot) if not entry.held]

    monkeypatch.setattr(FileQueues, "entries", missed)
    two.queued(mine)
