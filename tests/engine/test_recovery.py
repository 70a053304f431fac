"""What a process notes about the locks of its fenced guards: see also tests/fence/test_dead_neighbour.py."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import distlock
from distlock.engine.sans_io import ThreadParker, run
from distlock.grants.grant import Grant
from tests.redis_server import RedisServer, redis_server

__all__ = ["redis_server"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the files of this user's processes, which is missing."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"distlock-{os.geteuid()}"


@pytest.fixture
def locks(redis_server: RedisServer, folder: Path) -> Iterator[distlock.Locks]:
    locks = distlock.connect(redis_server.url, prefix="recovery")
    yield locks
    locks.close()


def fenced(locks: distlock.Locks, name: str) -> Grant:
    """Acquire *name* as a fenced guard does."""
    terms = replace(locks.namespace.terms, fenced=True)
    grant = run(locks.acquirer.acquire((name,), ThreadParker(), 5.0, terms))
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


def test_a_process_that_has_closed_all_descriptors_writes_into_no_other_file(
    locks: distlock.Locks, folder: Path, tmp_path: Path
) -> None:
    fenced(locks, "one").release()
    (file,) = folder.iterdir()
    (descriptor,) = (int(one.name) for one in Path("/proc/self/fd").iterdir() if leads_to(one, file))
    os.close(descriptor)
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
    assert other == descriptor
    second = fenced(locks, "two")
    # The former file is no longer locked, and neighbours delete it.
    assert f"{second.fence.number} recovery:two" in noted(folder)
    assert len([*folder.iterdir()]) == 2
    second.release()
    assert (tmp_path / "other").read_bytes() == b""
    os.close(other)


def leads_to(link: Path, file: Path) -> bool:
    return link.is_symlink() and os.path.realpath(link) == str(file)


def test_in_a_folder_where_others_may_write_nothing_is_noted(
    locks: distlock.Locks, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    caplog.set_level(logging.INFO, "distlock")
    fenced(locks, "one").release()
    assert [*folder.iterdir()] == []
    assert f"others may write in {folder}" in caplog.text
