"""A process notes the locks of its fenced guards: see also tests/fence/test_dead_neighbour.py."""

from __future__ import annotations

import fcntl
import logging
import math
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import distlock
from distlock.engine import recovery
from distlock.engine.sans_io import ThreadParker, run
from distlock.grants.grant import Grant
from distlock.locks.engine_namespace import EngineNamespace
from distlock.terms import READ, Mode
from distlock.testing.waits import engine_of
from distlock.web import guard
from tests.redis_server import RedisServer, eventually, own_server, redis_server
from tests.web.nested_call import NoTransactions

__all__ = ["own_server", "redis_server"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the files of this user's processes, which is missing."""
    monkeypatch.setattr(recovery, "IN_MEMORY", str(tmp_path))
    return tmp_path / f"distlock-{os.geteuid()}"


@pytest.fixture
def locks(redis_server: RedisServer, folder: Path) -> Iterator[distlock.Locks]:
    locks = distlock.connect(redis_server.url, prefix="recovery")
    yield locks
    locks.close()


def fenced(locks: distlock.Locks, name: str, timeout: float = 5.0) -> Grant:
    """Acquire *name* as a fenced guard does."""
    terms = replace(locks.namespace.terms, fenced=True)
    grant = run(locks.acquirer.acquire((name,), ThreadParker(), timeout, terms))
    assert grant is not None
    return grant


#: Bytes from the beginning of one note to that of the next.
SLOT = 2048


def noted(folder: Path) -> list[str]:
    notes: list[str] = []
    for file in folder.iterdir():
        content = file.read_bytes()
        slots = [content[place : place + SLOT] for place in range(0, len(content), SLOT)]
        # An erased note begins with the end of its line.
        notes += [line.decode() for slot in slots if (line := slot.partition(b"\n")[0])]
    return notes


def test_a_hold_is_noted_until_it_is_released(locks: distlock.Locks, folder: Path) -> None:
    one, other = fenced(locks, "one"), fenced(locks, "other")
    assert noted(folder) == [f"{one.fence.number} recovery:one", f"{other.fence.number} recovery:other"]
    one.release()
    third = fenced(locks, "third")
    assert noted(folder) == [f"{third.fence.number} recovery:third", f"{other.fence.number} recovery:other"]
    third.release()
    other.release()
    assert noted(folder) == []


def test_a_closed_client_leaves_no_file(locks: distlock.Locks, folder: Path) -> None:
    fenced(locks, "one").release()
    assert [*folder.iterdir()]
    locks.close()
    assert [*folder.iterdir()] == []


def test_without_a_fence_nothing_is_noted(locks: distlock.Locks, folder: Path) -> None:
    with locks.lock("one"):
        assert not folder.exists()


@pytest.mark.parametrize(
    ("fenced_in", "mode", "notes"), [("default", None, 1), (None, None, 0), ("default", READ, 0)]
)
def test_a_guard_that_writes_under_a_fence_notes_its_lock(
    locks: distlock.Locks, folder: Path, fenced_in: str | None, mode: Mode | None, notes: int
) -> None:
    terms = None if mode is None else replace(locks.namespace.terms, mode=mode)

    def view() -> int:
        return len(noted(folder)) if folder.exists() else 0

    found = guard.run(locks, ["one"], view, NoTransactions(), terms=terms, fenced_in=fenced_in)
    assert found == notes


def test_a_process_that_has_closed_all_descriptors_writes_into_no_other_file(
    locks: distlock.Locks, folder: Path, tmp_path: Path
) -> None:
    fenced(locks, "one").release()
    (file,) = folder.iterdir()
    os.close(descriptor := descriptor_of(file))
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
    assert other == descriptor
    second = fenced(locks, "two")
    assert noted(folder) == [f"{second.fence.number} recovery:two"]
    second.release()
    assert (tmp_path / "other").read_bytes() == b""
    os.close(other)


def descriptor_of(file: Path) -> int:
    """Return the descriptor by which this process has *file* open."""
    links = Path("/proc/self/fd").iterdir()
    (found,) = (int(link.name) for link in links if os.path.realpath(link) == str(file))
    return found


def test_in_a_folder_where_others_may_write_nothing_is_noted(
    locks: distlock.Locks, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    caplog.set_level(logging.INFO, "distlock")
    fenced(locks, "one").release()
    assert [*folder.iterdir()] == []
    assert f"{folder} is no directory of this user alone" in caplog.text


def test_a_file_that_cannot_be_read_keeps_no_other_from_being_read(
    locks: distlock.Locks, folder: Path, redis_server: RedisServer
) -> None:
    fenced(locks, "one").release()
    beginning = next(folder.iterdir()).name.partition(".")[0]
    (folder / f"{beginning}.0").write_bytes(b"\xff 1\n")
    (folder / f"{beginning}.1").mkdir()
    os.mkfifo(folder / f"{beginning}.2")
    (folder / f"{beginning}.3").symlink_to("/dev/zero")
    # The lock of a process that lives, and a note in a file that no process has locked.
    other = distlock.connect(redis_server.url, prefix="recovery")
    held = other.lock("product").acquire()
    assert held is not None
    (folder / f"{beginning}.4").write_text(f"{held.fence.number} recovery:product\n", "utf-8")
    fenced(locks, "product", timeout=60.0).release()
    eventually(lambda: not (folder / f"{beginning}.4").exists(), "the file of the dead process is deleted")
    other.close()


def test_one_process_has_no_neighbours(folder: Path) -> None:
    locks = distlock.connect("memory://recovery")
    fenced(locks, "one").release()
    assert not folder.exists()
    locks.close()


def test_a_closed_descriptor_takes_the_notes_along(locks: distlock.Locks, folder: Path) -> None:
    grant = fenced(locks, "one")
    (file,) = folder.iterdir()
    os.close(descriptor_of(file))
    grant.release()
    assert [*folder.iterdir()] == []


def test_an_interrupted_hand_off_wakes_the_next_caller(
    locks: distlock.Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, granted = fenced(locks, "one"), threading.Event()

    def next_caller() -> None:
        fenced(locks, "one", timeout=60.0).release()
        granted.set()

    thread = threading.Thread(target=next_caller)
    thread.start()
    namespace = locks.namespace
    assert isinstance(namespace, EngineNamespace)
    eventually(lambda: namespace.engine.queues.waiting, "another caller waits")
    pwrite = os.pwrite

    def interrupted(descriptor: int, line: bytes, place: int) -> int:
        written = pwrite(descriptor, line, place)
        if line != b"\n":
            monkeypatch.undo()
            raise KeyboardInterrupt
        return written

    monkeypatch.setattr(os, "pwrite", interrupted)
    with pytest.raises(KeyboardInterrupt):
        first.release()
    assert granted.wait(30.0)
    thread.join()


def test_after_a_failure_nothing_is_noted_for_a_while(
    locks: distlock.Locks, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    fenced(locks, "one").release()
    folder.chmod(0o700)
    fenced(locks, "two").release()
    assert [*folder.iterdir()] == []
    assert caplog.text.count("is no directory of this user alone") == 1


def test_old_files_of_dead_processes_are_deleted_and_no_others(locks: distlock.Locks, folder: Path) -> None:
    folder.mkdir(mode=0o700)
    days_ago = time.time() - 3 * 86_400
    for name, mtime in (("dead", days_ago), ("living", days_ago), ("new", time.time())):
        (folder / name).write_bytes(b"")
        os.utime(folder / name, (mtime, mtime))
    with (folder / "living").open("rb") as living:
        fcntl.flock(living, fcntl.LOCK_EX)
        fenced(locks, "one").release()
        assert not (folder / "dead").exists()
        assert (folder / "living").exists()
        assert (folder / "new").exists()


class Neighbour:
    """It looks in a time that the test makes up, and a process has died that held ``product``."""

    def __init__(self, url: str, folder: Path) -> None:
        self.now = 0.0
        self.locks = distlock.connect(url, prefix="recovery")
        held = self.locks.lock("product").acquire()
        assert held is not None
        engine = engine_of(self.locks)
        self.recovery = recovery.Recovery(
            engine.section, engine.backend, lambda: self.now, engine.maintenance, waits=lambda: True
        )
        self.recovery.join("a group")
        self.recovery.note(object(), "another", 1)
        beginning = next(folder.iterdir()).name.partition(".")[0]
        self.dead = folder / f"{beginning}.dead"
        self.dead.write_text(f"{held.fence.number} recovery:product\n", "utf-8")
        self.recovery.begin_looking()

    def look(self, seconds: float = math.inf) -> None:
        """Look for so many seconds at most."""
        self.now += 2.0
        run(self.recovery.tick(lambda: self.now + seconds))

    def close(self) -> None:
        self.recovery.stop()
        self.locks.close()


def test_what_there_is_no_time_to_break_stays_noted(folder: Path, redis_server: RedisServer) -> None:
    neighbour = Neighbour(redis_server.url, folder)
    neighbour.look(seconds=0.0)
    assert neighbour.dead.exists()
    neighbour.look()
    assert not neighbour.dead.exists()
    other = distlock.connect(redis_server.url, prefix="recovery")
    assert not other.lock("product").locked()
    other.close()
    neighbour.close()


def test_so_does_what_the_lock_service_did_not_break(folder: Path, own_server: RedisServer) -> None:
    neighbour = Neighbour(own_server.url, folder)
    own_server.kill()
    neighbour.look()
    assert neighbour.dead.exists()
    neighbour.close()
